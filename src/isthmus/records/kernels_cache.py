"""Where compiled kernels live, and the two decorators that make them.

Invariant: a kernel is compiled once per user, machine type and source text, and never at a later
start. The directory is content addressed: its name holds the versions, the processor and a digest of
the source of the rooms that hold kernels. numba itself only looks at the file a kernel stands in; the
digest covers the helpers that a kernel has inlined from other files.

The directory is handed to numba only while one of our kernels is being made, so a user's own numba
functions keep whatever cache they have chosen. numba writes cache files by rename, so processes may
share the directory.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as numba_config
from numba.core.registry import cpu_target

from isthmus import __version__
from isthmus.private import cache_directory, make_private

Function = TypeVar("Function", bound=Callable[..., Any])

# Types of what kernels only read, for signatures. Fetched bytes are read-only arrays, and a kernel is
# compiled for exactly one type.
READ_BYTES = "Array(uint8, 1, 'C', readonly=True)"
READ_INTS = "Array(int32, 1, 'C', readonly=True)"

_PACKAGE = Path(__file__).resolve().parent.parent
_ROOMS = ("records", "rules")


def _sources_digest() -> str:
    digest = hashlib.blake2b(digest_size=6)
    for room in _ROOMS:
        folder = _PACKAGE / room
        if not folder.is_dir():
            continue  # imported from a zip file: the version alone has to tell builds apart
        for source in sorted(folder.glob("*.py")):
            digest.update(source.name.encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _usable(folder: Path) -> bool:
    """Whether we can write there, and nobody else: loading a kernel runs its code."""
    if make_private(folder):
        return False
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@cache
def kernels_directory() -> Path:
    """The directory of this build's compiled kernels; in a temporary place if home is read-only."""
    _, processor, _ = cpu_target.target_context.codegen().magic_tuple()
    build = f"{__version__}-numba{numba.__version__}-{processor}-{_sources_digest()}"
    candidates = []
    try:
        candidates += [cache_directory(), Path.home() / ".cache" / "isthmus"]
    except RuntimeError:  # no home at all, as in some containers
        pass
    candidates.append(Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}")
    for candidate in candidates:
        folder = candidate / "kernels" / build
        if not make_private(candidate) and _usable(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="isthmus-kernels-"))


@contextmanager
def _our_directory() -> Iterator[None]:
    before = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = str(kernels_directory())
    try:
        yield
    finally:
        numba_config.CACHE_DIR = before


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a kernel for exactly one signature now, or load it from the cache.

    Kernels release the interpreter lock and trust nothing: each does its own bounds checks.
    """

    def decorate(function: Function) -> Function:
        with _our_directory():
            compiled: Function = numba.njit(signature, cache=True, nogil=True, boundscheck=False, error_model="numpy")(
                function
            )
        return compiled

    return decorate


def helper(function: Function) -> Function:
    """A small function that becomes a part of each kernel that calls it."""
    compiled: Function = numba.njit(forceinline=True, boundscheck=False, error_model="numpy")(function)
    return compiled
