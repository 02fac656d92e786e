"""What copies needed and the source had otherwise is named in the end, as the command that gives it back."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.config import Link, Site
from isthmus.control import configs
from isthmus.control.ends import Ends
from isthmus.control.topics import Topic
from isthmus.kafka.admin import TopicConfig
from isthmus.kafka.cluster import TopicInfo

KEY = "message.timestamp.type"


def test_the_type_of_timestamps_is_given_back_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(name="l", source="old", target="new", topics=["/.*/"], rename="x.{topic}")
    kinds = {"stamped": "LogAppendTime", "plain": "CreateTime", "x.stamped": "CreateTime", "x.plain": "CreateTime"}

    async def discover(*_: Any) -> dict[str, Topic]:
        return {name: Topic(TopicInfo(name, uuid.uuid4(), {}), f"x.{name}") for name in ("stamped", "plain")}

    async def topic_configs(_: Any, names: list[str]) -> dict[str, TopicConfig]:
        return {name: TopicConfig({KEY: kinds[name]}, {}) for name in names}

    monkeypatch.setattr(configs, "discover", discover)
    monkeypatch.setattr(configs, "topic_configs", topic_configs)
    sites = (SimpleNamespace(site=Site(name=name, bootstrap=[f"{name}:1", f"{name}:2"])) for name in ("old", "new"))
    ends = cast("Ends", SimpleNamespace(link=link, **dict(zip(("source", "target"), sites, strict=True))))
    found = configs.after_cut_over(ends)
    with pytest.raises(StopIteration) as ended:
        found.send(None)
    assert ended.value.value == [
        "kafka-configs.sh --bootstrap-server new:1,new:2 --alter --entity-type topics --entity-name x.stamped "
        f"--add-config {KEY}=LogAppendTime"
    ]
