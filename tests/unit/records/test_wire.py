"""Numbers and checksums, against the plain ones."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numba
import numpy as np
import pytest
from batch_tools import varint
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.records import wire
from isthmus.records.checksum import crc32c, crc32c_small
from isthmus.rules.encode import encode_number

numbers = st.integers(-(1 << 63), (1 << 63) - 1)


# Helpers are meant to be inlined; these give them a frame of their own.
@numba.njit
def write(out: Any, at: Any, value: Any) -> Any:
    return wire.write_varint(out, at, value)


@numba.njit
def read(data: Any, at: Any, end: Any) -> Any:
    return wire.read_varint(data, at, end)


@numba.njit
def size(value: Any) -> Any:
    return wire.varint_size(value)


@numba.njit
def small(data: Any, start: Any, end: Any) -> Any:
    return crc32c_small(data, start, end)


@given(numbers)
@example(0)
@example(-(1 << 63))
@example((1 << 63) - 1)
@settings(deadline=None)
def test_varints_go_both_ways(value: int) -> None:
    out = np.zeros(16, np.uint8)
    end = write(out, 3, value)
    assert out[3:end].tobytes() == varint(value) == encode_number(value)
    assert size(value) == end - 3
    assert read(out, 3, 16) == (value, end)
    for short in range(3, end):
        assert read(out, 3, short)[1] == wire.OVERRUN


@pytest.mark.parametrize("length", [11, 12, 16])
def test_a_varint_of_more_than_64_bits_is_refused(length: int) -> None:
    data = np.full(16, 0x80, np.uint8)
    data[length - 1] = 0
    assert read(data, 0, 16)[1] == wire.OVERRUN


@given(st.binary(max_size=100), st.integers(0, 9))
@settings(deadline=None)
def test_both_checksums_agree(data: bytes, start: int) -> None:
    array = np.frombuffer(data, np.uint8)
    start = min(start, len(data))
    assert small(array, start, len(data)) == google_crc32c.value(data[start:]) == crc32c(array[start:])
