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


def cache_directory() -> Path:
    """The cache's directory; not necessarily there yet."""
    chosen = os.environ.get("ISTHMUS_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "isthmus"


def usable(directory: Path, cure: str = "Set ISTHMUS_CACHE to a directory that you may write to.") -> Path:
    """A directory that is there and takes files; one that cannot be is an error that names it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(f"Cannot use the directory {directory}: {error.strerror}. {cure}") from None
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
