"""What a link keeps in its group, restored from records of its own topics."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

from isthmus.config import Link
from isthmus.engine.lines import (
    CLAIM,
    WISHES,
    claim_thing,
    from_map,
    kept_claim,
    kept_control,
    position_record,
    wishes_thing,
)
from isthmus.engine.offset_map import build_maps
from isthmus.engine.state import Claim, Control, Progress
from isthmus.engine.table import Table

LINK = Link.model_validate(
    {"name": "link", "from": "east", "to": "west", "topics": ["/t.*/"], "rename": "copy.{topic}"}
)


def stands(**things: Any) -> Table:
    table = Table()
    table.update(json.loads(json.dumps(things)))
    return table


def test_claim_and_wishes_come_back_from_the_control_topic() -> None:
    claim = Claim(7, "run", "host:1", "a", "b", 4, True)
    control = Control(True, 1000, True, 3, "run", "held", 9, "mark")
    table = stands(**claim_thing(claim.commit()), **wishes_thing(control))
    assert set(table) == {CLAIM, WISHES}
    assert kept_claim(table) == claim
    assert kept_control(table) == control
    assert kept_claim(Table()) is None
    assert kept_control(Table()) == Control()


def test_wishes_of_the_version_before_are_read() -> None:
    old = {"paused": True, "rate_limit": None, "rate_overridden": False, "held": ""}
    assert kept_control(stands(**{WISHES: old})) == Control(paused=True)
    # What is not set is not written: the version before knows nothing of it.
    assert set(wishes_thing(Control())[WISHES]) == {*old, "deal"}


def test_the_map_alone_tells_where_each_partition_goes_on() -> None:
    one = Progress(20, "t1", "a", uuid.uuid4(), uuid.uuid4())
    two, other = replace(one, offset=0, source_topic="t2"), replace(one, source_topic="elsewhere")
    maps = build_maps([position_record(one, 0), position_record(two, 3), position_record(other, 0)])
    claim = Claim(1, "run", source_cluster="a")
    assert from_map(LINK, claim, {}, maps) == {("copy.t1", 0): one, ("copy.t2", 3): two}
    # What the group knows, under whatever name, wins.
    assert from_map(LINK, claim, {("old.t1", 0): one.commit()}, maps) == {("copy.t2", 3): two}
