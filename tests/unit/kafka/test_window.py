"""What a line is asked to carry at once follows what it carries."""

from __future__ import annotations

import pytest

from isthmus.kafka import window
from isthmus.kafka.window import FIRST_BYTES, LEAST_BYTES, Window

MOST = 16 << 20


class Line:
    """A line with a clock of its own: carries so many bytes a second, after half a round trip each way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: float, round_trip: float, timeout: float = 30.0) -> None:
        self.now = 1000.0
        monkeypatch.setattr(window.time, "monotonic", lambda: self.now)
        self.rate, self.round_trip = rate, round_trip
        self.window = Window(MOST, timeout)

    def fill(self, times: int = 1) -> float:
        """Send a window's worth at a time and await it; how long the last one took."""
        took = 0.0
        for _ in range(times):
            sent, size = self.now, self.window.bytes
            took = size / self.rate + self.round_trip
            self.now += took
            self.window.answered(size, sent, in_use=True)
        return took


@pytest.mark.parametrize("round_trip", [0.0, 0.05, 0.3])
def test_a_fast_line_is_soon_used_in_full(monkeypatch: pytest.MonkeyPatch, round_trip: float) -> None:
    line = Line(monkeypatch, 1e9, round_trip)
    line.fill(4)
    assert line.window.bytes == MOST


@pytest.mark.parametrize("rate", [100e3, 356e3, 1e6, 10e6])
@pytest.mark.parametrize("timeout", [3.0, 30.0])
def test_a_slow_line_answers_long_before_the_request_fails(
    monkeypatch: pytest.MonkeyPatch, rate: float, timeout: float
) -> None:
    line = Line(monkeypatch, rate, 0.05, timeout)
    line.fill(10)
    slow = min(2.0, timeout / 5)
    assert line.fill() <= slow or line.window.bytes == LEAST_BYTES
    assert line.window.bytes >= min(MOST, rate * (slow / 4 - line.round_trip))


def test_a_line_that_becomes_slow_and_fast_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, 1e9, 0.01)
    line.fill(10)
    line.rate = 200e3
    line.fill(10)
    assert line.window.bytes <= 400e3
    line.rate = 1e9
    line.fill(10)
    assert line.window.bytes == MOST


def test_what_failed_together_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, 1e9, 0.01)
    for _ in range(8):
        line.window.shrink(999.0)
    assert line.window.bytes == FIRST_BYTES // 2
    for _ in range(30):
        line.now += 1
        line.window.shrink(line.now)
    assert line.window.bytes == LEAST_BYTES


def test_little_traffic_says_nothing_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, 1e9, 0.01)
    for _ in range(1000):
        line.window.answered(1000, line.now, in_use=False)
    assert line.window.bytes == FIRST_BYTES
