"""Entries that choose things by name: a plain name, or a regular expression between slashes.

Invariant: an expression must match the whole name, whatever is chosen (topics, groups, subjects).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from isthmus.config.mistakes import wrong


def is_pattern(entry: str) -> bool:
    """Whether an entry is a regular expression rather than a name."""
    return len(entry) > 1 and entry.startswith("/") and entry.endswith("/")


@lru_cache(maxsize=4096)
def compiled(entry: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "possible nested set": legal today
        return re.compile(entry[1:-1])


def matches_any(entries: list[str], name: str) -> bool:
    return any(compiled(entry).fullmatch(name) is not None if is_pattern(entry) else entry == name for entry in entries)


def one_or_many(value: Any) -> Any:
    """One entry may stand without a list around it."""
    return [value] if isinstance(value, str) else value


def entry_of(what: str) -> Callable[[Any], str]:
    """Judges an entry that chooses a ``what``, of which any text may be the name."""

    def entry(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise wrong(f"expected a {what}'s name, or a regular expression between slashes")
        if is_pattern(value):
            try:
                compiled(str(value))
            except re.error as error:
                raise wrong(f"bad regular expression: {error.msg}", found=False) from None
        return str(value)

    return entry
