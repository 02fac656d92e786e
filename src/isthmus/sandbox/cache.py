"""Where the sandbox keeps what it should not fetch twice, and how processes take turns there.

Invariant: everything lives under one directory, ``$ISTHMUS_CACHE`` or else ``~/.cache/isthmus``, which
may be deleted at any time when no sandbox runs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """The cache's directory; not necessarily there yet."""
    chosen = os.environ.get("ISTHMUS_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "isthmus"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for, then hold, an exclusive lock that the kernel drops if we die."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
