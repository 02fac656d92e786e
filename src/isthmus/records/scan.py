"""Fetched bytes -> a table with one row for each batch, and a verdict on each.

Invariant: the scan reads headers only, never past the end of the data, and visits each batch once. A
row's bytes lie inside the data unless its verdict is ``BAD_LENGTH``, which ends the scan: nothing
after a length that cannot be trusted can be found.

Aborted transactions are left out as a consumer does it: from the first offset that the broker names
for a producer until that producer's abort marker, its transactional batches are ``ABORTED``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from isthmus.records import layout
from isthmus.records.checksum import SMALL, crc32c, crc32c_small
from isthmus.records.kernels_cache import READ_BYTES, helper, kernel
from isthmus.records.wire import read_int16, read_int32, read_int64, read_uint32, read_varint

# Columns of the table.
AT = 0  # where the batch starts
START = 1  # where its records start
END = 2
BASE_OFFSET = 3
LAST_OFFSET = 4
COUNT = 5
ATTRIBUTES = 6
BASE_TIMESTAMP = 7
MAX_TIMESTAMP = 8
PRODUCER_ID = 9
CHECKSUM = 10  # as the batch says it
VERDICT = 11
WIDTH = 12

# Verdicts. From BAD_LENGTH on, the batch cannot be copied.
DATA = 0
CONTROL = 1
ABORTED = 2
NOTHING = 3  # no records, or all before the position
UNREADABLE = 4  # does not inflate, and is to be skipped
UNCHECKED = 5  # not judged yet: its checksum is left to ``check_large``
BAD_LENGTH = 6
BAD_CHECKSUM = 7
BAD_FIELDS = 8
OLD_FORMAT = 9
UNKNOWN_FORMAT = 10

_NO_ENTRIES = np.empty(0, np.int64)

#: Rows of the table. More batches than that are scanned in turns, so memory stays bounded.
ROWS = 8192


@helper
def _is_abort_marker(data: Any, start: Any, end: Any) -> Any:
    """Whether the first record of a control batch says abort (its key is version i16, type i16)."""
    _, at = read_varint(data, start, end)  # the record's length
    if at < 0:
        return False
    _, at = read_varint(data, at + 1, end)  # timestamp, after the attributes byte
    if at < 0:
        return False
    _, at = read_varint(data, at, end)  # offset
    if at < 0:
        return False
    key_length, at = read_varint(data, at, end)
    if at < 0 or key_length < 4 or at + 4 > end:
        return False
    return read_int16(data, at + 2) == 0


@kernel(f"UniTuple(int64, 4)({READ_BYTES}, int64, int64[:, ::1])")
def locate(data: Any, at: int, table: Any) -> tuple[int, int, int, int]:
    """Fill ``table`` with the batches from ``at`` on.

    Small batches have their checksum checked here, large ones are left ``UNCHECKED``. Returns how many rows
    there are, where to go on, whether that is all, and how many rows are unchecked.
    """
    size = len(data)
    rows = unchecked = 0
    while at + layout.CRC <= size:
        if rows == len(table):
            return rows, at, 0, unchecked
        row = table[rows]
        length = read_int32(data, at + layout.LENGTH)
        magic = data[at + layout.MAGIC]
        end = at + layout.BEFORE_LENGTH_COUNTS + length
        old = magic < 2
        least = layout.LEAST_OLD_LENGTH if old else layout.LEAST_LENGTH
        sound = least <= length <= layout.ABSURD_LENGTH
        if sound and end > size:
            break
        rows += 1
        row[:] = 0
        row[AT] = at
        row[END] = end
        row[BASE_OFFSET] = read_int64(data, at + layout.BASE_OFFSET)
        row[LAST_OFFSET] = row[BASE_OFFSET]
        if not sound:
            row[VERDICT] = BAD_LENGTH
            break
        if magic != 2:
            row[VERDICT] = OLD_FORMAT if old else UNKNOWN_FORMAT
            row[COUNT] = 1 if old else 0
            at = end
            continue
        row[START] = at + layout.RECORDS
        row[LAST_OFFSET] += read_int32(data, at + layout.LAST_OFFSET_DELTA)
        row[COUNT] = read_int32(data, at + layout.COUNT)
        row[ATTRIBUTES] = read_int16(data, at + layout.ATTRIBUTES)
        row[BASE_TIMESTAMP] = read_int64(data, at + layout.BASE_TIMESTAMP)
        row[MAX_TIMESTAMP] = read_int64(data, at + layout.MAX_TIMESTAMP)
        row[PRODUCER_ID] = read_int64(data, at + layout.PRODUCER_ID)
        row[CHECKSUM] = read_uint32(data, at + layout.CRC)
        if end - at >= SMALL:
            row[VERDICT] = UNCHECKED
            unchecked += 1
        elif crc32c_small(data, at + layout.ATTRIBUTES, end) != row[CHECKSUM]:
            row[VERDICT] = BAD_CHECKSUM
        else:
            row[VERDICT] = DATA
        at = end
    return rows, at, 1, unchecked


def check_large(data: npt.NDArray[np.uint8], table: npt.NDArray[np.int64]) -> None:
    """Turn each ``UNCHECKED`` into ``DATA`` or ``BAD_CHECKSUM``."""
    rows = np.flatnonzero(table[:, VERDICT] == UNCHECKED)
    # Plain lists: reading numbers one by one out of an array would take longer than the checksums.
    starts = (table[rows, AT] + layout.ATTRIBUTES).tolist()
    places = zip(starts, table[rows, END].tolist(), table[rows, CHECKSUM].tolist(), strict=True)
    table[rows, VERDICT] = [
        DATA if crc32c(data[start:end]) == expected else BAD_CHECKSUM for start, end, expected in places
    ]


@kernel(
    f"UniTuple(int64, 2)({READ_BYTES}, int64[:, ::1], int64, int64, int64,"
    " int64[::1], int64[::1], int64[::1], uint8[::1])"
)
def judge(
    data: Any,
    table: Any,
    position: int,
    next_offset: int,
    next_aborted: int,
    aborted_first: Any,
    aborted_slot: Any,
    producers: Any,
    active: Any,
) -> tuple[int, int]:
    """Give each row whose checksum holds its verdict; the next values of the two cursors.

    ``aborted_first`` is ascending; ``aborted_slot`` says which of ``producers`` (ascending, distinct)
    each one belongs to; ``active`` is the set of producers inside an aborted transaction.
    """
    for index in range(len(table)):
        row = table[index]
        if row[VERDICT] != DATA:
            continue
        base_offset = row[BASE_OFFSET]
        last_offset = row[LAST_OFFSET]
        attributes = row[ATTRIBUTES]
        if (
            base_offset < next_offset
            or last_offset < base_offset  # also when the sum ran over
            or last_offset == np.int64(0x7FFFFFFFFFFFFFFF)  # the next offset must be a number
            or row[COUNT] < 0
            or row[COUNT] > last_offset - base_offset + 1
            or attributes & layout.CODEC_BITS >= len(layout.CODECS)
        ):
            row[VERDICT] = BAD_FIELDS
            continue
        next_offset = last_offset + 1

        slot = -1
        if len(producers) > 0:
            while next_aborted < len(aborted_first) and aborted_first[next_aborted] <= last_offset:
                active[aborted_slot[next_aborted]] = 1
                next_aborted += 1
            found = np.searchsorted(producers, row[PRODUCER_ID])
            if found < len(producers) and producers[found] == row[PRODUCER_ID]:
                slot = found
        if attributes & layout.CONTROL_BIT:
            row[VERDICT] = CONTROL
            if slot >= 0 and _is_abort_marker(data, row[START], row[END]):
                active[slot] = 0
        elif slot >= 0 and active[slot] and attributes & layout.TRANSACTIONAL_BIT:
            row[VERDICT] = ABORTED
        elif last_offset < position or (row[COUNT] == 0 and row[START] == row[END]):
            row[VERDICT] = NOTHING
    return next_offset, next_aborted


class Scanner:
    """Scans one partition's fetched bytes, a table full of batches a turn.

    The table is the caller's and is written over by each turn.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        position: int,
        aborted: Sequence[tuple[int, int]],
        table: npt.NDArray[np.int64],
    ) -> None:
        self.done = False
        self._data = data
        self._position = position
        self._table = table
        self._at = self._next_offset = self._next_aborted = 0
        self._first = self._slots = self._producers = _NO_ENTRIES
        if aborted:
            entries = np.array(sorted(aborted, key=lambda entry: entry[1]), np.int64)
            self._producers, slots = np.unique(entries[:, 0], return_inverse=True)
            self._first = np.ascontiguousarray(entries[:, 1])
            self._slots = slots.astype(np.int64)
        self._active = np.zeros(len(self._producers), np.uint8)

    def turn(self) -> npt.NDArray[np.int64]:
        """The rows of the next batches."""
        rows, self._at, done, unchecked = locate(self._data, self._at, self._table)
        self.done = bool(done)
        found = self._table[:rows]
        if unchecked:
            check_large(self._data, found)
        self._next_offset, self._next_aborted = judge(
            self._data,
            found,
            self._position,
            self._next_offset,
            self._next_aborted,
            self._first,
            self._slots,
            self._producers,
            self._active,
        )
        return found
