"""What the names begin with that an entry matches: an ACL can speak of a name or of a beginning, and of no expression.

Invariant: each name that the entry matches is one of the ``whole`` beginnings, or begins with one of the others. They may say more than
the entry does, and never less.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any, NamedTuple

from isthmus.config.patterns import is_pattern

# The library's own parser, as in examples.py: where it does not help, every name may begin so.
_parser: Any = importlib.import_module("re._parser")
_MOST = 16


class Beginning(NamedTuple):
    """A name, if it is ``whole``; else what names begin with. An empty one is every name."""

    text: str
    whole: bool


_EVERY = (Beginning("", False),)


@lru_cache(maxsize=4096)
def beginnings(entry: str) -> tuple[Beginning, ...]:
    """The beginnings of an entry: a name, or an expression between slashes."""
    if not is_pattern(entry):
        return (Beginning(entry, True),)
    try:
        tree = _parser.parse(entry[1:-1])
        found = _EVERY if tree.state.flags & re.IGNORECASE else tuple(_of(list(tree)))
    except (re.error, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return _EVERY
    open_ = {each.text for each in found if not each.whole}
    if "" in open_ or any(not each.text for each in found):
        return _EVERY
    return tuple(
        sorted(
            each
            for each in set(found)
            if not any(each.text.startswith(text) and (each.whole or each.text != text) for text in open_)
        )
    )


def _of(parts: list[Any]) -> list[Beginning]:
    found = [Beginning("", True)]
    for kind, value in parts:
        if str(kind) == "LITERAL":
            then = [Beginning(chr(value), True)]
        elif str(kind) == "SUBPATTERN" and not value[1]:
            then = _of(list(value[-1]))
        elif str(kind) == "BRANCH":
            then = [each for branch in value[1] for each in _of(list(branch))]
        elif str(kind) == "AT":
            continue
        else:
            then = [Beginning("", False)]
        if len(found) * len(then) > _MOST:
            then = [Beginning("", False)]
        found = [
            Beginning(each.text + more.text, more.whole) if each.whole else each for each in found for more in then
        ]
        if not any(each.whole for each in found):
            break
    return found
