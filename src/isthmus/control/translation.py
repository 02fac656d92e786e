"""One committed offset -> its place at the destination, and by which method. Pure: no site is asked here.

What a group's position means: a committed offset is the *next* record to read. So it becomes the destination offset of the
first copied record at or after it. Where nothing at or after it is copied yet, it becomes the offset that follows the last
copied record before it: what comes later is written behind that, whatever markers of transactions stand in between.

Methods, best first:
- ``map``: the link's own map, exact;
- ``two-way``: a link brings records the other way, too: both maps together (two_way.py). Nothing is left out;
- ``header``: the topic was copied by another tool, whose records carry their source offset in a header: exact;
- ``timestamp``: it carries none, so the first record that is not older than the last one that the group has read. That one,
  and in logs with transactions some more, are read again; nothing is left out as long as timestamps were kept.

Invariant: an answer never lies behind a record that the group has not read and that is, or will be, at the destination;
and never before the destination's first record, where a client would not find it and jump to wherever its own settings say.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.engine.offset_map import ChunkKey, PartitionMap, build_maps
from isthmus.kafka.cluster import NO_ID
from isthmus.kafka.offsets import Partition
from isthmus.kafka.peek import Seen
from isthmus.kafka.read import Pair

Method = Literal["map", "two-way", "header", "timestamp"]

# In a chunk of the map, the id of the topic that it is about stands behind one byte.
_TARGET_ID = slice(1, 17)


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of a destination partition. ``end`` was read before the map was."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group goes on at the destination. ``exact``: at the copy of the very record that it would have read next;
    ``copied``: a record stands there. One that is not exact is no less right: where that record is none (a hole, an aborted
    transaction, the end of the log), the group goes on at what comes next."""

    offset: int
    method: Method
    exact: bool
    copied: bool

    @property
    def lands_on(self) -> str:
        """What the group reads first at this place, in words, compared with what it would have read next at the source."""
        if self.exact:
            return "that record"
        if self.method == "two-way":  # of all that it has not read, in the order of the destination
            return "the first unread"
        if not self.copied:
            return "the end"
        return "at or before" if self.method == "timestamp" else "the next record"


def maps_between(
    records: Iterable[Pair], ids: Mapping[Partition, tuple[uuid.UUID, uuid.UUID]]
) -> dict[Partition, PartitionMap]:
    """The maps of these source partitions, of what went from the topics to the topics that have these ids now.

    A partition may have been copied to a topic of another name before, or to a topic that was deleted since: offsets there
    mean nothing in the present one.
    """
    fitting: list[tuple[bytes, bytes | None]] = []
    for raw, value in records:
        if raw is None:
            continue
        key = ChunkKey.decode(raw)
        source_id, target_id = ids.get((key.topic, key.partition), (NO_ID, NO_ID))
        if source_id not in (NO_ID, key.source_id) or (key.topic, key.partition) not in ids:
            continue
        if value is None or target_id == NO_ID or value[_TARGET_ID] == target_id.bytes:
            fitting.append((raw, value))
    return build_maps(fitting)


def by_map(known: PartitionMap | None, target: Target, offsets: Sequence[int]) -> list[Position]:
    """Positions of many groups in one partition that the link copies.

    ``known`` is None, or empty, when nothing of the partition is copied. Then whatever comes is written at or behind
    ``target.end``, because that was read before the map was.
    """
    if known is None or not len(known.runs):
        return [Position(max(target.end, target.start), "map", False, False)] * len(offsets)
    places, exact, copied = known.translate_many(np.asarray(offsets, np.int64))
    return [
        Position(max(place, target.start), "map", is_exact and place >= target.start, is_copied)
        for place, is_exact, is_copied in zip(places.tolist(), exact.tolist(), copied.tolist(), strict=True)
    ]


# -- topics that another tool has copied ------------------------------------------------------------------------


def source_offset(record: Seen, name: str) -> int | None:
    """The source offset that a record's header of this name tells: 8 bytes, big-endian, or digits."""
    for key, value in reversed(record.headers):
        if key == name.encode() and value:
            if value.isdigit():
                return int(value)
            return int.from_bytes(value, "big") if len(value) == 8 else None
    return None


# More looks than any bisection needs: headers that are not in order would lead in circles.
MOST_LOOKS = 100
# So many guesses by difference, which is right at once where the log has no holes, before halving, which always ends.
GUESSES = 3


class Search:
    """Looks for the first record of a partition whose number is at least ``wanted``: its source offset, or its time.

    The caller shows it what stands at ``at`` until ``answer`` is there, or ``lost`` says that records without a number don't
    lead anywhere. Invariants: the last record up to ``low`` is too early. The first record at or after ``high`` is late
    enough (``best``), or there is none before the end.
    """

    def __init__(
        self, wanted: int, method: Method, number: Callable[[Seen], int | None], target: Target, at: int
    ) -> None:
        self._wanted, self._method, self._number = wanted, method, number
        self._low, self._high = target.start - 1, max(target.end, target.start)
        self._best: Position | None = None
        self._looks = 0
        self.answer: Position | None = None
        self.lost = False
        self.at = self._asked = at
        self._go(at)

    @classmethod
    def by_header(cls, offset: int, header: str, target: Target, at: int) -> Search:
        return cls(offset, "header", lambda record: source_offset(record, header), target, at)

    @classmethod
    def by_time(cls, moment: int, target: Target, at: int) -> Search:
        return cls(moment, "timestamp", lambda record: record.timestamp, target, at)

    def show(self, records: Sequence[Seen], end: int) -> None:
        """Take in what stands from ``at`` to ``end``."""
        self._looks += 1
        told = [(r.offset, self._number(r)) for r in records if r.offset >= self.at]
        numbers = [(place, number) for place, number in told if number is not None]
        if len(numbers) < len(told) or self._looks > MOST_LOOKS:
            self.lost = True
        elif not numbers:
            if self.at < end < self._high:
                self.at = end  # markers, aborted records, a compacted hole: what follows answers for this place
            else:
                self._high = self._asked
                self._go((self._low + self._high) // 2)
        elif numbers[-1][1] < self._wanted:
            self._low = max(self._low, end - 1)
            self._go(numbers[-1][0] + self._wanted - numbers[-1][1])
        else:
            place, number = next((p, n) for p, n in numbers if n >= self._wanted)
            exact = self._method == "header" and number == self._wanted
            found = Position(place, self._method, exact, True)
            if exact or place != numbers[0][0]:
                self.answer = found
            else:
                self._best, self._high = found, self._asked
                self._go(place - (number - self._wanted))

    def _go(self, guess: int) -> None:
        if self._high <= self._low + 1:
            self.answer = self._best or Position(max(self._high, self._low + 1), self._method, False, False)
            return
        chosen = guess if self._looks <= GUESSES else (self._low + self._high) // 2
        self.at = self._asked = min(max(chosen, self._low + 1), self._high - 1)
