"""Asking the sites names each right that is missing, and each of which a guarded site does not tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.config import loads
from isthmus.engine import check

CONFIG = "sites: {a: {bootstrap: 'a:1'}, b: {bootstrap: 'b:1'}}\nlinks: {l: {from: a, to: b, topics: [x]}}\n"


class _Ends:
    loop = SimpleNamespace(run=lambda work, ends: work(ends))

    @classmethod
    def of(cls, *_: Any) -> _Ends:
        return cls()

    def __enter__(self) -> _Ends:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_rights_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = loads(CONFIG)
    missing = {"site b: ALLOW WRITE on topic x for User:me", "site a: ALLOW READ on topic x for User:me"}
    untold = {"site b: ALLOW READ on group _isthmus. (prefixed) for User:me"}
    monkeypatch.setattr(check, "Ends", _Ends)
    monkeypatch.setattr(check, "lacking", lambda _: (missing, untold))
    monkeypatch.setattr(check, "is_restricted", lambda cluster: cluster.site.name == "b")  # a has no authoriser
    clusters: Any = {
        name: SimpleNamespace(site=site, cluster_id=name, call=lambda work, *args: work(*args))
        for name, site in config.sites.items()
    }
    found = check._check_rights(config, config.links["l"], clusters)
    assert [(p.loc[-1], p.warning) for p in found] == [("to", False), ("to", True)]
    assert found[0].problem == "a right is missing: site b: ALLOW WRITE on topic x for User:me"
    assert found[0].hint.endswith("--add --allow-principal User:me --operation Write --topic x")
    assert "does not tell whether we have a right" in found[1].problem
