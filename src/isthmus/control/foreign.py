"""Positions in topics that another tool has copied: there is no map, so the records themselves are looked at.

For each committed offset: the last record before it at the source (what the group has read last) has a timestamp; the
first record at the destination that is not older is at or before that record's copy; and where the copies carry their
source offset in a header, the header leads from there to the very place.

A log with transactions has markers, which carry the time of the copy and not of a record, and brokers find those, too. Where
one was found, the time is looked for among the records themselves, by halving; with room for records out of order.

Invariant: what cannot be found out is a reason, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import kafka.errors as kerrors

from isthmus.control.ends import Ends
from isthmus.control.rights import right
from isthmus.control.translation import Position, Search, Target
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import EARLIEST, LATEST, Partition, list_offsets
from isthmus.kafka.peek import Glimpse, Seen, peek

Place = tuple[Partition, int]
# Halving wants order, and times are not quite in order: a record may be so much older than one before it. Without markers
# nothing is halved, and order does not matter.
DISORDER_MS = 60_000


@dataclass(slots=True)
class Inquiry:
    """One offset of one source partition, on its way to a position."""

    source: Partition
    target: Partition
    offset: int
    bounds: Target
    read: Seen | None = None
    result: Position | str | None = None


async def positions(ends: Ends, inquiries: Iterable[Inquiry], header: str | None) -> dict[Place, Position | str]:
    """Where each offset is at the destination, or why that cannot be told. Offsets that are asked twice are looked for once."""
    unique = {(i.source, i.offset): i for i in inquiries}
    for some in _rounds(unique.values()):
        await _find_last_read(ends, some)
        await _by_timestamp(ends, [i for i in some if i.result is None])
        await _past_markers(ends, some)
        if header:
            await _by_header(ends, [i for i in some if isinstance(i.result, Position)], header)
    return {place: i.result if i.result is not None else "it was not found" for place, i in unique.items()}


def _rounds(inquiries: Iterable[Inquiry]) -> Iterator[list[Inquiry]]:
    """All of them, each partition at most once in each round: a request names a partition once."""
    by_partition: dict[Partition, list[Inquiry]] = {}
    for inquiry in inquiries:
        by_partition.setdefault(inquiry.source, []).append(inquiry)
    for number in range(max((len(them) for them in by_partition.values()), default=0)):
        yield [them[number] for them in by_partition.values() if number < len(them)]


async def _find_last_read(ends: Ends, inquiries: list[Inquiry]) -> None:
    """Look back from each offset, each time twice as far, until there is a record before it."""
    partitions = [i.source for i in inquiries]
    starts = await list_offsets(ends.source, dict.fromkeys(partitions, EARLIEST))
    stops = await list_offsets(ends.source, dict.fromkeys(partitions, LATEST))
    left = {i.source: i for i in inquiries}
    back, first_after = 1, dict[Partition, Seen]()
    while left:
        look: dict[Partition, int] = {}
        for key, i in list(left.items()):
            start, stop = starts[key], stops[key]
            if not isinstance(start, int) or not isinstance(stop, int):
                bad = start if not isinstance(start, int) else stop
                i.result = f"the source does not tell its log's ends: {_name(bad)}"
                del left[key]
            elif start >= stop:
                del left[key]  # an empty log: everything is read
            else:
                look[key] = min(max(start, i.offset - back), stop - 1)
        for key, answer in (await peek(ends.source, look)).items() if look else ():
            i = left[key]
            if not isinstance(answer, Glimpse):
                i.result = (
                    f"the source record before offset {i.offset} cannot be read: {_why(ends.source, key, answer)}"
                )
                del left[key]
                continue
            before = [r for r in answer.records if r.offset < i.offset]
            if before:
                i.read = before[-1]
            elif answer.records:
                first_after[key] = answer.records[0]
            if before or look[key] == starts[key]:
                # Where nothing before it is left, the first record that is left is the next to read.
                i.read = i.read or first_after.get(key)
                del left[key]
        back *= 2


async def _by_timestamp(ends: Ends, inquiries: list[Inquiry]) -> None:
    at: dict[Partition, int] = {}
    for i in inquiries:
        if i.read is None:
            # No record is left at the source: all that is at the destination was read, or deleted unread.
            i.result = Position(max(i.bounds.end, i.bounds.start), "timestamp", False, False)
        elif i.read.timestamp < 0:
            i.result = f"the source record at offset {i.read.offset} has no timestamp"
        else:
            at[i.target] = i.read.timestamp
    found = await list_offsets(ends.target, at) if at else {}
    for i in inquiries:
        offset = found.get(i.target)
        if i.result is not None or offset is None:
            continue
        if not isinstance(offset, int):
            i.result = f"the destination does not tell the offset of a timestamp: {_name(offset)}"
        elif offset < 0:  # nothing as new as that is copied yet
            i.result = Position(max(i.bounds.end, i.bounds.start), "timestamp", False, False)
        else:
            i.result = Position(max(offset, i.bounds.start), "timestamp", False, True)


async def _past_markers(ends: Ends, inquiries: list[Inquiry]) -> None:
    """Where the place that a timestamp led to holds no record as new as that, look for the time among records."""
    found = {i.target: i for i in inquiries if isinstance(i.result, Position) and i.result.copied}
    searches: dict[Partition, Search] = {}
    for key, answer in (await peek(ends.target, {k: _offset(i) for k, i in found.items()})).items() if found else ():
        i = found[key]
        first = (
            next((r for r in answer.records if r.offset >= _offset(i)), None) if isinstance(answer, Glimpse) else None
        )
        if i.read is not None and (first is None or first.timestamp < i.read.timestamp):
            bounds = Target(_offset(i), i.bounds.end)
            searches[key] = Search.by_time(i.read.timestamp - DISORDER_MS, bounds, (bounds.start + bounds.end) // 2)
    for key, position in (await _search(ends, searches)).items():
        found[key].result = position


async def _by_header(ends: Ends, inquiries: list[Inquiry], header: str) -> None:
    asked = {i.target: i for i in inquiries if i.bounds.start < i.bounds.end}
    searches = {k: Search.by_header(i.offset, header, i.bounds, _offset(i)) for k, i in asked.items()}
    for key, position in (await _search(ends, searches)).items():
        asked[key].result = position


async def _search(ends: Ends, searches: dict[Partition, Search]) -> dict[Partition, Position]:
    """Carry searches out side by side; what they found. One that cannot go on finds nothing."""
    found = {key: search.answer for key, search in searches.items() if search.answer is not None}
    left = {key: search for key, search in searches.items() if search.answer is None}
    while left:
        shown = await peek(ends.target, {key: search.at for key, search in left.items()})
        for key, search in list(left.items()):
            answer = shown[key]
            if isinstance(answer, Glimpse):
                search.show(answer.records, answer.end)
            if search.answer is not None:
                found[key] = search.answer
            if not isinstance(answer, Glimpse) or search.answer is not None or search.lost:
                del left[key]
    return found


def _offset(inquiry: Inquiry) -> int:
    assert isinstance(inquiry.result, Position)
    return inquiry.result.offset


def _why(cluster: Cluster, partition: Partition, error: type[Exception]) -> str:
    """An error's name, or the ACL that is missing."""
    if issubclass(error, kerrors.TopicAuthorizationFailedError):
        return f"not authorised; grant {right(cluster.site, 'READ', 'topic', partition[0])}"
    return _name(error)


def _name(error: type[Exception] | int) -> str:
    return error.__name__.removesuffix("Error") if isinstance(error, type) else str(error)
