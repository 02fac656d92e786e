"""A registry that answers PUT /mode with 405: what a standby cannot have is said, and is no failure."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.config import loads
from isthmus.control import promote, registry_mode, schema_guard, schemas
from isthmus.control.change import Change
from isthmus.control.memory import Memory
from isthmus.kafka.loop import Loop
from strict_registry import StrictRegistry

CONFIG = """
sites:
  east: {{bootstrap: "e:1", registry: {{url: "{}"}}}}
  west: {{bootstrap: "w:1", registry: {{url: "{}"}}}}
links:
  l: {{from: east, to: west, topics: [t], sync: {{schemas: {{standby: true}}}}}}
"""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two registries with a subject at the source; brokers, which only remember, are left out."""

    async def recall(*_: Any) -> Memory:
        return Memory()

    async def remember(*_: Any) -> None:
        pass

    for module in (schemas, registry_mode, schema_guard):
        monkeypatch.setattr(module, "recall", recall, raising=False)
        monkeypatch.setattr(module, "remember", remember, raising=False)
    with StrictRegistry() as east, StrictRegistry() as west:
        west.fixed_modes = True
        body = json.dumps({"schema": '"string"'}).encode()
        request = urllib.request.Request(f"{east.url}/subjects/one/versions", body, method="POST")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
        config, loop = loads(CONFIG.format(east.url, west.url)), Loop()
        here, there = (SimpleNamespace(site=config.sites[name], loop=loop) for name in ("east", "west"))
        yield SimpleNamespace(link=config.links["l"], loop=loop, source=here, target=there)
        loop.close()


def test_apply_carries_on_and_says_what_is_not_promised(ends: Any) -> None:
    resource = schemas.Schemas()
    planned = ends.loop.run(resource.plan, ends)
    outcomes = {outcome.change.name: outcome for outcome in ends.loop.run(resource.apply, ends, planned)}
    assert {name: (outcome.done, bool(outcome.note)) for name, outcome in outcomes.items()} == {
        "*": (True, True),
        "one": (True, False),
    }
    assert "nothing holds others back from writing to it" in outcomes["*"].to_json()["note"]


@pytest.mark.parametrize(("mode", "done"), [("READONLY", True), ("READWRITE", False)])
def test_what_cannot_be_closed_stays_open_and_what_cannot_be_opened_fails(ends: Any, mode: str, done: bool) -> None:
    outcome = promote._set_mode(ends.target, Change("schemas", "*", "alter", "why", order=mode))
    assert (outcome.done, bool(outcome.note)) == (done, done)
