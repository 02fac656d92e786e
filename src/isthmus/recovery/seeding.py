"""The links that only recovery runs: those that rebuild a lost site, and the way home where the configuration has none."""

from __future__ import annotations

from typing import Any

from isthmus.config import Link
from isthmus.config.link import Headers
from isthmus.config.loop import Loop
from isthmus.config.origin import Origin
from isthmus.config.turned import BACK, RESEED, Without, turned
from isthmus.rules import Identities


def way_home(link: Link, without: Without | None = None) -> Link:
    """The way back along a link, for what its destination has written itself: with origins, so that nothing comes home twice. What is
    ``without`` the link itself has put there."""
    return turned(link, BACK, origin=link.origin or Origin(), loop=Loop(drop="returning"), without=without or {})


def reseeding(link: Link, lost: str, ids: Identities) -> Link:
    """The link that rebuilds ``lost``: ``link`` itself if it leads there, else the way back along it; with births turned round.

    ``ids`` are the clusters that the survivor (source) and the lost site (target) were.
    """
    changes: dict[str, Any] = {
        "origin": None,
        "loop": None,
        "start": "earliest",
        "headers": Headers(offset=None),
        "rules": [_invert(link, lost, ids)] if link.origin is not None else [],
        "delivery": "exactly-once",
    }
    if link.target == lost:
        return link.model_copy(update={"name": link.name + RESEED, **changes})
    return turned(link, RESEED, **changes)


def _invert(link: Link, lost: str, ids: Identities) -> dict[str, dict[str, Any]]:
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
