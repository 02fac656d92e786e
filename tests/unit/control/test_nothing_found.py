"""A link that finds no topic: whether that is wrong."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.config import loads
from isthmus.control import topics
from isthmus.control.topics import Nothing, nothing_found
from isthmus.kafka.cluster import Cluster

BOTH_WAYS = """
sites: {east: {bootstrap: "e:1"}, west: {bootstrap: "w:1"}}
links:
  there: {from: east, to: west, topics: ["/.*/"], rename: "{source}.{topic}", loop: returning}
  back: {from: west, to: east, topics: ["/.*/"], rename: "{source}.{topic}", loop: returning}
"""


def found(monkeypatch: pytest.MonkeyPatch, *names: str, restricted: bool = False) -> Nothing:
    """What is said of the link back, if these topics are at its source."""
    config = loads(BOTH_WAYS)

    async def metadata(asked: Any) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(names))

    async def is_restricted(cluster: Any) -> bool:
        return restricted

    monkeypatch.setattr(topics, "is_restricted", is_restricted)
    source = cast("Cluster", SimpleNamespace(site=config.sites["west"], metadata=metadata))
    return asyncio.run(nothing_found(source, config.links["back"]))


def test_only_copies_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is as soon as one direction has run and nobody writes at the other site: nothing is wrong."""
    nothing = found(monkeypatch, "east.orders", "_isthmus.there.map")
    assert (nothing.amiss, nothing.needs) == (False, ())
    assert "are copies" in nothing.words


def test_nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = found(monkeypatch, "_isthmus.there.map")
    assert (nothing.amiss, nothing.needs) == (True, ())
    nothing = found(monkeypatch, restricted=True)
    assert [str(need) for need in nothing.needs] == ["site west: ALLOW READ on topic *"]
