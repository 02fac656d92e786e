"""A byte budget: a bucket that fills at the limit and may be overdrawn by one piece.

Overdrawing keeps it simple and exact on average: the piece that empties the bucket is copied whole, and the next
one waits until the debt is paid.
"""

from __future__ import annotations

import time


class ByteBudget:
    """``spend`` what was read, then wait ``debt_seconds`` before reading more."""

    # What may be saved up while idle, as seconds of the limit: smooths without long bursts.
    SAVED_SECONDS = 0.5

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._level = 0.0
        self._at = time.monotonic()

    def change(self, bytes_per_second: float | None) -> None:
        if bytes_per_second != self._rate:
            self._fill()
            self._rate = bytes_per_second
            self._level = min(self._level, 0.0) if bytes_per_second else 0.0

    def _fill(self) -> None:
        now = time.monotonic()
        if self._rate:
            self._level = min(self._rate * self.SAVED_SECONDS, self._level + self._rate * (now - self._at))
        self._at = now

    def spend(self, count: int) -> None:
        if self._rate:
            self._fill()
            self._level -= count

    def debt_seconds(self) -> float:
        """How long to wait before the next piece; 0 when there is budget."""
        if not self._rate:
            return 0.0
        self._fill()
        return max(0.0, -self._level / self._rate)
