"""Compiles every kernel once, so that nobody waits for it later.

Invariant: after ``warm``, any process of the same user on the same machine type only loads.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from pathlib import Path

_ROOMS = ("isthmus.records", "isthmus.rules")
# The one kernel that lives elsewhere.
_ALONE = ("isthmus.recovery.verify_digest",)


def warm() -> float:
    """Compile or load every kernel of the rooms that hold some; the seconds that took."""
    started = time.perf_counter()
    for room in _ROOMS:
        for found in pkgutil.iter_modules(importlib.import_module(room).__path__):
            importlib.import_module(f"{room}.{found.name}")
    for module in _ALONE:
        importlib.import_module(module)
    _mark().touch()
    return time.perf_counter() - started


def warmed() -> bool:
    """Whether ``warm`` has been here before, so that starting takes less than a second."""
    return _mark().exists()


def _mark() -> Path:
    from isthmus.records.kernels_cache import kernels_directory  # imports numba, which is slow

    return kernels_directory() / "warm"


if __name__ == "__main__":
    warm()
