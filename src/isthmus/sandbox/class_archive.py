"""A Java class archive halves a broker's start: classes are mapped from a file instead of parsed from jars.

Invariant: an archive is only ever a speed-up. Java checks that it fits and goes on without it otherwise; a
failed attempt to make one is no error. It is made once for a jar set and a Java, by letting one broker
run and stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from isthmus.sandbox.cache import cache_directory, locked
from isthmus.sandbox.jars import MANIFEST, Jars
from isthmus.sandbox.java import find_java


def class_archive(jars: Jars, train: Callable[[Path], None]) -> Path | None:
    """The archive for these jars; ``train`` runs a broker that writes the given file when it ends."""
    java = find_java().resolve()
    identity = hashlib.sha256((jars.directory / MANIFEST).read_bytes())
    # An archive remembers its class path, and only fits the Java that wrote it.
    identity.update(f"{jars.directory} {java} {java.stat().st_mtime_ns}".encode())
    archive = cache_directory() / "archives" / f"{jars.directory.name}-{identity.hexdigest()[:12]}.jsa"
    failed = archive.with_suffix(".failed")
    if not archive.exists() and not failed.exists():
        with locked(archive.with_suffix(".lock")):
            if not archive.exists() and not failed.exists():
                scratch = archive.with_suffix(".partial")
                scratch.unlink(missing_ok=True)
                train(scratch)
                if scratch.exists():
                    scratch.rename(archive)
                else:
                    failed.touch()
    return archive if archive.exists() else None
