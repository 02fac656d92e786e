"""The bytes of an origin header: written, read, and found among a record's headers.

    site          the name of the site, UTF-8
    cluster       the cluster id, UTF-8
    provenance    CLUSTER_ID,TOPIC,MILLISECONDS: neither ids nor topic names hold a comma; the time, in decimal digits,
                  is that of the first copy

Invariants:
- the first header of the name counts, in the order in which they are written: a record's own, then those that rules added;
- what cannot be read (null, empty, not of this form) is somebody's header all the same: such a record was born elsewhere, nobody knows where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from isthmus.records.kernels_cache import helper
from isthmus.records.model import Bytes, Longs, read_only
from isthmus.records.wire import OVERRUN, Number, read_varint
from isthmus.rules.encode import encode_number

PROVENANCE = "provenance"
#: More digits than these may not fit into 64 bits.
_MOST_DIGITS = 18
_COMMA = 44
_ZERO = 48


class Birth(NamedTuple):
    """What an origin header says. ``place`` is a site's name or a cluster id; the rest is told by provenance only."""

    place: str
    topic: str | None = None
    copied: int | None = None


def encode_birth(style: str, site: str, cluster_id: str, topic: str, milliseconds: int) -> bytes:
    """The value of the header, of a record that is copied for the first time."""
    if style == "site":
        return site.encode()
    if style == "cluster":
        return cluster_id.encode()
    return f"{cluster_id},{topic},{milliseconds}".encode()


def decode_birth(style: str, value: bytes | None) -> Birth | None:
    """What a header's value says; None if it cannot be read."""
    if not value:
        return None
    text = value.decode(errors="replace")
    if style != PROVENANCE:
        return Birth(text)
    parts = text.split(",")
    if len(parts) != 3 or not parts[0] or not parts[1] or not 0 < len(parts[2]) <= _MOST_DIGITS:
        return None
    if not (parts[2].isascii() and parts[2].isdigit()):
        return None
    return Birth(parts[0], parts[1], int(parts[2]))


def encode_header(name: str, value: bytes) -> Bytes:
    """A whole header as a record has it."""
    key = name.encode()
    return as_bytes(encode_number(len(key)) + key + encode_number(len(value)) + value)


def as_bytes(text: bytes) -> Bytes:
    """Bytes as kernels take them."""
    return np.frombuffer(text, np.uint8)


def packed(texts: Iterable[str]) -> tuple[Bytes, Longs]:
    """Several texts for a kernel: text i is ``bytes[starts[i]:starts[i + 1]]``."""
    encoded = [text.encode() for text in texts]
    starts = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return read_only(as_bytes(b"".join(encoded))), starts


# -- parts of kernels ------------------------------------------------------------------------------------------


@intrinsic  # type: ignore[untyped-decorator]
def same_bytes(typing: Any, one: Any, at: Any, other: Any, start: Any, count: Any) -> Any:
    """Whether ``one[at:at+count]`` holds what ``other[start:start+count]`` does, as one memcmp: for a header's key this takes 1.4 ns,
    the same written as a loop 9.6."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one_type, _, other_type, _, _ = signature.args
        one_value, at_value, other_value, start_value, count_value = arguments
        one_array = context.make_array(one_type)(context, builder, one_value)
        other_array = context.make_array(other_type)(context, builder, other_value)
        ir = cgutils.ir
        pointer, number, size = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
        kind = ir.FunctionType(number, [pointer, pointer, size])
        compare = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        places = [builder.gep(one_array.data, [at_value]), builder.gep(other_array.data, [start_value])]
        return builder.icmp_signed("==", builder.call(compare, [*places, count_value]), ir.Constant(number, 0))

    return types.boolean(one, types.intp, other, types.intp, types.intp), generate


@helper
def next_header(data: Any, at: Number, end: Number) -> tuple[Number, Number, Number, Number]:
    """The header at ``at``: where its key starts, where its value starts, its length (-1: null), and the position after it."""
    size, key = read_varint(data, at, end)
    length, value = read_varint(data, key + size, end)
    return key, value, length, value + max(length, 0)


@helper
def find_header(data: Any, at: Number, end: Number, count: Number, name: Any) -> tuple[Number, Number, Number, Number]:
    """The first of ``count`` headers that has this name: where it, and its value, starts, the value's length, and the position
    after it. Starts at ``OVERRUN`` if there is none."""
    for _ in range(count):
        size, key = read_varint(data, at, end)
        length, value = read_varint(data, key + size, end)
        after = value + max(length, 0)
        if size == len(name) and same_bytes(data, key, name, 0, size):
            return np.int64(at), value, length, after
        at = after
    return np.int64(OVERRUN), np.int64(0), np.int64(0), np.int64(at)


@helper
def split_provenance(data: Any, start: Number, length: Number) -> tuple[Number, Number, Number]:
    """Lengths of cluster id and topic, and the time, of a value; the first is -1 if it is not of that form."""
    wrong = (np.int64(-1), np.int64(0), np.int64(0))
    end = start + length
    at = start
    while at < end and data[at] != _COMMA:
        at += 1
    id_length = at - start
    at += 1
    topic = at
    while at < end and data[at] != _COMMA:
        at += 1
    topic_length = at - topic
    at += 1
    if id_length == 0 or topic_length <= 0 or at >= end or end - at > _MOST_DIGITS:
        return wrong
    time = np.int64(0)
    while at < end:
        digit = np.int64(data[at]) - _ZERO
        if digit < 0 or digit > 9:
            return wrong
        time = time * 10 + digit
        at += 1
    return np.int64(id_length), np.int64(topic_length), time


@helper
def among(data: Any, start: Number, length: Number, known: Any, known_start: Any) -> bool:
    """Whether a slice is one of the packed texts."""
    for number in range(len(known_start) - 1):
        at = known_start[number]
        if known_start[number + 1] - at == length and same_bytes(data, start, known, at, length):
            return True
    return False
