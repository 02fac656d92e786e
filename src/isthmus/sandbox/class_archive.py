"""A Java class archive halves a broker's start: classes are mapped from a file instead of parsed from jars.

Invariant: an archive is only ever a speed-up. Java checks that it fits and goes on without it otherwise; a
failed attempt to make one is no error. It is made once for a jar set and a Java, by letting one broker
run and stop.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from isthmus.sandbox.cache import cache_directory, locked
from isthmus.sandbox.jars import MANIFEST, Jars
from isthmus.sandbox.java import find_java


def class_archive(jars: Jars, train: Callable[[Path, Path], None]) -> Path | None:
    """The archive for these jars.

    ``train`` runs a broker in the directory that is its first argument and lets it write the archive, its
    second argument, at its end.
    """
    java = find_java().resolve()
    identity = hashlib.sha256((jars.directory / MANIFEST).read_bytes())
    # An archive remembers its class path, and only fits the Java that wrote it.
    identity.update(f"{jars.directory} {java} {java.stat().st_mtime_ns}".encode())
    archive = cache_directory() / "archives" / f"{jars.directory.name}-{identity.hexdigest()[:12]}.jsa"
    failed = archive.with_suffix(".failed")
    if not archive.exists() and not failed.exists():
        with locked(archive.with_suffix(".lock")):
            if not archive.exists() and not failed.exists():
                _make(archive, failed, train)
    return archive if archive.exists() else None


def _make(archive: Path, failed: Path, train: Callable[[Path, Path], None]) -> None:
    directory = archive.with_suffix(".training")
    shutil.rmtree(directory, ignore_errors=True)  # of a process that was killed
    directory.mkdir()
    try:
        made = directory / archive.name
        train(directory / "site", made)
        if made.exists():
            made.rename(archive)
        else:
            failed.touch()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
