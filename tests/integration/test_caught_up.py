"""*Caught up*, *nothing to do* and *nothing is wrong* are said only of what was looked at: by a task of this very run, in the topics that were copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import ResourceType
from links import (
    Message,
    compare,
    copy_until_caught_up,
    create_topic,
    delete_topic,
    faults,
    isthmus,
    numbered,
    one_link,
    produce,
    run,
    set_config,
)

from isthmus.client import Client
from isthmus.errors import DestinationMissing, DestinationRecreated
from isthmus.recovery.verify import in_this_process, verify
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def test_other_topics_of_the_same_names(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Deleted and created again with as many records, at either end: positions fit, and yet nothing of it was copied."""
    topics = [create_topic(east, unique_topic(stem)) for stem in ("again", "gone", "emptied", "foreign", "fine")]
    again, gone, emptied, foreign, fine = topics
    for topic in topics:
        produce(east, topic, numbered(10))
    setup = one_link(east, west, topics)
    copy_until_caught_up(setup)
    for topic in (again, gone):
        delete_topic(east, topic)
    for topic in (emptied, foreign):
        delete_topic(west, topic)
        create_topic(west, topic)
    create_topic(east, again)
    produce(east, again, numbered(10, 100))
    produce(west, foreign, numbered(10, 100))
    expected = {
        (again, 0): "SourceRecreated",
        (gone, 0): "SourceDeleted",
        (emptied, 0): "DestinationRecreated",
        (foreign, 0): "DestinationRecreated",
    }

    assert faults(setup) == expected  # before any run has met it
    plan = isthmus(setup, "plan", setup.link, "--json")
    blocked = {change["name"] for change in plan.document[0]["changes"] if change["action"] == "blocked"}
    assert (plan.code, blocked) == (21, {again, gone, emptied, foreign})
    assert isthmus(setup, "migrate", setup.link, "--json").code == 21

    produce(east, fine, numbered(5, 10))
    answer = run(setup, "--until-caught-up")
    told = {line["text"].split(":")[0] for line in answer.lines if line.get("event") == "error"}
    assert (answer.code, told) == (6, set(expected.values())), answer
    assert compare(east, west, fine) == 15
    assert faults(setup) == expected
    report = verify(setup.config, setup.link, workers=in_this_process)
    assert not report.clean
    assert {(f["topic"], f["partition"]): f["error"] for f in report.faults} == expected
    assert report.totals["compared"] == 15


def test_a_fault_that_was_mended_is_tried_again(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("mended"))
    create_topic(west, topic, max_message_bytes="2000")
    produce(east, topic, [Message(b"small"), Message(bytes(5000))])
    setup = one_link(east, west, [topic], compression="none")
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "RecordTooLarge"}
    set_config(west, ResourceType.TOPIC, topic, max_message_bytes="100000")
    answer = run(setup, "--until-caught-up")
    assert answer.code == 0, answer
    assert compare(east, west, topic) == 2
    assert faults(setup) == {}


def test_records_that_wait_are_told(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("waiting"))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    produce(east, topic, numbered(11))
    nothing = verify(setup.config, setup.link, workers=in_this_process)
    assert (nothing.clean, nothing.waiting) == (False, 11)
    assert nothing.verdict == "nothing was compared; 11 records wait to be copied"
    copy_until_caught_up(setup)
    produce(east, topic, numbered(3, 11))
    some = verify(setup.config, setup.link, workers=in_this_process)
    assert (some.clean, some.waiting, some.totals["compared"]) == (True, 3, 11)
    assert "3 records wait to be copied" in some.verdict


def test_the_client_answers_for_the_topic_that_holds_the_copies(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    topic = create_topic(east, unique_topic("looked-up"))
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    with Client(setup.config) as client:
        assert client.translate(setup.link, topic, 0, 3).exact
    delete_topic(west, topic)
    with Client(setup.config) as client, pytest.raises(DestinationMissing, match="isthmus reset"):
        client.translate(setup.link, topic, 0, 3)
    create_topic(west, topic)
    with Client(setup.config) as client:
        with pytest.raises(DestinationRecreated, match="isthmus reset"):
            client.translate(setup.link, topic, 0, 3)
        with pytest.raises(DestinationRecreated):
            client.translate_many(setup.link, topic, 0, [3])
