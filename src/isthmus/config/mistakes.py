"""A mistake in a configuration file: what is wrong, where, and what to write instead.

Invariant: no secret enters a mistake. Its text comes from us, from names and paths, and from what stands
in the file before variables are filled in. Validators therefore raise through :func:`wrong` and
:func:`several`, which carry text and no input; what was found is added later from the document itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple, TypedDict

from pydantic_core import PydanticCustomError

from isthmus.errors import ConfigError

Loc = tuple[str | int, ...]


class Mistake(TypedDict):
    """One mistake; ``line`` and ``column`` count from 1 and are None when there is no such place."""

    file: str
    line: int | None
    column: int | None
    path: str
    problem: str
    hint: str


class Problem(NamedTuple):
    """A mistake before its place is known: ``loc`` is relative to whoever reports it.

    ``at_key``: it is about the key (unknown, missing, badly named) rather than about its value. ``warning``: it may be meant so.
    """

    loc: Loc
    problem: str
    hint: str = ""
    at_key: bool = False
    warning: bool = False


# The type under which our own errors travel through pydantic.
KIND = "isthmus"


def wrong(problem: str, hint: str = "", *, found: bool = True, at: Loc = ()) -> PydanticCustomError:
    """An error for a validator to raise; ``found`` lets the value as written be shown with it."""
    return PydanticCustomError(
        KIND, "{text}", {"text": problem, "problems": [Problem(at, problem, hint)], "found": found}
    )


def several(problems: Sequence[Problem]) -> PydanticCustomError:
    """One error that carries many problems, each at its own place below the model that raises it."""
    text = "; ".join(f"{path_text(p.loc)}: {p.problem}" if p.loc else p.problem for p in problems)
    return PydanticCustomError(KIND, "{text}", {"text": text, "problems": list(problems), "found": False})


def path_text(loc: Iterable[str | int]) -> str:
    """``("links", "orders", "rules", 0)`` as ``links.orders.rules[0]``."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        plain = part != "" and all(c.isalnum() or c in "-_${}:" for c in part)
        text += ("." if text else "") + (part if plain else f'"{part}"')
    return text


def render(mistake: Mistake) -> str:
    """One line for people: ``isthmus.yaml:12:5: links.orders.topcis: unknown key; did you mean ...``."""
    place = mistake["file"]
    if mistake["line"] is not None:
        place += f":{mistake['line']}:{mistake['column']}"
    parts = [place] if place else []
    if mistake["path"]:
        parts.append(mistake["path"])
    text = ": ".join([*parts, mistake["problem"]])
    return f"{text}; {mistake['hint']}" if mistake["hint"] else text


def config_error(mistakes: Iterable[Mistake]) -> ConfigError:
    """All mistakes as one error, in the order of the file, none of them twice."""
    unique = {render(m): m for m in mistakes}
    ordered = sorted(unique.items(), key=lambda item: (item[1]["line"] or 0, item[1]["column"] or 0))
    return ConfigError("\n".join(text for text, _ in ordered), [dict(m) for _, m in ordered])


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like this one; without case, so that "plain" finds "PLAIN"."""
    by_folded = {w.casefold(): w for w in known}
    near = get_close_matches(word.casefold(), list(by_folded), n=1)
    return by_folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the nearest known word, or the known words when none is near and they are few."""
    words = list(known)
    near = nearest(word, words)
    if near:
        return f'did you mean "{near}"?'
    if 0 < len(words) <= 6:
        return "known: " + ", ".join(sorted(words))
    return ""
