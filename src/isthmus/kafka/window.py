"""How many bytes to ask a line to carry at once: what it carries in about a second, found out by trying.

A request that isn't answered in time fails, and a transaction is visible when its last byte is acknowledged: so a fixed size
is too small for a fast line over a long distance or too large for a slow one, where it shows records late and, in the
end, fails again and again.

Invariant: ``LEAST_BYTES <= bytes <= most``. It grows by what was answered quickly while the line was in full use (so it
doubles with each round trip), and halves when an answer was slow or failed, once for all that was on its way then. So it
settles where a full line takes between half a second and two, or less where requests time out sooner.
"""

from __future__ import annotations

import time

LEAST_BYTES = 64 << 10
FIRST_BYTES = 1 << 20
SLOW_SECONDS = 2.0
# A slow answer is still far from one that comes too late, and a quick one stays quick when twice as much is under way.
PATIENCE = 5
QUICK = 0.25


class Window:
    """The window of one line, in one direction; ``timeout`` is how long an answer may take at most."""

    def __init__(self, most: int, timeout: float) -> None:
        self.bytes, self._most = min(FIRST_BYTES, most), most
        self._slow = min(SLOW_SECONDS, timeout / PATIENCE)
        self._halved = 0.0

    def answered(self, size: int, sent: float, in_use: bool) -> None:
        """An answer for ``size`` bytes, sent at ``sent`` by the monotonic clock; ``in_use``: was the window filled?"""
        took = time.monotonic() - sent
        if took > self._slow:
            self.shrink(sent)
        elif took < QUICK * self._slow and in_use:
            self.bytes = min(self._most, self.bytes + size)

    def shrink(self, sent: float) -> None:
        """Something sent at this time was slow or was lost. What left before the last halving tells nothing new."""
        if sent >= self._halved:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
            self._halved = time.monotonic()
