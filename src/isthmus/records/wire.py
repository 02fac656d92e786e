"""Numbers and bytes as the wire has them: helpers that become a part of each kernel.

Invariant: no helper reads at or past ``end``. A varint that would do so, or that is longer than
64 bits allow, is reported by the position ``OVERRUN``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from isthmus.records.kernels_cache import helper

#: A number inside of a kernel, of whatever width.
Number = Any

#: A position that no buffer has.
OVERRUN = -1


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typing: Any, target: Any, at: Any, source: Any, start: Any, count: Any) -> Any:
    """``target[at:at+count] = source[start:start+count]`` as one memcpy: the slices must not overlap.

    For 100 bytes this takes 2 ns; the same written as slices takes 37, since numba checks shapes and overlap.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_type, _, source_type, _, _ = signature.args
        target_value, at_value, source_value, start_value, count_value = arguments
        target_array = context.make_array(target_type)(context, builder, target_value)
        source_array = context.make_array(source_type)(context, builder, source_value)
        cgutils.raw_memcpy(
            builder,
            builder.gep(target_array.data, [at_value]),
            builder.gep(source_array.data, [start_value]),
            count_value,
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


@helper
def read_varint(data: Any, at: Number, end: Number) -> tuple[Number, Number]:
    """The zigzag varint at ``at`` and the position after it."""
    if at >= end:
        return np.int64(0), np.int64(OVERRUN)
    byte = np.uint64(data[at])
    at += 1
    bits = byte & np.uint64(0x7F)
    shift = np.uint64(7)
    while byte >= np.uint64(0x80):
        if at >= end or shift > np.uint64(63):
            return np.int64(0), np.int64(OVERRUN)
        byte = np.uint64(data[at])
        at += 1
        bits |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
    return np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1)), np.int64(at)


@helper
def write_varint(out: Any, at: Number, value: Number) -> Number:
    """Write ``value`` as a zigzag varint; the position after it."""
    bits = np.uint64(np.int64(value) << np.int64(1)) ^ np.uint64(np.int64(value) >> np.int64(63))
    while bits >= np.uint64(0x80):
        out[at] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        at += 1
        bits >>= np.uint64(7)
    out[at] = np.uint8(bits)
    return at + 1


@helper
def varint_size(value: Number) -> Number:
    """How many bytes ``write_varint`` needs."""
    bits = np.uint64(np.int64(value) << np.int64(1)) ^ np.uint64(np.int64(value) >> np.int64(63))
    size = 1
    while bits >= np.uint64(0x80):
        bits >>= np.uint64(7)
        size += 1
    return size


@helper
def read_int16(data: Any, at: Number) -> Number:
    """A signed big-endian number."""
    return np.int64(np.int16((np.int64(data[at]) << 8) | np.int64(data[at + 1])))


@helper
def read_uint32(data: Any, at: Number) -> Number:
    """An unsigned big-endian number."""
    return (
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )


@helper
def read_int32(data: Any, at: Number) -> Number:
    """A signed big-endian number."""
    return np.int64(np.int32(read_uint32(data, at)))


@helper
def read_int64(data: Any, at: Number) -> Number:
    """A signed big-endian number."""
    return (read_uint32(data, at) << 32) | read_uint32(data, at + 4)


@helper
def write_int64(out: Any, at: Number, value: Number) -> Number:
    """Eight bytes, big-endian; the position after them."""
    for place in range(8):
        out[at + place] = np.uint8((value >> (56 - 8 * place)) & 0xFF)
    return at + 8
