"""ACLs that were changed are waited for until every broker has heard of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import kafka.errors as kerrors
import pytest

import isthmus.kafka.acls as module
from isthmus.kafka.acls import Acl, wait_for_acls
from isthmus.kafka.admin import Refusal

OLD, NEW = (Acl("topic", "literal", name, "User:a", "*", "READ", "ALLOW") for name in ("old", "new"))


class Site:
    """Two brokers, of which each has its own answers in turn; the last one stays."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {int(name[1:]): list(given) for name, given in answers.items()}
        self.loop = SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0.001))

    async def metadata(self, topics: list[str]) -> Any:
        return SimpleNamespace(brokers=dict.fromkeys(self.answers))

    async def listed(self, cluster: Any, node: int | None = None) -> Any:
        assert node is not None
        some = self.answers[node]
        found = some.pop(0) if len(some) > 1 else some[0]
        if isinstance(found, Exception):
            raise found
        return found


def heard(monkeypatch: pytest.MonkeyPatch, site: Site, timeout: float = 5.0) -> bool:
    monkeypatch.setattr(module, "list_acls", site.listed)
    return asyncio.run(wait_for_acls(site, [NEW], [OLD], timeout))  # type: ignore[arg-type]


def test_the_slowest_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(b1=[[NEW]], b2=[[OLD], kerrors.KafkaConnectionError("x"), [OLD, NEW], [NEW]])
    assert heard(monkeypatch, site)
    assert site.answers == {1: [[NEW]], 2: [[NEW]]}


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not heard(monkeypatch, Site(b1=[[NEW]], b2=[[OLD, NEW]]), 0.05)
    assert not heard(monkeypatch, Site(b1=[Refusal(kerrors.ClusterAuthorizationFailedError, "")]))


def test_what_is_not_changed_is_not_asked_for() -> None:
    assert asyncio.run(wait_for_acls(Site(b1=[])))  # type: ignore[arg-type]
