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

from isthmus.errors import SandboxError
from isthmus.private import cache_directory, make_private

__all__ = ["cache_directory", "locked", "usable"]


def usable(directory: Path, cure: str = "Set ISTHMUS_CACHE to a directory that you may write to.") -> Path:
    """A directory that is there and takes files from us, and from nobody else; one that cannot be is an error that names it."""
    if why := make_private(directory):
        raise SandboxError(f"Cannot use the directory {directory}: {why}. {cure}")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise SandboxError(f"Cannot use the directory {directory}: it takes no files from us. {cure}")
    return directory


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for, then hold, an exclusive lock that the kernel drops if we die."""
    usable(path.parent)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
