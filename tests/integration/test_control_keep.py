"""Resources are kept in step while data flows, trouble with one of them stops nothing, and a migration is one command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ResourceType
from links import (
    QUIET,
    Answer,
    Run,
    Setup,
    changed,
    compare,
    create_topic,
    new_name,
    numbered,
    one_link,
    produce,
    read,
    send,
    set_config,
    topic_config,
    transaction,
    wait_for,
    wait_for_records,
)
from readers import commit, committed, member, read_on

from isthmus.control.keep import Keeper
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def test_run_keeps_settings_and_groups_in_step_and_tells_of_it(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    topic, group = create_topic(east, unique_topic("kept"), segment_bytes="20000000"), new_name("kept")
    # The sites have no registry and no authoriser: schemas and ACLs have nothing to say, and disturb nobody.
    groups = {"include": [group], "interval": "1s"}
    sync = {"groups": groups, "acls": {"interval": "1s"}, "configs": {"interval": "1s"}}
    setup = one_link(east, west, [topic], sync=sync)
    document = json.loads(setup.path.read_text())
    setup.path.write_text(json.dumps({**document, "metrics": {"listen": 9464, "token": "s3cret"}}))
    produce(east, topic, numbered(100))
    commit(east, group, {(topic, 0): 40})
    with Run(setup, "--metrics", "0") as running:
        wait_for_records(west, topic, 100)
        assert topic_config(west, topic)["segment.bytes"] == "20000000"
        set_config(east, ResourceType.TOPIC, topic, segment_bytes="30000000")
        wait_for(lambda: topic_config(west, topic)["segment.bytes"] == "30000000", "the changed setting")
        wait_for(lambda: committed(west, group, topic).offset >= 40, "the group's position")
        address = re.search(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", running.so_far().err)
        assert address is not None

        def told() -> str:
            request = urllib.request.Request(address[1], headers={"Authorization": "Bearer s3cret"})
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
                return str(answer.read().decode())

        partition = f'link="{setup.link}",topic="{topic}",partition="0"'
        wait_for(lambda: f"isthmus_lag_seconds{{{partition}}} 0\n" in told(), "lag in seconds")
        assert f"isthmus_position{{{partition}}} 100\n" in told()
        assert f'isthmus_control_changes_total{{link="{setup.link}",resource="topics",action="create"}} 1\n' in told()
        written = f'isthmus_group_offsets_committed_total{{link="{setup.link}",group="{group}"}} '
        assert int(told().partition(written)[2].partition("\n")[0]) >= 1
        running.interrupt()
        answer = running.finish()
    assert answer.code == 130, answer
    assert "s3cret" not in answer.out + answer.err
    assert {"event": "info", "link": setup.link, "text": "configs: 1 altered"} in answer.lines
    assert read_on(west, group, topic)[0] == [record.value for record in read(east, topic)[0][40:]]
    assert compare(east, west, topic) == 100


def test_trouble_with_one_resource_leaves_the_others(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("troubled"))
    create_topic(west, topic)
    setup = one_link(east, west, [topic], sync={"groups": False, "configs": {"interval": "200ms"}})
    link = setup.config.links[setup.link]
    here, there = setup.config.sites[east.name], setup.config.sites[west.name]
    keeper = Keeper(link, here, there)
    keeper.start()
    try:
        # What cannot be is told once, however often it is met, and so is its end.
        set_config(west, ResourceType.TOPIC, topic, message_timestamp_type="LogAppendTime")
        told: list[str] = []

        def heard(words: str) -> bool:
            told.extend(news.text for news in keeper.news())
            return any(words in text for text in told)

        wait_for(lambda: heard("replace the records' times"), "news of the trouble")
        set_config(east, ResourceType.TOPIC, topic, segment_bytes="30000000")
        wait_for(lambda: topic_config(west, topic)["segment.bytes"] == "30000000", "the setting that can be")
        set_config(west, ResourceType.TOPIC, topic, message_timestamp_type="CreateTime")
        wait_for(lambda: heard("in step again"), "news of its end")
        assert len([text for text in told if "replace the records' times" in text]) == 1
    finally:
        keeper.stop()
    assert not keeper._thread.is_alive()


def migrate(setup: Setup, *arguments: str, for_people: bool = False) -> Answer:
    program, form = Path(sys.executable).with_name("isthmus"), [] if for_people else ["--json"]
    done = subprocess.run(
        [str(program), "migrate", setup.link, *arguments, *form, "--config", str(setup.path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def test_a_whole_migration(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem, group = unique_topic("migrated"), unique_topic("group")
    orders, states = f"{stem}.orders", f"{stem}.states"
    create_topic(east, orders, 2, segment_bytes="20000000")
    had = {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "86400000"}
    create_topic(east, states, cleanup_policy="compact", **{key.replace(".", "_"): value for key, value in had.items()})
    produce(east, orders, numbered(600) + numbered(400, partition=1))
    with transaction(east, commit=False) as producer:  # takes offsets, and is no record
        send(producer, orders, numbered(50))
    produce(east, states, numbered(100))
    reader = Consumer({"bootstrap.servers": east.admin_bootstrap, **QUIET, "group.id": group})
    reader.commit(offsets=[TopicPartition(orders, 0, 500), TopicPartition(orders, 1, 400)], asynchronous=False)
    reader.close()
    sync = {"groups": [group]}
    setup = one_link(east, west, [f"/{stem}.*/"], rename="new.{topic}", sync=sync)
    answer = migrate(setup)
    assert answer.code == 0, answer
    report = answer.document
    assert report["done"] is True
    assert {c["topic"]: (c["source"], c["copied"], c["destination"]) for c in report["counts"]} == {
        orders: (1000, 1000, 1000),
        states: (100, 100, 100),
    }
    assert compare(east, west, orders, f"new.{orders}") == 1000
    assert topic_config(west, f"new.{orders}")["segment.bytes"] == "20000000"
    moved = Consumer({"bootstrap.servers": west.admin_bootstrap, **QUIET, "group.id": group})
    places = moved.committed([TopicPartition(f"new.{orders}", p) for p in (0, 1)], timeout=30)
    moved.close()
    there = read(west, f"new.{orders}")
    assert [sum(r.offset < place.offset for r in there[place.partition]) for place in places] == [500, 400]
    # What copies needed and the source had otherwise is given back by the command that the report ends with.
    assert topic_config(west, f"new.{states}")["message.timestamp.type"] == "CreateTime"
    (command,) = report["after_cut_over"]
    words = command.split()
    assert words[words.index("--bootstrap-server") + 1] in west.bootstrap
    assert words[words.index("--entity-name") + 1] == f"new.{states}"
    back = dict(each.split("=") for each in words[words.index("--add-config") + 1].split(","))
    set_config(west, ResourceType.TOPIC, f"new.{states}", **{key.replace(".", "_"): v for key, v in back.items()})
    assert had.items() <= topic_config(west, f"new.{states}").items()
    # A topic that cannot be had stops it before anything is copied.
    create_topic(east, f"{stem}.un_wanted")
    create_topic(west, f"new.{stem}.un.wanted")
    refused = migrate(setup)
    assert refused.code == 21, refused
    assert "counts" not in refused.document


def test_a_migration_that_leaves_groups_is_not_done(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """What stays to be done is in the report and in the exit code: readers that are still there, and names that are wrong."""
    topic, busy, typo = create_topic(east, unique_topic("left-behind")), unique_topic("busy"), unique_topic("typo")
    produce(east, topic, numbered(20))
    commit(east, busy, {(topic, 0): 15})
    setup = one_link(east, west, [topic], sync={"groups": [busy, typo]})
    with member(east, busy, topic):
        answer = migrate(setup)
        told = migrate(setup, "--no-count", for_people=True)
    assert answer.code == 20, answer
    report = answer.document
    assert (report["done"], report["groups"]) == (False, [])
    assert {row["name"]: row["why"] for row in report["groups_left"]} == {
        busy: "it has members at the source (Stable) and only_empty is set",
        typo: f"no such group at site {east.name}",
    }
    assert told.code == 20, told
    for row in report["groups_left"]:
        assert f"{row['name']}: {row['why']}" in told.out
    assert "0 groups moved, 2 left;" in told.err.splitlines()[-1]
    assert committed(west, busy, topic).offset < 0
    # The reader is gone, the name is mended: now it is done.
    again = migrate(changed(setup, sync={"groups": [busy]}))
    assert (again.code, again.document["done"], again.document["groups_left"]) == (0, True, [])
    assert [value.split()[1] for value in read_on(west, busy, topic)[0]] == [b"%d" % n for n in range(15, 20)]
