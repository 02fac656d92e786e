"""What an emergency tells of groups that nobody has followed, before somebody relies on them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.config import load
from isthmus.recovery.failover import Emergency

CONFIG = """
sites:
  east: {{bootstrap: "127.0.0.1:1"}}
  west: {{bootstrap: "127.0.0.1:2"}}
links:
  there: {{from: east, to: west, topics: [orders], sync: {{groups: {groups}}}}}
"""


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("{only_empty: false}", ""),
        ("{}", "those that were reading at east have no position here, or an old one"),
        ("off", "sync.groups is off"),
    ],
)
def test_groups_that_were_not_followed(tmp_path: Path, groups: str, words: str) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text(CONFIG.format(groups=groups))
    operation: Any = SimpleNamespace(stage=SimpleNamespace(config=load(path)))
    told = Emergency(operation, "east", "west", None)._not_followed()
    assert (words in told[0]) if words else not told
