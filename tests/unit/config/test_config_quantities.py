"""Durations, rates, counts and switches."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from isthmus.config.quantities import format_duration, parse_duration, parse_rate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("30 s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172800),
        ("1.5s", 1.5),
        (2.5, 2.5),
        (3, 3),
        (timedelta(minutes=1), 60),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "bad", ["", "30", "s", "5 minutes", "1m-5s", "0s", "-5s", -1, 0, True, None, [], "1e3s", float("nan")]
)
def test_bad_durations(bad):
    with pytest.raises(PydanticCustomError):
        parse_duration(bad)


@given(st.integers(min_value=1, max_value=10**12))
def test_durations_read_back_what_was_written(milliseconds):
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1000000", 10**6),
        (1000, 1000),
        ("10 MB/s", 10**7),
        ("10MB", 10**7),
        ("64MiB", 64 * 2**20),
        ("1.5 GiB / s", 3 * 2**29),
        ("5kB", 5000),
        ("5KB", 5000),
        ("512 B/s", 512),
    ],
)
def test_rates(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("bad", ["", "fast", "10 Mb/s", "10 Mbit", "10/m", "0", "-1", "0.5", 0, -1, True, None, []])
def test_bad_rates(bad):
    with pytest.raises(PydanticCustomError):
        parse_rate(bad)
