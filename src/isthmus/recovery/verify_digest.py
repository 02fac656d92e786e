"""A record as a few numbers: a digest of what must be the same on both sides, and what links have added to it.

Invariant: two records with the same key, value, time and headers have the same digest, whatever batches and codecs they
stand in; null and empty differ. Headers that links add are not in it: they are judged apart. Digests are compared where they
were made, in one process, so nothing depends on how they are made.

What is left out, by ``mode``:

    SOURCE    the first origin header
    TARGET    the first origin header, and the last offset header: the one that the link has added
    SEEDED    every origin header and every offset header: a re-seed may have put them there or taken them away
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from isthmus.records.kernels_cache import READ_BYTES, helper, kernel
from isthmus.records.model import Bytes, Longs, Records, read_only
from isthmus.records.wire import read_int64, read_varint

Digests = npt.NDArray[np.uint64]

SOURCE, TARGET, SEEDED = range(3)

#: No header of this name, or none that holds an offset.
NO_OFFSET = -1

_ONE = np.uint64(0x9E3779B185EBCA87)
_TWO = np.uint64(0xC2B2AE3D27D4EB4F)
_THREE = np.uint64(0x165667B19E3779F9)
_SEED = np.uint64(0x27D4EB2F165667C5)
_COMMA = np.uint8(ord(","))


@intrinsic  # type: ignore[untyped-decorator]
def _word(typing: Any, data: Any, at: Any) -> Any:
    """Eight bytes from anywhere, as one number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        number = builder.load(builder.bitcast(place, cgutils.ir.IntType(64).as_pointer()))
        number.align = 1
        return number

    return types.uint64(data, types.intp), generate


@helper
def _mix(state: Any, word: Any) -> Any:
    state = (state ^ (word * _TWO)) * _ONE
    return state ^ (state >> np.uint64(29))


@helper
def _mix_bytes(state: Any, data: Any, start: Any, length: Any) -> Any:
    """The bytes with their length; a length of -1 is null."""
    state = _mix(state, np.uint64(np.int64(length) + 1))
    if length < 8:
        word = np.uint64(0)
        for place in range(length):
            word = (word << np.uint64(8)) | np.uint64(data[start + place])
        if length > 0:
            state = _mix(state, word)
        return state
    other = _SEED
    at = np.int64(start)
    end = np.int64(start) + length
    while at + 16 <= end:  # two chains, so that one need not wait for the other
        state = _mix(state, _word(data, at))
        other = _mix(other, _word(data, at + 8))
        at += 16
    if at + 8 <= end:
        state = _mix(state, _word(data, at))
    other = _mix(other, _word(data, end - 8))
    return _mix(state, other)


@helper
def _same_bytes(data: Any, start: Any, length: Any, name: Any) -> Any:
    if length != len(name):
        return False
    for place in range(length):  # noqa: SIM110 -- a kernel has no generators
        if data[start + place] != name[place]:
            return False
    return True


@helper
def _finished(state: Any) -> Any:
    state ^= state >> np.uint64(32)
    state *= _THREE
    return state ^ (state >> np.uint64(29))


@helper
def _identity(data: Any, start: Any, length: Any) -> Any:
    """Of an origin: the site or the cluster, which is what stands before the first comma."""
    size = 0
    while size < length and data[start + size] != _COMMA:
        size += 1
    return _finished(_mix_bytes(_SEED, data, start, size)) | np.uint64(1)


@kernel(
    f"void({READ_BYTES}, int64[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1],"
    f" {READ_BYTES}, {READ_BYTES}, int64, uint64[::1], int64[::1], uint64[::1], uint64[::1])"
)
def _digest(
    data: Any,
    timestamp: Any,
    key_start: Any,
    key_length: Any,
    value_start: Any,
    value_length: Any,
    headers_start: Any,
    headers_end: Any,
    headers_count: Any,
    offset_name: Any,
    origin_name: Any,
    mode: Any,
    digests: Any,
    offsets: Any,
    origins: Any,
    identities: Any,
) -> None:
    """One row a record. Origins are 0 where there is none."""
    for row in range(len(timestamp)):
        state = _mix(_SEED, np.uint64(timestamp[row]))
        state = _mix_bytes(state, data, key_start[row], np.int64(key_length[row]))
        state = _mix_bytes(state, data, value_start[row], np.int64(value_length[row]))
        offset = np.int64(NO_OFFSET)
        origin = np.uint64(0)
        identity = np.uint64(0)
        at = np.int64(headers_start[row])
        end = np.int64(headers_end[row])
        count = headers_count[row]
        # Where the last offset header stands, and the digest without it and what follows.
        before = state
        after_at = np.int64(-1)
        after_number = 0
        origin_number = -1
        for number in range(count):
            name_length, at = read_varint(data, at, end)
            name = at
            at += name_length
            length, at = read_varint(data, at, end)
            value = at
            if length > 0:
                at += length
            if len(origin_name) > 0 and _same_bytes(data, name, name_length, origin_name):
                if origin == 0:
                    origin = _finished(_mix_bytes(_SEED, data, value, length)) | np.uint64(1)
                    identity = _identity(data, value, length)
                    origin_number = number
                    continue
                if mode == SEEDED:
                    continue
            elif len(offset_name) > 0 and length == 8 and _same_bytes(data, name, name_length, offset_name):
                offset = read_int64(data, value)
                if mode == SEEDED:
                    continue
                before = state
                after_at = at
                after_number = number + 1
            state = _mix_bytes(state, data, name, name_length)
            state = _mix_bytes(state, data, value, length)
        if mode == TARGET and after_at >= 0:
            state = before
            at = after_at  # rare: somebody has added headers behind the link's own, and they count
            for number in range(after_number, count):
                name_length, at = read_varint(data, at, end)
                name = at
                at += name_length
                length, at = read_varint(data, at, end)
                value = at
                if length > 0:
                    at += length
                if number != origin_number:
                    state = _mix_bytes(state, data, name, name_length)
                    state = _mix_bytes(state, data, value, length)
        digests[row] = _finished(state)
        offsets[row] = offset
        origins[row] = origin
        identities[row] = identity


@dataclass(slots=True)
class Digested:
    """Rows of records as numbers."""

    offset: Longs
    digest: Digests
    """Of key, value, time and headers."""
    header: Longs
    """The source offset that the last offset header tells, or ``NO_OFFSET``."""
    origin: Digests
    """Of the first origin header's value; 0 where there is none."""
    identity: Digests
    """Of that value's site or cluster."""

    def __len__(self) -> int:
        return len(self.offset)


def nothing() -> Digested:
    """No records."""
    longs, digests = np.empty(0, np.int64), np.empty(0, np.uint64)
    return Digested(longs, digests, longs, digests, digests)


def joined(parts: list[Digested]) -> Digested:
    """Parts in the order of the log, as one."""
    if not parts:
        return nothing()
    if len(parts) == 1:
        return parts[0]
    return Digested(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("offset", "digest", "header", "origin", "identity")
        )
    )


class Digester:
    """Makes digests for one link: the names of the headers that it adds are known. An empty name is no header."""

    def __init__(self, offset_header: str, origin_header: str) -> None:
        self._offset = _text(offset_header)
        self._origin = _text(origin_header)

    def digest(self, records: Records, mode: int) -> Digested:
        """What the rows hold; the numbers are copies, which stay."""
        rows = len(records)
        if records.tail_start[rows]:
            raise ValueError("rules that append headers have no place here: what links add is judged apart")
        digests, origins, identities = (np.empty(rows, np.uint64) for _ in range(3))
        offsets = np.empty(rows, np.int64)
        _digest(
            records.data,
            records.timestamp,
            records.key_start,
            records.key_length,
            records.value_start,
            records.value_length,
            records.headers_start,
            records.headers_end,
            records.headers_count,
            self._offset,
            self._origin,
            mode,
            digests,
            offsets,
            origins,
            identities,
        )
        return Digested(records.offset.copy(), digests, offsets, origins, identities)


@kernel(f"uint64({READ_BYTES})")
def _identity_of(data: Any) -> Any:
    return _identity(data, 0, len(data))


def identity_of(name: str) -> int:
    """The identity of a site's name or a cluster's id, as ``Digested.identity`` has it."""
    return int(_identity_of(_text(name)))


def _text(text: str) -> Bytes:
    return read_only(np.frombuffer(text.encode(), np.uint8))
