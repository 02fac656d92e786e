"""Arrow -> records, after checks.

Invariant: an Arrow batch from a user's function is believed only after it was checked: columns and types,
no nulls where none may be, buffers that hold what they say, offsets that went in, each at most once and in
order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from isthmus.records.arrow_schema import SCHEMA
from isthmus.records.kernels_cache import READ_BYTES, READ_INTS, helper, kernel
from isthmus.records.model import NO_BYTES, Bytes, Ints, Longs, Records, read_only
from isthmus.records.wire import copy_bytes, write_varint

#: The longest varint of a length.
_LONGEST_NUMBER = 5


class NotRecordsError(ValueError):
    """An Arrow batch that is not what a rule may return; the text says why."""


@helper
def _pack(source: Any, start: Any, end: Any, out: Any, at: Any) -> Any:
    copy_bytes(out, at, source, start, end - start)
    return at + end - start


@helper
def _pack_sized(source: Any, start: Any, end: Any, out: Any, at: Any) -> Any:
    return _pack(source, start, end, out, write_varint(out, at, end - start))


@kernel(
    f"void({READ_INTS}, {READ_BYTES}, {READ_INTS}, {READ_BYTES}, {READ_INTS}, {READ_INTS}, {READ_BYTES},"
    f" {READ_INTS}, {READ_BYTES}, uint8[::1], uint8[::1], uint8[::1], uint8[::1], int32[:, ::1])"
)
def pack(
    key_starts: Any,
    keys: Any,
    value_starts: Any,
    values: Any,
    list_starts: Any,
    header_key_starts: Any,
    header_keys: Any,
    header_value_starts: Any,
    header_values: Any,
    key_valid: Any,
    value_valid: Any,
    header_valid: Any,
    out: Any,
    ints: Any,
) -> None:
    """Keys, values and encoded headers one after another into ``out``, and where they are."""
    at = np.int64(0)
    for row in range(len(key_starts) - 1):
        ints[0, row] = at
        ints[1, row] = -1
        if key_valid[row]:
            at = _pack(keys, np.int64(key_starts[row]), np.int64(key_starts[row + 1]), out, at)
            ints[1, row] = at - ints[0, row]
        ints[2, row] = at
        ints[3, row] = -1
        if value_valid[row]:
            at = _pack(values, np.int64(value_starts[row]), np.int64(value_starts[row + 1]), out, at)
            ints[3, row] = at - ints[2, row]
        ints[4, row] = at
        for header in range(list_starts[row], list_starts[row + 1]):
            at = _pack_sized(
                header_keys,
                np.int64(header_key_starts[header]),
                np.int64(header_key_starts[header + 1]),
                out,
                at,
            )
            if header_valid[header]:
                at = _pack_sized(
                    header_values,
                    np.int64(header_value_starts[header]),
                    np.int64(header_value_starts[header + 1]),
                    out,
                    at,
                )
            else:
                at = write_varint(out, at, -1)
        ints[5, row] = at
        ints[6, row] = list_starts[row + 1] - list_starts[row]


def from_arrow(batch: Any, before: Records) -> Records:
    """The records of an Arrow batch that was made from ``before`` and changed since.

    Raises ``NotRecordsError``.
    """
    _check_shape(batch)
    offset = batch.column("offset").to_numpy()
    _check_offsets(offset, before)
    keys, values, lists = batch.column("key"), batch.column("value"), batch.column("headers")
    pairs = lists.values
    _check_headers(lists, pairs)
    key_starts, key_data = _binary_places(keys)
    value_starts, value_data = _binary_places(values)
    header_key_starts, header_keys = _binary_places(pairs.field(0))
    header_value_starts, header_values = _binary_places(pairs.field(1))
    list_starts = np.frombuffer(lists.buffers()[1], np.int32)[lists.offset : lists.offset + len(lists) + 1]
    rows = len(offset)
    room = (
        _span(key_starts)
        + _span(value_starts)
        + _span(header_key_starts)
        + _span(header_value_starts)
        + 2 * _LONGEST_NUMBER * len(pairs)
    )
    if room > np.iinfo(np.int32).max:
        raise NotRecordsError(f"the batch holds {room} bytes; at most {np.iinfo(np.int32).max} can be written")
    data = np.empty(room, np.uint8)
    ints = np.empty((7, rows), np.int32)
    pack(
        key_starts,
        key_data,
        value_starts,
        value_data,
        read_only(list_starts),
        header_key_starts,
        header_keys,
        header_value_starts,
        header_values,
        _valid(keys),
        _valid(values),
        _valid(pairs.field(1)),
        data,
        ints,
    )
    return Records(
        before.topic,
        before.partition,
        read_only(data),
        np.array(offset, np.int64),
        np.array(batch.column("timestamp").to_numpy(), np.int64),
        ints[0],
        ints[1],
        ints[2],
        ints[3],
        ints[4],
        ints[5],
        ints[6],
        np.zeros(rows, np.uint8),
        NO_BYTES,
        np.zeros(rows + 1, np.int64),
        np.zeros(rows, np.int32),
    )


def _check_shape(batch: Any) -> None:
    if not isinstance(batch, pa.RecordBatch):
        raise NotRecordsError(f"expected a pyarrow.RecordBatch, found {type(batch).__name__}")
    found, expected = batch.schema.names, SCHEMA.names
    if found != expected:
        raise NotRecordsError(f"expected the columns {', '.join(expected)}, found {', '.join(found) or 'none'}")
    for field, wanted in zip(batch.schema, SCHEMA, strict=True):
        if field.name == "headers":
            fine = pa.types.is_list(field.type) and _same_header(field.type.value_type)
        else:
            fine = field.type == wanted.type
        if not fine:
            raise NotRecordsError(f"column {field.name} has type {field.type}, expected {wanted.type}")
    for name in ("offset", "timestamp", "headers"):
        if batch.column(name).null_count:
            raise NotRecordsError(f"column {name} holds nulls, which it may not")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise NotRecordsError(f"it is not a valid Arrow batch: {error}") from None


def _same_header(found: Any) -> bool:
    """Whether headers are pairs of binaries; functions of Arrow often lose ``not null`` on the way."""
    return bool(
        pa.types.is_struct(found)
        and [(field.name, field.type) for field in found] == [("key", pa.binary()), ("value", pa.binary())]
    )


def _check_offsets(offset: Longs, before: Records) -> None:
    falls = np.flatnonzero(offset[1:] <= offset[:-1])
    if len(falls):
        one, other = int(offset[falls[0]]), int(offset[falls[0] + 1])
        raise NotRecordsError(f"offsets have to ascend, but {other} comes after {one}: do not sort or repeat records")
    given = before.offset[before.dropped == 0]
    places = np.searchsorted(given, offset)
    strange = np.flatnonzero(np.append(given, -1)[places] != offset)
    if len(strange):
        raise NotRecordsError(f"offset {int(offset[strange[0]])} was not among the records that the rule was given")


def _check_headers(lists: Any, pairs: Any) -> None:
    if not len(lists):
        return
    if pairs.null_count:
        raise NotRecordsError("column headers holds a null in place of a header")
    if pairs.field(0).null_count:
        raise NotRecordsError("column headers holds a header whose key is null")


def _binary_places(column: Any) -> tuple[Ints, Bytes]:
    """Where each slot of a binary column starts, and the bytes."""
    _, starts, data = column.buffers()
    if not len(column):
        return read_only(np.zeros(1, np.int32)), NO_BYTES
    places = np.frombuffer(starts, np.int32)[column.offset : column.offset + len(column) + 1]
    return read_only(places), NO_BYTES if data is None else read_only(np.frombuffer(data, np.uint8))


def _span(starts: Ints) -> int:
    return int(starts[-1]) - int(starts[0])


def _valid(column: Any) -> Bytes:
    valid: Bytes = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.uint8)
    return np.array(valid, np.uint8)
