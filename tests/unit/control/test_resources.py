"""One resource that fails is a line of the plan, and no end of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from isthmus.control.change import Change
from isthmus.control.ends import Ends
from isthmus.control.resources import applied, planned

ENDS = cast("Ends", SimpleNamespace(link=SimpleNamespace(name="l")))


class Broken:
    name = "acls"

    async def plan(self, ends: Ends) -> list[Change]:
        raise IndexError("nobody thought of that")

    async def apply(self, ends: Ends, changes: list[Change]) -> Any:
        raise IndexError("nor of that")


def test_an_unexpected_error_is_a_blocked_change_of_its_resource() -> None:
    (change,) = asyncio.run(planned(Broken(), ENDS))
    assert (change.resource, change.name, change.action) == ("acls", "*", "blocked")
    assert "unexpected IndexError: nobody thought of that (test_resources.py:" in change.why


def test_an_unexpected_error_leaves_changes_in_doubt() -> None:
    todo = [Change("acls", name, "create", "") for name in ("a", "b")]
    outcomes = asyncio.run(applied(Broken(), ENDS, todo))
    assert [outcome.change.name for outcome in outcomes] == ["a", "b"]
    assert all("broke off: unexpected IndexError: nor of that" in outcome.error for outcome in outcomes)
