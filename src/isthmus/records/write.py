"""Columns -> batches, as large as they may be.

Invariant: what is written is canonical (shortest numbers, attributes 0, offset deltas 0, 1, 2, ...) and
never longer than the limit; a record is written whole or not at all, and only a record that does not
fit even alone stops the writing. Keys, values and headers are copied byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.errors import RecordTooLarge
from isthmus.records import faults, layout
from isthmus.records.compression import deflate, deflated_bound
from isthmus.records.kernels_cache import READ_BYTES, kernel
from isthmus.records.model import COLUMN_NAMES, Bytes, Records
from isthmus.records.outgoing import Outgoing
from isthmus.records.wire import copy_bytes, varint_size, write_varint

#: Uncompressed bytes in an outgoing batch. Near the brokers' default limit of 1 MiB, and below it by
#: enough that a codec which makes bytes longer still fits.
TARGET_BYTES = 950_000

_ANY_NUMBER = 1 << 40

# What ``write_region`` reports.
NEXT_ROW = 0
END = 1
COUNT = 2
BASE_TIMESTAMP = 3
MAX_TIMESTAMP = 4
RUNS = 5
NEEDED = 6  # the size that the record at NEXT_ROW would have taken
REPORT = 7


@kernel(
    "void(int64, int64, int64, uint8[::1], int64[:, ::1], int64[::1],"
    f" {READ_BYTES}, int64[::1], int64[::1], int32[::1], int32[::1], int32[::1],"
    " int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1],"
    f" {READ_BYTES}, int64[::1], int32[::1])"
)
def write_region(
    row: Any,
    most: Any,
    at: Any,
    out: Any,
    runs: Any,
    report: Any,
    data: Any,
    offset: Any,
    timestamp: Any,
    key_start: Any,
    key_length: Any,
    value_start: Any,
    value_length: Any,
    headers_start: Any,
    headers_end: Any,
    headers_count: Any,
    dropped: Any,
    tail: Any,
    tail_start: Any,
    tail_count: Any,
) -> None:
    """Write records from ``row`` on into ``out[at:]`` until it is full or ``most`` are written.

    ``runs`` gets (first source offset, length) of consecutive offsets, ``report`` the outcome.
    """
    limit = len(out)
    count = 0
    run = -1
    expected = np.int64(-1)
    base_timestamp = np.int64(0)
    max_timestamp = np.int64(0)
    needed = 0
    while row < len(offset) and count < most:
        if dropped[row] != 0:
            row += 1
            continue
        now = timestamp[row]
        if count == 0:
            base_timestamp = now
            max_timestamp = now
        key: Any = np.int64(key_length[row])
        value: Any = np.int64(value_length[row])
        headers: Any = np.int64(headers_count[row]) + tail_count[row]
        headers_size: Any = np.int64(headers_end[row]) - headers_start[row]
        tail_size: Any = np.int64(tail_start[row + 1]) - tail_start[row]
        length = (
            1
            + varint_size(now - base_timestamp)
            + varint_size(count)
            + varint_size(key)
            + max(key, 0)
            + varint_size(value)
            + max(value, 0)
            + varint_size(headers)
            + headers_size
            + tail_size
        )
        needed = varint_size(length) + length
        if needed > limit - at:
            break
        at = write_varint(out, at, length)
        out[at] = 0
        at = write_varint(out, at + 1, now - base_timestamp)
        at = write_varint(out, at, count)
        at = write_varint(out, at, key)
        if key > 0:
            copy_bytes(out, at, data, key_start[row], key)
            at += key
        at = write_varint(out, at, value)
        if value > 0:
            copy_bytes(out, at, data, value_start[row], value)
            at += value
        at = write_varint(out, at, headers)
        if headers_size > 0:
            copy_bytes(out, at, data, headers_start[row], headers_size)
            at += headers_size
        if tail_size > 0:
            copy_bytes(out, at, tail, tail_start[row], tail_size)
            at += tail_size

        max_timestamp = max(max_timestamp, now)
        if offset[row] == expected:
            runs[run, 1] += 1
        else:
            run += 1
            runs[run, 0] = offset[row]
            runs[run, 1] = 1
        expected = offset[row] + 1
        count += 1
        row += 1
    # Records that rules dropped right after the last one belong to this batch: they are dealt with.
    while row < len(offset) and dropped[row] != 0:
        row += 1
    report[NEXT_ROW] = row
    report[END] = at
    report[COUNT] = count
    report[BASE_TIMESTAMP] = base_timestamp
    report[MAX_TIMESTAMP] = max_timestamp
    report[RUNS] = run + 1
    report[NEEDED] = needed


_HEADER = struct.Struct(">qiibIhiqqqhii")


def write_header(payload: Any, codec: int, count: int, base_timestamp: int, max_timestamp: int) -> None:
    """The header of a batch that fills ``payload``, but for the producer's fields and the checksum."""
    _HEADER.pack_into(
        payload,
        0,
        0,
        len(payload) - layout.BEFORE_LENGTH_COUNTS,
        -1,
        2,
        0,
        codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        -1,
        count,
    )


class Writer:
    """Owns the memory that batches are put together in. Not for several threads."""

    def __init__(self) -> None:
        self._batch = np.empty(TARGET_BYTES, np.uint8)
        self._deflated = np.empty(0, np.uint8)
        self._runs = np.empty((0, 2), np.int64)
        self._report = np.empty(REPORT, np.int64)

    def batches(
        self, records: Records, codec: int, max_bytes: int, next_offset: int
    ) -> Iterator[Outgoing | RecordTooLarge]:
        """Write records as batches of at most ``max_bytes``; ``next_offset`` is that of the last one.

        A record that does not fit ends them.
        """
        columns = [getattr(records, name) for name in COLUMN_NAMES]
        if len(self._runs) < len(records):
            self._runs = np.empty((len(records), 2), np.int64)
        limit = min(max_bytes, TARGET_BYTES)
        most = _ANY_NUMBER
        row = 0
        room, wanted = limit, most
        while row < len(records):
            self._reserve(room)
            write_region(row, wanted, layout.RECORDS, self._batch[:room], self._runs, self._report, *columns)
            next_row, end, count, base_timestamp, max_timestamp, runs, needed = self._report.tolist()
            if count == 0:
                row = next_row
                if row == len(records):  # rules dropped what was left
                    return
                # One record is larger than the target: it gets a batch of its own, if that may fit.
                room, wanted = layout.RECORDS + needed, 1
                if room > max_bytes and not codec:
                    yield faults.too_large(records, int(records.offset[row]), room, max_bytes)
                    return
                continue
            region, region_codec = self._batch[layout.RECORDS : end], 0
            if codec:
                deflated = self._deflate(codec, region)
                size = layout.RECORDS + len(deflated)
                if size <= max_bytes:
                    region, region_codec = deflated, codec
                elif count > 1:
                    # The tenth less makes up for records that compress worse than their neighbours.
                    most = max(1, min(count // 2, int(0.9 * count * max_bytes / size)))
                    wanted = most
                    continue
                elif end > max_bytes:
                    offset = int(self._runs[0, 0])
                    yield faults.too_large(records, offset, min(size, end), max_bytes)
                    return
                # else: compression made one record longer than the limit; it fits as it is
            payload = np.empty(layout.RECORDS + len(region), np.uint8)
            payload[layout.RECORDS :] = region
            write_header(payload, region_codec, count, base_timestamp, max_timestamp)
            row = next_row
            room, wanted = limit, most
            after = int(records.offset[row]) if row < len(records) else next_offset
            yield Outgoing(payload, count, self._runs[:runs].copy(), after)

    def _reserve(self, room: int) -> None:
        """Make room for a batch; memory that only a giant record needed is given back."""
        if not room <= len(self._batch) <= max(room, 16 * TARGET_BYTES):
            self._batch = np.empty(max(room, TARGET_BYTES), np.uint8)
            self._deflated = np.empty(0, np.uint8)

    def _deflate(self, codec: int, region: Bytes) -> Bytes:
        bound = deflated_bound(len(region))
        if bound > len(self._deflated):
            self._deflated = np.empty(bound, np.uint8)
        return self._deflated[: deflate(codec, region, self._deflated[:bound])]
