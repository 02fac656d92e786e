"""Fetched bytes of one partition -> groups of records, in the order of the log.

    scan ─► gather ─┬─────────────────────────► a batch that passes unopened
                    └─► (inflate) ─► index ───► records

Invariant: groups follow each other without a gap: a group accounts for every offset from the last
group's ``next_offset`` up to its own. Bad data ends the groups with a fault, or is skipped and counted;
it never raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.errors import PartitionFault
from isthmus.records import faults, layout, scan
from isthmus.records.compression import MOST_INFLATED, InflateError, Inflater
from isthmus.records.gather import KEEP_CODEC, NOT_ALONE, gather
from isthmus.records.index import FINE, index
from isthmus.records.model import Bytes, Columns, Longs, Records, read_only

#: What several compressed batches may inflate to before their group is closed: as ``GROUP_BYTES``.
INFLATED_GROUP_BYTES = 4 << 20


@dataclass(slots=True)
class Group:
    """Neighbouring batches of the log, opened or not."""

    next_offset: int
    """Every offset below is accounted for once this group is dealt with."""
    records: Records | None = None
    """What the group holds; in memory that the next group writes over."""
    unopened: Longs | None = None
    """The scan's row of a batch that passes unopened."""
    codec: int = 0
    """How the source has compressed the group."""
    source_bytes: int = 0
    aborted: int = 0
    skipped: int = 0
    fault: PartitionFault | None = None
    """What came after this group and ended the reading."""


@dataclass(slots=True)
class Fetched:
    """What one Fetch response holds for one partition."""

    topic: str
    partition: int
    position: int
    data: Bytes
    aborted: Sequence[tuple[int, int]] = ()


class Reader:
    """Owns the memory that groups are read into. Not for several threads, nor two readings at once."""

    def __init__(self, skip_corrupt: bool, max_inflated: int = MOST_INFLATED) -> None:
        self._skip = skip_corrupt
        self._table = np.empty((scan.ROWS, scan.WIDTH), np.int64)
        self._columns = Columns()
        self._inflater = Inflater(most=max_inflated)

    def groups(
        self, fetched: Fetched, may_pass: bool = False, codec: int = KEEP_CODEC, max_bytes: int = 0
    ) -> Iterator[Group]:
        """Read every complete batch. A batch passes unopened only if ``may_pass``, and if it already has
        ``codec`` (or that is ``KEEP_CODEC``) and fits into ``max_bytes``."""
        scanner = scan.Scanner(fetched.data, fetched.position, fetched.aborted, self._table)
        next_offset = beyond_skipped = fetched.position
        while not scanner.done:
            table = scanner.turn()
            row = 0
            while row < len(table):
                if table[row, scan.VERDICT] >= scan.BAD_LENGTH:
                    last = row + 1
                    group = self._refuse(fetched, table[row], next_offset)
                    moved = next_offset > fetched.position
                    beyond_skipped = _offset_after_bad(table[row], beyond_skipped, moved)
                else:
                    last, batches, alone, capacity = gather(table, row, fetched.position, may_pass, codec, max_bytes)
                    if alone != NOT_ALONE:
                        group = Group(next_offset, unopened=table[alone])
                    elif batches:
                        group, last = self._open(fetched, table, row, last, capacity)
                    else:
                        group = Group(next_offset)
                    _account(group, table[row:last], next_offset)
                yield group
                if group.fault is not None:
                    return
                if group.next_offset > next_offset:
                    next_offset = beyond_skipped = group.next_offset
                row = last
        if beyond_skipped > next_offset:  # the last batch was skipped: no other says where to go on
            yield Group(beyond_skipped)

    def _refuse(self, fetched: Fetched, row: Longs, next_offset: int) -> Group:
        """Skip a batch that the scan found bad, or stop at it."""
        if self._skip and row[scan.VERDICT] != scan.BAD_LENGTH:
            return Group(next_offset, skipped=1)
        return Group(next_offset, fault=faults.bad_batch(fetched.topic, fetched.partition, fetched.data, row))

    def _open(self, fetched: Fetched, table: Longs, first: int, last: int, capacity: int) -> tuple[Group, int]:
        """The records of a group of batches with data, and the row after them."""
        group = Group(next_offset=0)
        batches, data = table[first:last], fetched.data
        has_data = int((batches[:, scan.VERDICT] == scan.DATA).argmax())
        group.codec = int(batches[has_data, scan.ATTRIBUTES]) & layout.CODEC_BITS
        if group.codec:
            batches, capacity = self._inflate(fetched, batches, group)
            data = read_only(self._inflater.inflated())
        self._columns.reserve(capacity)
        rows = batch = 0
        end = len(batches)
        while batch < end:
            rows, batch, code, which = index(
                data, batches, batch, end, fetched.position, rows, self._columns.longs, self._columns.ints
            )
            if code == FINE:
                continue
            if self._skip:
                group.skipped += 1
                batch += 1
                continue
            row = batches[batch]
            group.fault = faults.bad_record(
                fetched.topic,
                fetched.partition,
                int(row[scan.BASE_OFFSET]),
                int(row[scan.COUNT]),
                which,
                code,
            )
            end = batch
        group.records = self._columns.records(rows, data, fetched.topic, fetched.partition)
        return group, first + end

    def _inflate(self, fetched: Fetched, batches: Longs, group: Group) -> tuple[Longs, int]:
        """Inflate batches: their rows with places in the inflated bytes, and how many records these can
        hold. Fewer rows come back if there is enough for one group, or if a batch ends it."""
        batches = batches.copy()
        inflater = self._inflater
        inflater.clear()
        capacity = 0
        for row, fields in enumerate(batches.tolist()):
            if fields[scan.VERDICT] != scan.DATA:
                continue
            compressed = fetched.data[fields[scan.START] : fields[scan.END]]
            try:
                start, end = inflater.inflate(group.codec, compressed)
            except InflateError as error:
                if self._skip:
                    group.skipped += 1
                    batches[row, scan.VERDICT] = scan.UNREADABLE
                    continue
                group.fault = faults.bad_compression(
                    fetched.topic, fetched.partition, fields[scan.BASE_OFFSET], group.codec, str(error)
                )
                return batches[:row], capacity
            batches[row, scan.START], batches[row, scan.END] = start, end
            capacity += min(fields[scan.COUNT], (end - start) // layout.LEAST_RECORD)
            if inflater.used >= INFLATED_GROUP_BYTES:
                return batches[: row + 1], capacity
        return batches, capacity


def _account(group: Group, batches: Longs, next_offset: int) -> None:
    """What the rows that a group covers add up to."""
    group.next_offset = next_offset
    if not len(batches):
        return
    group.next_offset = max(next_offset, int(batches[-1, scan.LAST_OFFSET]) + 1)
    group.source_bytes = int(batches[-1, scan.END] - batches[0, scan.AT])
    group.aborted = int(batches[batches[:, scan.VERDICT] == scan.ABORTED, scan.COUNT].sum())


def _offset_after_bad(row: Longs, next_offset: int, moved: bool) -> int:
    """Where to go on after a batch that cannot be trusted, if no good batch follows: further, or Fetch would
    return it for ever, but not so far as to jump over a good record.

    Its offsets may be damaged too, so they are believed only where they follow on and the number of records
    says the same. Else we move by one offset, and the next Fetch says more.
    """
    base_offset, last_offset = int(row[scan.BASE_OFFSET]), int(row[scan.LAST_OFFSET])
    if moved and base_offset < next_offset and row[scan.VERDICT] == scan.BAD_FIELDS:
        return next_offset  # out of order: it holds nothing of what comes next
    agrees = last_offset - base_offset + 1 == int(row[scan.COUNT])
    if agrees and base_offset <= next_offset <= last_offset < np.iinfo(np.int64).max:
        return last_offset + 1
    return next_offset + 1
