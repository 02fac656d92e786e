"""What copies needed and the source had otherwise is named in the end, as the command that gives it back."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.config import Link, Site
from isthmus.control import configs, settings
from isthmus.control.ends import Ends
from isthmus.control.topics import Topic
from isthmus.kafka.admin import TopicConfig
from isthmus.kafka.cluster import TopicInfo

KEY, BOUND = "message.timestamp.type", "message.timestamp.before.max.ms"
NO_BOUND = str(2**63 - 1)


@pytest.mark.parametrize(
    ("source", "there", "ours", "back"),
    [
        ({BOUND: "86400000"}, {}, {}, {BOUND: "86400000"}),
        ({BOUND: "86400000"}, {BOUND: NO_BOUND}, {BOUND: NO_BOUND}, {BOUND: "86400000"}),
        ({BOUND: "86400000"}, {BOUND: "86400000"}, {}, {}),
        ({}, {BOUND: NO_BOUND}, {BOUND: NO_BOUND}, {BOUND: None}),
        ({}, {BOUND: NO_BOUND}, {}, {}),  # somebody else's
        ({}, {}, {BOUND: NO_BOUND}, {}),
    ],
)
def test_the_bound_of_old_timestamps_is_given_back(
    source: dict[str, str], there: dict[str, str], ours: dict[str, str], back: dict[str, str | None]
) -> None:
    defaults = {KEY: "CreateTime", BOUND: NO_BOUND}
    here, copy = (TopicConfig({**defaults, **own}, own) for own in (source, there))
    assert settings.given_back(here, copy, ours) == back


def test_what_copies_needed_is_given_back_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(name="l", source="old", target="new", topics=["/.*/"], rename="x.{topic}")
    kinds = {"stamped": "LogAppendTime", "plain": "CreateTime", "x.stamped": "CreateTime", "x.plain": "CreateTime"}

    async def discover(*_: Any) -> dict[str, Topic]:
        return {name: Topic(TopicInfo(name, uuid.uuid4(), {}), f"x.{name}") for name in ("stamped", "plain")}

    async def topic_configs(_: Any, names: list[str]) -> dict[str, TopicConfig]:
        own = {"x.plain": {BOUND: NO_BOUND}, "stamped": {BOUND: "86400000"}}
        return {
            name: TopicConfig({KEY: kinds[name], **own.get(name, {BOUND: "5"})}, own.get(name, {})) for name in names
        }

    async def recall(*_: Any) -> None:
        return None

    monkeypatch.setattr(configs, "discover", discover)
    monkeypatch.setattr(configs, "topic_configs", topic_configs)
    monkeypatch.setattr(configs.memory, "recall", recall)
    monkeypatch.setattr(configs.memory, "of_kind", lambda *_: {"x.plain": {BOUND: NO_BOUND}})
    sites = (SimpleNamespace(site=Site(name=name, bootstrap=[f"{name}:1", f"{name}:2"])) for name in ("old", "new"))
    ends = cast("Ends", SimpleNamespace(link=link, **dict(zip(("source", "target"), sites, strict=True))))
    found = configs.after_cut_over(ends)
    with pytest.raises(StopIteration) as ended:
        found.send(None)
    command = "kafka-configs.sh --bootstrap-server new:1,new:2 --alter --entity-type topics --entity-name"
    assert ended.value.value == [
        f"{command} x.stamped --add-config {KEY}=LogAppendTime,{BOUND}=86400000",
        f"{command} x.plain --delete-config {BOUND}",
    ]
