"""Ctrl-C before the command line is there to catch it.

Invariant: while modules are imported nothing has begun, so the process ends at once, with 130 and without a traceback. Whoever has set
a handler of its own keeps it.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any


def _end(*_: Any) -> None:
    os._exit(130)


_ours = (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
)
if _ours:
    signal.signal(signal.SIGINT, _end)


def over() -> None:
    """From here on, whoever is interrupted sees to it."""
    if _ours and signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
