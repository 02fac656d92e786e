"""The way back along a link: from its destination to its source, with names undone.

Invariant: a reversed link copies exactly the topics that the link has made, each to the name that it had; it keeps state of its own under a
name of its own, and never touches the link's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from isthmus.config import Config, Link
from isthmus.config.link import Headers
from isthmus.config.rename import fill
from isthmus.config.topics import Topics
from isthmus.rules import Identities

BACK, RESEED, STRANDED = ".back", ".reseed", ".stranded"
_MARK = "\0"


class Reversed(Link):
    """A link whose destination names are undone instead of made; ``undo`` is the template that made them."""

    undo: str = "{topic}"

    def _rename(self, name: str) -> str:
        template = fill(
            self.undo, topic=_MARK, source=self.target, target=self.source, link=self.name.rpartition(".")[0]
        )
        match = re.fullmatch("(.+)".join(map(re.escape, template.split(_MARK))), name)
        # A template without {topic} names one topic; the link says which.
        return match[1] if match and match.groups() else name


def reversed_link(link: Link, suffix: str, made: Iterable[str], **changes: Any) -> Link:
    """The way back; ``made`` are the topics that the link has written. Where it kept their names, new topics come along too."""
    topics = link.topics if link.rename == "{topic}" else Topics(include=sorted(made))
    update: dict[str, Any] = {
        "name": link.name + suffix,
        "source": link.target,
        "target": link.source,
        "topics": topics,
        "rename": "{topic}",
        "undo": link.rename,
        "loop": None,
        "start": "earliest",
        **changes,
    }
    return Reversed.model_construct(**{**link.__dict__, **update})


def reseeding(config: Config, link: Link, made: Iterable[str], lost: str, ids: Identities) -> Link:
    """The link that rebuilds ``lost``: ``link`` itself if it leads there, else the way back along it.

    ``ids`` are the clusters that the survivor (source) and the lost site (target) were.
    """
    changes: dict[str, Any] = {
        "origin": None,
        "loop": None,
        "start": "earliest",
        "headers": Headers(offset=None),
        "rules": [invert(link, lost, ids)] if link.origin is not None else [],
        "delivery": "exactly-once",
    }
    if link.target == lost:
        return link.model_copy(update={"name": link.name + RESEED, **changes})
    return reversed_link(link, RESEED, made, **changes)


def invert(link: Link, lost: str, ids: Identities) -> dict[str, dict[str, Any]]:
    """The rule that gives the lost site its records back as they were there."""
    assert link.origin is not None
    survivor = link.source if link.target == lost else link.target
    return {
        "invert": {
            "lost": lost,
            "survivor": survivor,
            "header": link.origin.header,
            "value": link.origin.value,
            "offset": link.headers.offset or "",
            "lost_ids": list(ids.target),
            "survivor_ids": list(ids.source),
        }
    }
