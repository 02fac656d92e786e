"""Which groups follow a link."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.config import Link
from isthmus.config.sync_groups import SyncGroups


def groups(value: Any) -> SyncGroups:
    link = Link.model_validate({"name": "a", "from": "x", "to": "y", "topics": ["t"], "sync": {"groups": value}})
    return link.sync.groups


def test_all_follow_unless_told_otherwise() -> None:
    usual = groups(None)
    assert usual == SyncGroups()
    assert usual.enabled
    assert usual.only_empty
    assert usual.matches("any")
    assert not usual.matches("_isthmus.link")


def test_short_forms() -> None:
    assert not groups("off").enabled
    assert groups("billing").include == groups(["billing"]).include == ["billing"]
    chosen = groups({"include": ["/app-.*/", "billing"], "exclude": "app-test", "only_empty": "no", "interval": "10s"})
    assert [chosen.matches(n) for n in ("app-1", "app-test", "billing", "billing2")] == [True, False, True, False]
    assert (chosen.only_empty, chosen.interval) == (False, 10.0)


@pytest.mark.parametrize("value", [["/(/"], [""], {"include": []}, {"every": "1m"}])
def test_mistakes(value: Any) -> None:
    with pytest.raises(ValueError, match=r"group|expression|include|every"):
        groups(value)
