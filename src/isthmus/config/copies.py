"""Topics whose names say that they are copies: by the ``rename`` of the links that lead to a site.

Invariants:
- only names are judged, not whether anything was copied: a topic called as a link would call its copies is a copy, also when the link has left
  it out since;
- a fixed name says nothing: a link that brings ``eu.orders`` home as ``orders`` does not make a copy of the original;
- a name that passed through links which keep names says what it said before; a chain of links is followed back to where it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from isthmus.config.rename import fill

_SAME = "{topic}"


class Way(NamedTuple):
    """A link, as far as names go; ``template`` has no variable but ``{topic}``."""

    source: str
    target: str
    template: str


class Copies(NamedTuple):
    """What a loop rule refuses by name, at the source of its link."""

    site: str
    target: str
    drop: str
    ways: tuple[Way, ...]

    def came_from(self, name: str) -> str | None:
        """The site that a topic of this name came from, if the rule refuses it for that."""
        # Each state: where, under which name, whether a link has renamed it on the way here, and the nearest site of interest.
        todo: list[tuple[str, str, bool, str | None]] = [(self.site, name, False, None)]
        seen = set(todo)
        while todo:
            site, known_as, renamed, by = todo.pop()
            for way in self.ways:
                if way.target != site or way.source == self.site:
                    continue
                inner = unfilled(way.template, known_as)
                if inner is None:
                    continue
                new = renamed or way.template != _SAME
                via = by or (way.source if self.drop == "foreign" or way.source == self.target else None)
                if new and via is not None:
                    return via
                state = (way.source, inner, new, via)
                if state not in seen:
                    seen.add(state)
                    todo.append(state)
        return None


@lru_cache(maxsize=1024)
def _expression(template: str) -> re.Pattern[str]:
    first, *rest = template.split(_SAME)
    text = re.escape(first)
    for number, part in enumerate(rest):
        text += ("(?P<topic>.+)" if number == 0 else "(?P=topic)") + re.escape(part)
    return re.compile(text)


def unfilled(template: str, name: str) -> str | None:
    """The topic that a template has made this name of; None if that is not its work, or if it does not tell."""
    match = _expression(template).fullmatch(name)
    return match["topic"] if match is not None and _SAME in template else None


def ways_of(links: Iterable[Mapping[str, Any]]) -> tuple[Way, ...]:
    """The ways of links, of which some may lack fields: those are left out."""
    return tuple(
        Way(
            link["source"],
            link["target"],
            fill(link["rename"], topic=_SAME, source=link["source"], target=link["target"], link=link["name"]),
        )
        for link in links
        if {"name", "source", "target", "rename"} <= set(link)
    )


def copies_of(link: Mapping[str, Any], ways: tuple[Way, ...]) -> Copies | None:
    """What a link refuses by name; None if it has no loop rule."""
    loop = link.get("loop")
    if loop is None or not {"source", "target"} <= set(link):
        return None
    return Copies(link["source"], link["target"], loop.drop, ways)
