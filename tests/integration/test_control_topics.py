"""Topics and their settings follow the source: planned, applied, kept; on real clusters, judged by confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType
from links import (
    Message,
    Setup,
    admin,
    compare,
    configure,
    copy_until_caught_up,
    create_topic,
    delete_topic,
    in_threads,
    isthmus,
    new_name,
    numbered,
    one_link,
    partitions_of,
    produce,
    set_config,
    topic_config,
    topics_of,
)

import isthmus.control.topics as control_topics
from isthmus.control.configs import after_cut_over
from isthmus.control.ends import Ends
from isthmus.control.resources import apply_link, refuse_clashes
from isthmus.control.topics import Topics
from isthmus.errors import ConfigError
from isthmus.kafka.admin import create_topics
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]
ALONE = {"groups": False}  # the groups of other tests are none of ours


def plan(setup: Setup, code: int) -> dict[tuple[str, str], dict[str, Any]]:
    """The changes by resource and name; where there are several, the one that is most to do."""
    answer = isthmus(setup, "plan", "--json")
    assert answer.code == code, answer.out
    rank = ["keep", "stage", "create", "grow", "alter", "delete", "blocked"]
    changes = [change for link in answer.document for change in link["changes"]]
    changes.sort(key=lambda change: rank.index(change["action"]))
    return {(change["resource"], change["name"]): change for change in changes}


def actions(setup: Setup, code: int) -> dict[tuple[str, str], str]:
    return {key: change["action"] for key, change in plan(setup, code).items()}


def values(change: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    return {diff["key"]: (diff["before"], diff["after"]) for diff in change["diff"]}


def apply(setup: Setup, code: int = 0) -> list[dict[str, Any]]:
    answer = isthmus(setup, "apply", "--json")
    assert answer.code == code, answer.out
    return [outcome for link in answer.document for outcome in link["outcomes"]]


def unset(site: KafkaSite, topic: str, *keys: str) -> None:
    entries = [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in keys]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client = admin(site)
    client.incremental_alter_configs([resource])[resource].result(30)


def own_config(site: KafkaSite, topic: str) -> dict[str, str]:
    """What is set on the topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(site)
    found = client.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def test_plan_apply_and_nothing_left(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem = unique_topic("planned")
    new = create_topic(
        east,
        f"{stem}.new",
        4,
        segment_bytes="20000000",
        cleanup_policy="compact",
        message_timestamp_before_max_ms="86400000",
    )
    for name, there, here in (("small", 6, 2), ("large", 2, 4), ("same", 1, 1)):
        create_topic(east, f"{stem}.{name}", there)
        create_topic(west, f"copy.{stem}.{name}", here)
    create_topic(east, f"{stem}.skip")
    topics = {"include": [f"/{stem}\\..*/"], "exclude": [f"{stem}.skip"]}
    setup = one_link(east, west, topics, rename="copy.{topic}", sync=ALONE)
    before = topics_of(west)

    found = plan(setup, 20)
    copies = {name: found["topics", f"copy.{stem}.{name}"] for name in ("new", "small", "large", "same")}
    assert {name: change["action"] for name, change in copies.items()} == {
        "new": "create", "small": "grow", "large": "keep", "same": "keep",
    }  # fmt: skip
    assert len([key for key in found if key[0] == "topics"]) == 4
    assert values(copies["new"])["partitions"] == (None, "4")
    assert values(copies["new"])["segment.bytes"] == (None, "20000000")
    # The source's bound on old records would refuse what was written long before it is copied.
    assert "message.timestamp.before.max.ms" not in values(copies["new"])
    assert values(copies["small"])["partitions"] == ("2", "6")
    assert "never shrunk" in copies["large"]["why"]
    text = isthmus(setup, "plan")
    assert text.code == 20
    assert f"+ copy.{new}" in text.out
    assert "partitions: 2 → 6" in text.out
    assert "partitions: 4 there, 2 at the source" in text.out
    assert topics_of(west) == before  # planning changes nothing

    # Two at once: both succeed, whoever is first.
    link = setup.config.links[setup.link]
    for said, outcomes in in_threads([lambda: apply_link(setup.config, link)] * 2):
        assert not [outcome for outcome in outcomes if not outcome.done]
        assert not [change for change in said if change.action == "blocked"]
    assert topics_of(west) - before == {f"copy.{new}", f"_isthmus.{setup.link}.control"}
    assert [partitions_of(west, f"copy.{stem}.{name}") for name in ("new", "small", "large")] == [4, 6, 4]
    config = topic_config(west, f"copy.{new}")
    assert (config["segment.bytes"], config["cleanup.policy"]) == ("20000000", "compact")
    assert config["message.timestamp.type"] == "CreateTime"
    assert set(actions(setup, 0).values()) == {"keep"}
    assert apply(setup) == []


def test_a_topic_that_grows_while_a_plan_is_made_is_not_blocked(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(east, unique_topic("grown"), 6)
    create_topic(west, topic, 2)
    setup = one_link(east, west, [topic], sync=ALONE)
    ask, client = control_topics.create_partitions, admin(west)

    async def too_late(*given: Any, **how: Any) -> Any:
        if partitions_of(west, topic) == 2:
            client.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
        return await ask(*given, **how)

    monkeypatch.setattr(control_topics, "create_partitions", too_late)
    said, outcomes = apply_link(setup.config, setup.config.links[setup.link])
    assert {change.name: change.action for change in said if change.resource == "topics"} == {topic: "keep"}
    assert all(outcome.done for outcome in outcomes)


def test_a_link_that_finds_no_topic_is_no_success(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, absent = create_topic(east, unique_topic("found")), unique_topic("absent")
    setup = one_link(east, west, [f"/{absent}\\..*/"], sync=ALONE)
    words = f"no topic at site {east.name} matches /{absent}\\..*/"
    change = plan(setup, 21)["topics", "*"]
    assert change["why"].startswith(words)
    assert change["needs"] == []  # there is nobody to ask
    for verb in ("plan", "apply", "migrate"):
        told = isthmus(setup, verb, setup.link)
        assert (told.code, words in told.out) == (21, True), told
    told = isthmus(setup, "config", "check", "--live")
    assert told.code == 0
    assert f"warning: {setup.path}:" in told.err
    assert words in told.err
    assert words in isthmus(setup, "config", "check", "--live", "--json").document["warnings"][0]["problem"]

    # Of several names, one that is not there is told, and the others are copied.
    setup = one_link(east, west, [topic, absent], sync=ALONE)
    told = isthmus(setup, "plan")
    assert told.code == 20
    assert f"{absent} does not exist at site {east.name} (yet)" in told.out
    assert plan(one_link(east, west, [absent], sync=ALONE), 21)["topics", "*"]["action"] == "blocked"


def test_settings_follow(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("settings"), segment_bytes="20000000")
    setup = one_link(east, west, [topic], sync=ALONE)
    copy_until_caught_up(setup)  # the planner of leases creates by the same rules, and remembers
    assert actions(setup, 0) == {("topics", topic): "keep", ("configs", topic): "keep"}

    set_config(west, ResourceType.TOPIC, topic, flush_ms="5000")  # an operator's own
    set_config(east, ResourceType.TOPIC, topic, segment_bytes="30000000", retention_bytes="123456789")
    change = plan(setup, 20)["configs", topic]
    assert values(change) == {"segment.bytes": ("20000000", "30000000"), "retention.bytes": (None, "123456789")}
    assert own_config(west, topic)["segment.bytes"] == "20000000"
    assert [outcome["done"] for outcome in apply(setup)] == [True]
    settled = {"retention.ms": "-1", "message.timestamp.type": "CreateTime", "flush.ms": "5000"}
    assert own_config(west, topic) == {**settled, "segment.bytes": "30000000", "retention.bytes": "123456789"}
    actions(setup, 0)

    # Removed at the source: what we set goes, what the operator set or has changed since stays.
    set_config(west, ResourceType.TOPIC, topic, retention_bytes="5")
    unset(east, topic, "segment.bytes", "retention.bytes")
    assert values(plan(setup, 20)["configs", topic]) == {"segment.bytes": ("30000000", None)}
    apply(setup)
    assert own_config(west, topic) == {**settled, "retention.bytes": "5"}
    assert apply(setup) == []

    # What the operator has set is told, with both values; what decides how long records are kept is told unasked.
    told = isthmus(setup, "plan")
    assert told.code == 0
    assert "retention.bytes: 5 there, -1 at the source" in told.out
    assert "retention.bytes is 5 there and -1 at the source; it was not set by this link, and is kept" in told.out
    assert "flush.ms" not in told.out
    assert "flush.ms is 5000 there and" in isthmus(setup, "plan", "--all").out

    # Left alone where the configuration says so.
    set_config(east, ResourceType.TOPIC, topic, segment_ms="600000", retention_ms="7200000")
    for options, keys in (
        ({"deny": "segment.ms"}, {"retention.ms"}),
        ({"allow": ["segment.ms"]}, {"segment.ms"}),
        ({"serverless": True}, {"retention.ms"}),
    ):
        setup_with = one_link(east, west, [topic], setup.link, sync={**ALONE, "configs": options})
        changed = [c for c in isthmus(setup_with, "plan", "--json").document[0]["changes"] if c["action"] == "alter"]
        assert {diff["key"] for change in changed for diff in change["diff"]} == keys
    off = one_link(east, west, [topic], setup.link, sync={**ALONE, "configs": "off"})
    assert actions(off, 0) == {("topics", topic): "keep"}


def test_what_cannot_be_is_blocked_and_explained(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem = unique_topic("blocked")
    names = ("stamped", "tight", "lost", "dotted.x", "absurd")
    stamped, tight, lost, dotted, absurd = (create_topic(east, f"{stem}-{name}") for name in names)
    create_topic(west, stamped, message_timestamp_type="LogAppendTime")
    create_topic(west, tight, max_message_bytes="1000")
    create_topic(west, f"{stem}-dotted_x")
    # Another site would not take this one: with a rename, its name becomes too long.
    produce(east, lost, numbered(10))
    setup = one_link(east, west, [stamped, tight, lost, dotted, absurd], sync=ALONE)
    copy_until_caught_up(one_link(east, west, [lost], setup.link))
    delete_topic(west, lost)
    found = plan(setup, 21)
    assert {key: change["action"] for key, change in found.items()} == {
        ("topics", stamped): "keep",
        ("configs", stamped): "blocked",
        ("topics", tight): "keep",
        ("configs", tight): "blocked",
        ("topics", lost): "blocked",
        ("topics", dotted): "blocked",
        ("topics", absurd): "create",
    }
    assert "replace the records' times" in found["configs", stamped]["why"]
    assert "refuse large records" in found["configs", tight]["why"]
    assert f"isthmus reset {setup.link} {lost} --to earliest" in found["topics", lost]["why"]
    assert f"{stem}-dotted_x" in found["topics", dotted]["why"]
    # What can be done is done all the same.
    assert [(o["name"], o["done"]) for o in apply(setup, 21)] == [(absurd, True)]
    assert absurd in topics_of(west)
    assert lost not in topics_of(west)

    # Two links that would write one topic, which the file alone does not show: their expressions refer to a group.
    both = {name: {"from": east.name, "to": west.name, "topics": [f"/(){absurd}\\1{tail}/"], "sync": ALONE}
            for name, tail in ((new_name(), ""), (new_name(), ".?"))}  # fmt: skip
    clashing = configure({east.name: east, west.name: west}, both)
    clash = plan(clashing, 21)["topics", absurd]
    assert clash["action"] == "blocked"
    assert "writes this topic too" in clash["why"]
    with pytest.raises(ConfigError, match=f"would write topic {absurd} of site {west.name} together"):
        refuse_clashes(clashing.config, [clashing.link])
    refuse_clashes(setup.config, [setup.link])

    # Two links that would copy one topic to each other for ever, as only the sites can tell.
    ways = ((east, west, f"/(){absurd}\\1/"), (west, east, f"/(){absurd}\\1()/"))
    round_and_round = configure(
        {east.name: east, west.name: west},
        {new_name(): {"from": a.name, "to": b.name, "topics": [entry], "sync": ALONE} for a, b, entry in ways},
    )
    with pytest.raises(ConfigError, match=f'what is born at site "west" in topic "{absurd}" comes home'):
        refuse_clashes(round_and_round.config, [round_and_round.link])
    answer = isthmus(round_and_round, "plan")
    assert (answer.code, "comes home" in answer.err) == (3, True), answer


def test_an_apply_that_dies_half_way(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = unique_topic("half")
    names = [create_topic(east, f"{stem}.{n}", segment_bytes="20000000") for n in range(3)]
    setup = one_link(east, west, [f"/{stem}.*/"], sync=ALONE)

    async def die(cluster: Any, topics: list[Any], validate_only: bool = False) -> Any:
        if validate_only:
            return await create_topics(cluster, topics, validate_only)
        await create_topics(cluster, topics[:1])
        raise SystemError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("isthmus.control.topics.create_topics", die)
        assert isthmus(setup, "apply").code == 1
    done = {name for name in names if name in topics_of(west)}
    assert len(done) == 1
    assert {key[1] for key, action in actions(setup, 20).items() if action == "create"} == set(names) - done
    apply(setup)
    assert set(actions(setup, 0).values()) == {"keep"}
    # It has not forgotten what it set before it died: removed at the source, it is removed here.
    for name in names:
        unset(east, name, "segment.bytes")
    apply(setup)
    assert ["segment.bytes" in own_config(west, name) for name in names] == [False] * 3


def test_the_source_changes_while_applying(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem = unique_topic("moving")
    gone, half = (create_topic(east, f"{stem}.{name}", 2) for name in ("gone", "half"))
    setup = one_link(east, west, [f"/{stem}.*/"], sync=ALONE)
    link = setup.config.links[setup.link]

    with Ends(link, setup.config.sites[east.name], setup.config.sites[west.name]) as ends:
        changes = ends.loop.run(Topics().plan, ends)
        assert {change.name: change.action for change in changes} == {gone: "create", half: "create"}
        # Between plan and apply: one is deleted at the source, another apply has died half-way, a third appears.
        delete_topic(east, gone)
        create_topic(west, half, 2)
        late = create_topic(east, f"{stem}.late")
        assert all(outcome.done for outcome in ends.loop.run(Topics().apply, ends, changes))
    assert {gone, half} <= topics_of(west)
    assert actions(setup, 20)["topics", late] == "create"
    apply(setup)
    assert {key[1] for key, action in actions(setup, 0).items() if action == "keep"} >= {half, late}


def test_a_destination_whose_defaults_would_refuse_or_change_records(
    east: KafkaSite, make_site: Callable[..., KafkaSite], unique_topic: Name
) -> None:
    strict = {
        "message.max.bytes": "100000",
        "log.message.timestamp.before.max.ms": "86400000",
        "log.message.timestamp.type": "LogAppendTime",
    }
    tight = make_site(config=strict)
    fresh, existing = (create_topic(east, unique_topic(stem)) for stem in ("fresh", "existing"))
    create_topic(tight, existing)
    for topic in (fresh, existing):
        old = [Message(b"old", timestamp=1_500_000_000_000 + n) for n in range(10)]
        produce(east, topic, [*old, Message(b"x" * 300_000)])
    setup = one_link(east, tight, [fresh, existing], sync=ALONE)
    apply(setup)  # secures the one that exists
    assert set(actions(setup, 0).values()) == {"keep"}
    copy_until_caught_up(setup)
    assert [compare(east, tight, topic) for topic in (fresh, existing)] == [11, 11]
    # What the link has set so that old records are taken is for the time of copying.
    with Ends.of(setup.config, setup.config.links[setup.link]) as ends:
        commands = ends.loop.run(after_cut_over, ends)
    told = [f"--entity-name {topic} --delete-config message.timestamp.before.max.ms" for topic in (fresh, existing)]
    assert [command.partition("topics ")[2] for command in sorted(commands, key=lambda c: existing in c)] == told
