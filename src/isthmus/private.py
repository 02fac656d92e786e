"""Directories that nobody else can write to. What lies there is run (compiled kernels, class archives, jars) or written over, with our rights.

Invariant: a directory counts as private if it is ours or the administrator's, is no link, nobody else may write to it, and nobody else may replace it: no directory above it
lets everybody write, but for those that let only owners rename (the sticky bit, as /tmp has). What we make is so whatever the umask.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_directory() -> Path:
    """Where we keep what should not be made or fetched twice; not necessarily there yet."""
    chosen = os.environ.get("ISTHMUS_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "isthmus"


def why_not_private(folder: Path) -> str:
    """Why a directory is not private; empty if it is."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return f"{folder} is no directory"
        if found.st_uid not in (0, os.getuid()):
            return f"{folder} belongs to somebody else"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write to {folder} (chmod go-w {folder})"
        for above in folder.absolute().parents:
            mode = above.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return f"everybody may write to {above} (chmod o-w {above})"
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def make_private(folder: Path) -> str:
    """Make a directory, and those above it that are missing, for us alone; why it is not private, empty if it is."""
    missing = [folder]
    while not missing[-1].parent.exists() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    try:
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)  # a umask only takes away
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return why_not_private(folder)
