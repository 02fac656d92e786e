"""Records regions -> columns: the only kernel that reads records.

Invariant: nothing is believed. Every number is read inside the record, every record inside its
region, and each way in which a region can be wrong has a code; a region is either indexed whole or
not at all. What the columns say afterwards can be trusted without looking at the bytes again.
"""

from __future__ import annotations

from typing import Any

from isthmus.records import layout, scan
from isthmus.records.kernels_cache import READ_BYTES, kernel
from isthmus.records.wire import read_varint

# What may be wrong with a region; WHAT_IS_WRONG says it in words.
FINE = 0
COUNT_TOO_LARGE = 1
LENGTH_WRONG = 2
NUMBER_OVERRUNS = 3
OFFSET_WRONG = 4
KEY_OVERRUNS = 5
VALUE_OVERRUNS = 6
HEADER_COUNT_WRONG = 7
HEADER_OVERRUNS = 8
RECORD_TRAILS = 9
REGION_TRAILS = 10

WHAT_IS_WRONG = {
    COUNT_TOO_LARGE: "the batch says it holds more records than its bytes can hold",
    LENGTH_WRONG: "the record's length is negative, or ends it after the batch",
    NUMBER_OVERRUNS: "a number of the record runs past the record's end",
    OFFSET_WRONG: "the record's offset does not ascend, or is outside of the batch's offsets",
    KEY_OVERRUNS: "the key's length is below -1, or ends it after the record",
    VALUE_OVERRUNS: "the value's length is below -1, or ends it after the record",
    HEADER_COUNT_WRONG: "the number of headers is negative, or more than the record's bytes can hold",
    HEADER_OVERRUNS: "a header's length is negative, or ends it after the record",
    RECORD_TRAILS: "bytes are left over at the end of the record",
    REGION_TRAILS: "bytes are left over after the batch's last record",
}


@kernel(f"UniTuple(int64, 4)({READ_BYTES}, int64[:, ::1], int64, int64, int64, int64, int64[:, ::1], int32[:, ::1])")
def index(
    data: Any, table: Any, first: int, last: int, position: int, row: int, longs: Any, ints: Any
) -> tuple[int, int, int, int]:
    """Append the records of batches ``first`` to ``last`` (exclusive) from ``row`` on.

    Only rows of the table whose verdict is ``DATA`` are read; records before ``position`` are left out.
    Returns the rows there are now, the batch that stopped us (or ``last``), a code, and which record of
    that batch it was. Rows of the batch that stopped us are not counted.
    """
    offsets, timestamps = longs[0], longs[1]
    key_starts, key_lengths, value_starts, value_lengths = ints[0], ints[1], ints[2], ints[3]
    headers_starts, headers_ends, headers_counts = ints[4], ints[5], ints[6]
    capacity = len(offsets)
    for batch in range(first, last):
        if table[batch, scan.VERDICT] != scan.DATA:
            continue
        at = table[batch, scan.START]
        end = table[batch, scan.END]
        count = table[batch, scan.COUNT]
        base_offset = table[batch, scan.BASE_OFFSET]
        last_offset = table[batch, scan.LAST_OFFSET]
        base_timestamp = table[batch, scan.BASE_TIMESTAMP]
        by_log = table[batch, scan.ATTRIBUTES] & layout.LOG_APPEND_TIME_BIT
        max_timestamp = table[batch, scan.MAX_TIMESTAMP]
        kept = row
        before = base_offset - 1
        if count * layout.LEAST_RECORD > end - at or kept + count > capacity:
            return row, batch, COUNT_TOO_LARGE, 0
        for which in range(count):
            length, at = read_varint(data, at, end)
            if at < 0:
                return row, batch, NUMBER_OVERRUNS, which
            if length < layout.LEAST_RECORD - 1 or length > end - at:
                return row, batch, LENGTH_WRONG, which
            record_end = at + length
            timestamp_delta, at = read_varint(data, at + 1, record_end)  # after the attributes byte
            if at < 0:
                return row, batch, NUMBER_OVERRUNS, which
            offset_delta, at = read_varint(data, at, record_end)
            if at < 0:
                return row, batch, NUMBER_OVERRUNS, which
            if offset_delta < 0 or offset_delta > last_offset - base_offset:
                return row, batch, OFFSET_WRONG, which
            offset = base_offset + offset_delta
            if offset <= before:
                return row, batch, OFFSET_WRONG, which
            before = offset

            key_length, at = read_varint(data, at, record_end)
            if at < 0:
                return row, batch, NUMBER_OVERRUNS, which
            if key_length < -1 or key_length > record_end - at:
                return row, batch, KEY_OVERRUNS, which
            key_start = at
            if key_length > 0:
                at += key_length
            value_length, at = read_varint(data, at, record_end)
            if at < 0:
                return row, batch, NUMBER_OVERRUNS, which
            if value_length < -1 or value_length > record_end - at:
                return row, batch, VALUE_OVERRUNS, which
            value_start = at
            if value_length > 0:
                at += value_length

            headers, at = read_varint(data, at, record_end)
            if at < 0:
                return row, batch, NUMBER_OVERRUNS, which
            if headers < 0 or headers > (record_end - at) >> 1:  # a header takes two bytes at least
                return row, batch, HEADER_COUNT_WRONG, which
            headers_start = at
            for _ in range(headers):
                header_length, at = read_varint(data, at, record_end)
                if at < 0:
                    return row, batch, NUMBER_OVERRUNS, which
                if header_length < 0 or header_length > record_end - at:
                    return row, batch, HEADER_OVERRUNS, which
                at += header_length
                header_length, at = read_varint(data, at, record_end)
                if at < 0:
                    return row, batch, NUMBER_OVERRUNS, which
                if header_length < -1 or header_length > record_end - at:
                    return row, batch, HEADER_OVERRUNS, which
                if header_length > 0:
                    at += header_length
            if at != record_end:
                return row, batch, RECORD_TRAILS, which

            if offset >= position:
                offsets[kept] = offset
                timestamps[kept] = max_timestamp if by_log else base_timestamp + timestamp_delta
                key_starts[kept] = key_start
                key_lengths[kept] = key_length
                value_starts[kept] = value_start
                value_lengths[kept] = value_length
                headers_starts[kept] = headers_start
                headers_ends[kept] = record_end
                headers_counts[kept] = headers
                kept += 1
        if at != end:
            return row, batch, REGION_TRAILS, count
        row = kept
    return row, last, FINE, 0
