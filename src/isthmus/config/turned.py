"""A link turned round: from its destination to its source, with names undone.

Invariant: a turned link copies exactly the topics that the link makes, each to the name that it had; it keeps state of its own under a
name of its own, and never touches the link's. Only recovery makes one; no file can ask for it.
"""

from __future__ import annotations

import re
from typing import Any

from isthmus.config.link import Link
from isthmus.config.rename import fill
from isthmus.config.topics import Topics

# What recovery's own links are called: the link's name, and one of these.
BACK, RESEED, STRANDED = ".back", ".reseed", ".stranded"
_MARK = "\0"

# By topic and partition of the turned link's source: ranges of offsets in ascending order.
Without = dict[str, dict[int, list[tuple[int, int]]]]


class Turned(Link):
    """Undoes names instead of making them; ``undo`` is the link whose names they are. What is in ``without`` stays where it is (rules/ranges.py)."""

    undo: Link
    without: Without = {}

    def renamed(self, name: str) -> str:
        match = re.fullmatch(_expression(self.undo), name)
        if match is None or not match.groups():
            # A template without {topic} names one topic; the link says which.
            return name if match is None else self.undo.topics.include[0]
        return match[1]


def turned(link: Link, suffix: str, **changes: Any) -> Turned:
    """The way back along a link. Where the link keeps names, topics that are new at its destination come along too."""
    topics = link.topics.refusing(None)
    if link.rename != "{topic}":
        topics = Topics(include=[f"/{_expression(link)}/"])
    update: dict[str, Any] = {
        "name": link.name + suffix,
        "source": link.target,
        "target": link.source,
        "topics": topics,
        "rename": "{topic}",
        "undo": link,
        "loop": None,
        "start": "earliest",
        **changes,
    }
    return Turned.model_construct(**{**link.__dict__, **update})


def could_make(link: Link, name: str) -> bool:
    """Whether a link can have a topic of this name at its destination, as far as the configuration tells."""
    if isinstance(link, Turned):
        return link.undo.topics.matches(name)
    match = re.fullmatch(_expression(link), name)
    return match is not None and link.topics.matches(match[1] if match.groups() else link.topics.include[0])


def _expression(link: Link) -> str:
    """Matches the names that a link makes; its group is the topic at the source."""
    made = fill(link.rename, topic=_MARK, source=link.source, target=link.target, link=link.name)
    return "(.+)".join(map(re.escape, made.split(_MARK)))
