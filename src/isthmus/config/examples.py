"""Names that a regular expression matches, to judge expressions of several links against each other.

Invariant: each name that is given is a legal topic's name and is matched by the whole expression. There may be none: nobody has to understand
every expression, and whoever asks goes on without.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, product
from typing import Any

from isthmus.config.names import topic_problem
from isthmus.config.patterns import compiled

# The library's own parser: undocumented, and only its absence of examples can follow from a change.
_parser: Any = importlib.import_module("re._parser")
#: Letters to try where a set of them is allowed.
_LETTERS = "xaAz0159_-."
_MOST = 8


@lru_cache(maxsize=4096)
def examples(entry: str) -> tuple[str, ...]:
    """Some topics' names that the entry (an expression between slashes) matches."""
    try:
        tree = _parser.parse(entry[1:-1])
        found = list(islice(_texts(list(tree)), 4 * _MOST))
    except (ValueError, LookupError, TypeError, RecursionError):
        return ()
    good = dict.fromkeys(text for text in found if not topic_problem(text) and compiled(entry).fullmatch(text))
    return tuple(islice(good, _MOST))


def _texts(parts: list[Any]) -> Iterator[str]:
    choices = [list(islice(_part(str(kind), value), _MOST)) for kind, value in parts]
    for chosen in product(*choices):
        yield "".join(chosen)


def _part(kind: str, value: Any) -> Iterator[str]:
    if kind == "LITERAL":
        yield chr(value)
    elif kind in ("ANY", "NOT_LITERAL"):
        yield from (letter for letter in "xa" if letter != (chr(value) if kind == "NOT_LITERAL" else ""))
    elif kind == "IN":
        yield from islice((letter for letter in _letters(value) if _allowed(value, letter)), 2)
    elif kind == "BRANCH":
        for branch in value[1]:
            yield from _texts(list(branch))
    elif kind == "SUBPATTERN":
        yield from _texts(list(value[-1]))
    elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inner = value
        for text in _texts(list(inner)):
            yield text * min(max(least, 1), most)
        if least == 0:
            yield ""
    elif kind == "ATOMIC_GROUP":
        yield from _texts(list(value))
    elif kind in ("AT", "ASSERT", "ASSERT_NOT"):
        yield ""  # whether it holds is seen when the whole is matched
    # A reference to a group, and what later versions may bring, has no example.


def _letters(items: list[Any]) -> Iterator[str]:
    yield from _LETTERS
    for kind, value in items:
        if str(kind) == "LITERAL":
            yield chr(value)
        elif str(kind) == "RANGE":
            yield chr(value[0])


def _allowed(items: list[Any], letter: str) -> bool:
    wanted, code = True, ord(letter)
    for kind, value in items:
        if str(kind) == "NEGATE":
            wanted = False
        elif (
            (str(kind) == "LITERAL" and value == code)
            or (str(kind) == "RANGE" and value[0] <= code <= value[1])
            or (str(kind) == "CATEGORY" and _in_category(str(value), letter))
        ):
            return wanted
    return not wanted


def _in_category(category: str, letter: str) -> bool:
    name = category.removeprefix("CATEGORY_")
    inside = {
        "DIGIT": letter.isdigit(),
        "WORD": letter.isalnum() or letter == "_",
        "SPACE": letter.isspace(),
    }.get(name.removeprefix("NOT_"), False)
    return inside != name.startswith("NOT_")
