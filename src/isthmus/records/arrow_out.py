"""Records -> Arrow, by two kernels: one measures, one fills.

Invariant: the batch owns its memory, so it outlives the columns it was made from. Records that a rule
has dropped are not in it; headers that rules have added are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from isthmus.records.arrow_schema import HEADER, SCHEMA, schema_of
from isthmus.records.kernels_cache import READ_BYTES, helper, kernel
from isthmus.records.model import Records
from isthmus.records.wire import copy_bytes, read_varint

# What ``measure`` counts.
_ROWS, _KEY_BYTES, _VALUE_BYTES, _HEADERS, _HEADER_KEY_BYTES, _HEADER_VALUE_BYTES, _SIZES = range(7)


@helper
def _measure_headers(data: Any, at: Any, end: Any, sizes: Any) -> None:
    while at < end:
        length, at = read_varint(data, at, end)
        at += length
        sizes[_HEADER_KEY_BYTES] += length
        length, at = read_varint(data, at, end)
        if length > 0:
            at += length
            sizes[_HEADER_VALUE_BYTES] += length
        sizes[_HEADERS] += 1


@kernel(
    f"void({READ_BYTES}, int32[::1], int32[::1], int32[::1], int32[::1],"
    f" uint8[::1], {READ_BYTES}, int64[::1], int64[::1])"
)
def measure(
    data: Any,
    key_length: Any,
    value_length: Any,
    headers_start: Any,
    headers_end: Any,
    dropped: Any,
    tail: Any,
    tail_start: Any,
    sizes: Any,
) -> None:
    """How much memory the Arrow columns need."""
    for row in range(len(key_length)):
        if dropped[row]:
            continue
        sizes[_ROWS] += 1
        sizes[_KEY_BYTES] += max(np.int64(key_length[row]), 0)
        sizes[_VALUE_BYTES] += max(np.int64(value_length[row]), 0)
        _measure_headers(data, np.int64(headers_start[row]), np.int64(headers_end[row]), sizes)
        _measure_headers(tail, np.int64(tail_start[row]), np.int64(tail_start[row + 1]), sizes)


@helper
def _put(data: Any, start: Any, length: Any, slot: Any, valid: Any, starts: Any, out: Any) -> None:
    """Slot ``slot`` of a binary column, whose slots before are filled."""
    at = np.int64(starts[slot])
    valid[slot] = length >= 0
    if length > 0:
        copy_bytes(out, at, data, start, length)
        at += length
    starts[slot + 1] = at


@helper
def _put_headers(
    data: Any,
    at: Any,
    end: Any,
    slot: Any,
    valid: Any,
    key_starts: Any,
    keys: Any,
    value_starts: Any,
    values: Any,
) -> Any:
    while at < end:
        length, at = read_varint(data, at, end)
        # Keys are never null, so ``valid`` is the values': written last.
        _put(data, at, length, slot, valid, key_starts, keys)
        at += length
        length, at = read_varint(data, at, end)
        _put(data, at, length, slot, valid, value_starts, values)
        at += max(length, 0)
        slot += 1
    return slot


@kernel(
    f"void({READ_BYTES}, int64[::1], int64[::1], int32[::1], int32[::1], int32[::1],"
    f" int32[::1], int32[::1], int32[::1], uint8[::1], {READ_BYTES}, int64[::1],"
    " int64[::1], int64[::1], uint8[::1], int32[::1], uint8[::1], uint8[::1], int32[::1], uint8[::1],"
    " int32[::1], uint8[::1], int32[::1], uint8[::1], int32[::1], uint8[::1])"
)
def fill(
    data: Any,
    offset: Any,
    timestamp: Any,
    key_start: Any,
    key_length: Any,
    value_start: Any,
    value_length: Any,
    headers_start: Any,
    headers_end: Any,
    dropped: Any,
    tail: Any,
    tail_start: Any,
    offsets: Any,
    timestamps: Any,
    key_valid: Any,
    key_starts: Any,
    keys: Any,
    value_valid: Any,
    value_starts: Any,
    values: Any,
    list_starts: Any,
    header_valid: Any,
    header_key_starts: Any,
    header_keys: Any,
    header_value_starts: Any,
    header_values: Any,
) -> None:
    """Fill Arrow columns that ``measure`` has sized."""
    slot = 0
    header = np.int64(0)
    for row in range(len(offset)):
        if dropped[row]:
            continue
        offsets[slot] = offset[row]
        timestamps[slot] = timestamp[row]
        _put(data, np.int64(key_start[row]), np.int64(key_length[row]), slot, key_valid, key_starts, keys)
        _put(
            data,
            np.int64(value_start[row]),
            np.int64(value_length[row]),
            slot,
            value_valid,
            value_starts,
            values,
        )
        header = _put_headers(
            data,
            np.int64(headers_start[row]),
            np.int64(headers_end[row]),
            header,
            header_valid,
            header_key_starts,
            header_keys,
            header_value_starts,
            header_values,
        )
        header = _put_headers(
            tail,
            np.int64(tail_start[row]),
            np.int64(tail_start[row + 1]),
            header,
            header_valid,
            header_key_starts,
            header_keys,
            header_value_starts,
            header_values,
        )
        slot += 1
        list_starts[slot] = header


class _Binary:
    """Memory for a binary column."""

    def __init__(self, slots: int, size: int) -> None:
        self.valid = np.empty(slots, np.uint8)
        self.starts = np.zeros(slots + 1, np.int32)
        self.data = np.empty(size, np.uint8)

    def array(self, nullable: bool = True) -> Any:
        bits = pa.py_buffer(np.packbits(self.valid, bitorder="little")) if nullable else None
        buffers = [bits, pa.py_buffer(self.starts), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(self.starts) - 1, buffers)


def to_arrow(records: Records) -> Any:
    """Records that no rule has dropped, as an Arrow record batch that owns its memory."""
    sizes = np.zeros(_SIZES, np.int64)
    measure(
        records.data,
        records.key_length,
        records.value_length,
        records.headers_start,
        records.headers_end,
        records.dropped,
        records.tail,
        records.tail_start,
        sizes,
    )
    if sizes.max() > np.iinfo(np.int32).max:
        raise ValueError("these records are too large for one Arrow batch")
    rows, headers = int(sizes[_ROWS]), int(sizes[_HEADERS])
    offsets, timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
    keys, values = _Binary(rows, int(sizes[_KEY_BYTES])), _Binary(rows, int(sizes[_VALUE_BYTES]))
    list_starts = np.zeros(rows + 1, np.int32)
    header_keys = _Binary(headers, int(sizes[_HEADER_KEY_BYTES]))
    header_values = _Binary(headers, int(sizes[_HEADER_VALUE_BYTES]))
    fill(
        records.data,
        records.offset,
        records.timestamp,
        records.key_start,
        records.key_length,
        records.value_start,
        records.value_length,
        records.headers_start,
        records.headers_end,
        records.dropped,
        records.tail,
        records.tail_start,
        offsets,
        timestamps,
        keys.valid,
        keys.starts,
        keys.data,
        values.valid,
        values.starts,
        values.data,
        list_starts,
        header_values.valid,
        header_keys.starts,
        header_keys.data,
        header_values.starts,
        header_values.data,
    )
    pairs = pa.StructArray.from_buffers(
        HEADER, headers, [None], children=[header_keys.array(nullable=False), header_values.array()]
    )
    lists = pa.Array.from_buffers(
        SCHEMA.field("headers").type, rows, [None, pa.py_buffer(list_starts)], children=[pairs]
    )
    columns = [pa.array(offsets), pa.array(timestamps), keys.array(), values.array(), lists]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(records.topic, records.partition))
