"""Leaves out records that would go round: by the header that says where they were born.

Invariants:
- a record without the header was born at the source, and is never left out;
- ``returning`` leaves out what was born at the destination, and what carries the source's own name: that went out from here once and
  has come home (by an override, or a restored backup), so whoever was to have it has it. Origins that cannot be read stay in;
- ``foreign`` leaves out whatever has the header;
- what an override matches stays in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from isthmus.config.loop import LONGEST_TIME, Loop, Override
from isthmus.config.origin import Origin
from isthmus.config.rename import fill
from isthmus.records.kernels_cache import READ_BYTES, helper, kernel
from isthmus.records.model import Bytes, Ints, Longs, Records
from isthmus.records.wire import Number
from isthmus.rules import Identities
from isthmus.rules.born import (
    PROVENANCE,
    among,
    as_bytes,
    find_header,
    packed,
    same_bytes,
    split_provenance,
)
from isthmus.rules.listed import Lists, is_listed

#: Before rules of users: what is left out costs them nothing.
ORDER = 200

# How a header is judged.
FOREIGN, WHOLE, PARTS = range(3)

#: The columns in which a header may stand, and their types for kernels.
HeaderColumns = tuple[Bytes, Ints, Ints, Ints, Bytes, Longs, Ints]
_HEADERS = f"{READ_BYTES}, int32[::1], int32[::1], int32[::1], {READ_BYTES}, int64[::1], int32[::1]"


@helper
def is_out(text: Any, value: Number, length: Number, how: Number, known: Any, known_start: Any, topic: Any) -> bool:
    """Whether a record whose header has this value is left out."""
    if how == PARTS:
        id_length, topic_length, _ = split_provenance(text, value, length)
        return (
            id_length > 0
            and among(text, value, id_length, known, known_start)
            and (
                len(topic) == 0
                or (topic_length == len(topic) and same_bytes(text, value + id_length + 1, topic, 0, topic_length))
            )
        )
    return how == FOREIGN or (length > 0 and among(text, value, length, known, known_start))


@kernel(f"int64({_HEADERS}, {READ_BYTES}, int64, {READ_BYTES}, int64[::1], {READ_BYTES}, uint8[::1])")
def leave_out(
    data: Any,
    start: Any,
    end: Any,
    count: Any,
    tail: Any,
    tail_start: Any,
    tail_count: Any,
    name: Any,
    how: Any,
    known: Any,
    known_start: Any,
    topic: Any,
    dropped: Any,
) -> int:
    """Mark what is to be left out in ``dropped``; how many that are.

    ``known`` are the places of birth that are left out. If ``topic`` is not empty, a birth in it is needed too.
    """
    found = 0
    for row in range(len(start)):
        if dropped[row]:
            continue
        if count[row] > 0:
            at, value, length, _ = find_header(data, start[row], end[row], count[row], name)
            if at >= 0:
                out = how == FOREIGN
                if how == WHOLE:
                    # Written out: a helper that is handed several arrays costs as much as finding the header.
                    for number in range(len(known_start) - 1):
                        size = known_start[number + 1] - known_start[number]
                        if size == length and same_bytes(data, value, known, known_start[number], size):
                            out = True
                            break
                elif how == PARTS:
                    out = is_out(data, value, length, how, known, known_start, topic)
                if out:
                    dropped[row] = 1
                    found += 1
                continue
        if tail_count[row] > 0:
            at, value, length, _ = find_header(tail, tail_start[row], tail_start[row + 1], tail_count[row], name)
            if at >= 0 and is_out(tail, value, length, how, known, known_start, topic):
                dropped[row] = 1
                found += 1
    return found


@kernel(
    f"int64({_HEADERS}, {READ_BYTES}, int64, uint8[::1], uint8[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1])"
)
def describe(
    data: Any,
    start: Any,
    end: Any,
    count: Any,
    tail: Any,
    tail_start: Any,
    tail_count: Any,
    name: Any,
    how: Any,
    before: Any,
    dropped: Any,
    timestamp: Any,
    group: Any,
    places: Any,
    time: Any,
) -> int:
    """Where those that are to be left out were born: neighbours of one origin and topic are one group.

    ``group`` gets the group of each row, ``time`` the time of its first copy, ``places`` for each group: whether it stands in the
    tail, where, and the lengths of origin and topic (-1: not told). How many groups there are.
    """
    groups = 0
    for row in range(len(start)):
        if before[row] or not dropped[row]:
            continue
        own = True
        at, value, length, _ = find_header(data, start[row], end[row], count[row], name)
        if at < 0:
            own = False
            at, value, length, _ = find_header(tail, tail_start[row], tail_start[row + 1], tail_count[row], name)
        text = data if own else tail
        id_length, topic_length, when = max(length, np.int64(0)), np.int64(-1), timestamp[row]
        if how == PARTS:
            id_length, topic_length, copied = split_provenance(text, value, length)
            if id_length < 0:
                id_length, topic_length = np.int64(0), np.int64(-1)
            else:
                when = copied
        same = groups > 0 and places[groups - 1, 2] == id_length and places[groups - 1, 3] == topic_length
        if same:
            size = id_length + 1 + topic_length if topic_length >= 0 else id_length
            last = data if places[groups - 1, 0] == 0 else tail
            same = same_bytes(text, value, last, places[groups - 1, 1], size)
        if not same:
            places[groups, 0] = 0 if own else 1
            places[groups, 1] = value
            places[groups, 2] = id_length
            places[groups, 3] = topic_length
            groups += 1
        group[row] = groups - 1
        time[row] = when
    return groups


@dataclass(frozen=True)
class LoopRule:
    """The rule. ``places`` are the names, or the cluster ids, of destination and source; ``rename`` has ``{topic}`` for the source
    topic's name and no other variable."""

    header: str
    style: str
    drop: str
    places: tuple[str, ...]
    same_topic: bool = False
    rename: str = "{topic}"
    overrides: tuple[Override, ...] = ()
    _packed: tuple[Bytes, Longs] = field(init=False, repr=False, compare=False)
    touches_records = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_packed", packed(self.places))

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records, some of them marked as dropped."""
        how = FOREIGN
        birth_topic = b""
        if self.drop == "returning":
            if not self.places:
                raise ValueError(f"the cluster ids are not known by which header {self.header} is judged")
            how = PARTS if self.style == PROVENANCE else WHOLE
            if self.same_topic:
                target = self.rename.replace("{topic}", records.topic)
                if how == WHOLE and target != records.topic:
                    return records  # the topic here counts as that of birth, and nothing comes to it
                birth_topic = target.encode()
        dropped = records.dropped.copy()
        columns = _header_columns(records)
        name = as_bytes(self.header.encode())
        if not leave_out(*columns, name, how, *self._packed, as_bytes(birth_topic), dropped):
            return records
        if self.overrides:
            self._bring_back(records, columns, name, dropped)
        return records.with_columns(dropped=dropped)

    def _bring_back(self, records: Records, columns: HeaderColumns, name: Bytes, dropped: Bytes) -> None:
        """Take out of ``dropped`` what an override matches."""
        rows = len(records)
        group, time = np.full(rows, -1, np.int64), np.zeros(rows, np.int64)
        places = np.empty((rows, 4), np.int64)
        how = PARTS if self.style == PROVENANCE else WHOLE
        groups = describe(*columns, name, how, records.dropped, dropped, records.timestamp, group, places, time)
        for number, (in_tail, start, id_length, topic_length) in enumerate(places[:groups].tolist()):
            text = records.tail if in_tail else records.data
            origin = text[start : start + id_length].tobytes().decode(errors="replace")
            topic = records.topic
            if topic_length >= 0:
                topic = (
                    text[start + id_length + 1 : start + id_length + 1 + topic_length]
                    .tobytes()
                    .decode(errors="replace")
                )
            for override in self.overrides:
                if override.matches(origin, topic):
                    since = -LONGEST_TIME if override.since is None else override.since
                    until = LONGEST_TIME if override.until is None else override.until
                    dropped[(group == number) & (time >= since) & (time <= until)] = 0


def _header_columns(records: Records) -> HeaderColumns:
    return (
        records.data,
        records.headers_start,
        records.headers_end,
        records.headers_count,
        records.tail,
        records.tail_start,
        records.tail_count,
    )


class _Link(Lists, Protocol):
    name: str
    source: str
    target: str
    rename: str
    origin: Origin | None
    loop: Loop | None


def build(link: _Link, ids: Identities) -> LoopRule | None:
    """The rule of a link that has one, unless it re-seeds a site."""
    if link.loop is None or link.origin is None or is_listed(link, "invert"):
        return None
    if link.origin.value == "site":
        places: tuple[str, ...] = (link.target, link.source)
    else:
        places = (*reversed(ids.target), *reversed(ids.source)) if ids.target else ()
    return LoopRule(
        link.origin.header,
        link.origin.value,
        link.loop.drop,
        places,
        link.loop.same_topic,
        fill(link.rename, topic="{topic}", source=link.source, target=link.target, link=link.name),
        tuple(link.loop.overrides),
    )
