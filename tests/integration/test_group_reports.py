"""What is told of groups is what was done: nothing counts as written that was not, and no name that is wrong passes in silence.

Positions are committed and judged by confluent-kafka; only the verbs and ``isthmus.client`` are ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from links import (
    Setup,
    changed,
    configure,
    copy_until_caught_up,
    create_topic,
    delete_records,
    isthmus,
    new_name,
    numbered,
    one_link,
    produce,
    send,
    transaction,
)
from readers import commit, committed, member, positions, read_on, sync

from isthmus.client import Client
from isthmus.errors import DataError
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def planned(setup: Setup) -> dict[str, dict[str, Any]]:
    """What ``isthmus plan`` says of groups, by name."""
    changes = isthmus(setup, "plan", setup.link, "--json").document[0]["changes"]
    return {change["name"]: change for change in changes if change["resource"] == "groups"}


# -- a position never comes before the records ----------------------------------------------------------------------


def test_a_position_waits_for_the_records(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Plan and apply say the same of a topic that has no copies yet, whether or not it is there already."""
    topic, group = create_topic(east, unique_topic("early"), 4), new_name("early")
    produce(east, topic, numbered(10))
    produce(east, topic, numbered(5, partition=1))
    delete_records(east, topic, {1: 5})
    # Partition 0 has records, 1 had some, 2 never had any; of 3 nobody knows yet how its transaction ends.
    setup = one_link(east, west, [topic], sync={"groups": [group]})
    with transaction(east) as producer:
        send(producer, topic, numbered(3, partition=3))
        commit(east, group, {(topic, 0): 8, (topic, 1): 5, (topic, 2): 0, (topic, 3): 2})
        assert {change["action"] for change in planned(setup).values()} == {"keep"}
        applied = isthmus(setup, "apply", "--json")
        assert applied.code == 0, applied
        # What could be read again is not there yet, so there is no position; elsewhere nothing can be.
        assert {p: place.offset for (_, p), place in positions(west, group).items()} == {1: 0, 2: 0}
        told = planned(setup)
        for p in (0, 3):
            row = told[f"{group} {topic}[{p}]"]
            assert row["action"] == "keep"
            assert row["why"] == f"nothing of {topic}[{p}] is copied yet; the position follows its records"
        assert isthmus(setup, "plan", setup.link).code == 0
    copy_until_caught_up(setup)
    assert sync(setup)[group]["action"] in ("create", "alter")
    got = read_on(west, group, topic)
    assert {p: [value.split()[1] for value in values] for p, values in got.items()} == {0: [b"8", b"9"], 3: [b"2"]}
    assert planned(setup)[group]["why"] == "in place"


def test_a_position_waits_where_a_link_goes_the_other_way(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """The other link has run, and has brought nothing of this topic: that is no reason to be early."""
    topic, group, back = unique_topic("early-both"), new_name("early"), new_name("back")
    for site in (east, west):
        create_topic(site, topic)
    common = {"topics": [topic], "loop": "returning", "sync": {"groups": [group]}}
    links = {
        new_name("out"): {"from": east.name, "to": west.name, **common},
        back: {"from": west.name, "to": east.name, **common},
    }
    setup = configure({east.name: east, west.name: west}, links)
    copy_until_caught_up(setup, back)
    produce(east, topic, numbered(10))
    commit(east, group, {(topic, 0): 8})
    told = sync(setup, "--link", setup.link)
    assert "the position follows its records" in told[f"{group} {topic}[0]"]["why"]
    assert positions(west, group) == {}
    copy_until_caught_up(setup)
    sync(setup, "--link", setup.link)
    assert [value.split()[1] for value in read_on(west, group, topic)[0]] == [b"8", b"9"]


# -- positions from files -----------------------------------------------------------------------------------------------


def test_an_import_tells_what_became_of_each_position(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, tmp_path: Path
) -> None:
    topic, ahead, outside, both = create_topic(west, unique_topic("in"), 2), *map(new_name, ("ahead", "out", "both"))
    produce(west, topic, numbered(100) + numbered(100, partition=1))
    delete_records(west, topic, {1: 30})
    setup = one_link(east, west, [topic])
    commit(west, ahead, {(topic, 0): 40, (topic, 1): 60})
    file = tmp_path / "positions.csv"
    rows = [
        (ahead, topic, 0, 20), (ahead, topic, 1, 60), (outside, topic, 0, 101), (outside, topic, 1, 29),
        (both, topic, 0, 100), (both, "no.such.topic", 0, 1), (both, topic, 7, 1),
    ]  # fmt: skip
    file.write_text("".join(f"{','.join(map(str, row))}\n" for row in rows))

    answer = isthmus(setup, "groups", "import", str(file), "--json")
    assert answer.code == 6, answer
    told = {row["group"]: row for row in answer.document}
    counts = {name: (row["written"], row["kept"], row["refused"]) for name, row in told.items()}
    assert counts == {ahead: (0, 2, 0), outside: (0, 0, 2), both: (1, 0, 2)}
    assert told[ahead]["reasons"] == [f"{topic}[0]: at 40 there, which is further than 20; --rewind moves it back"]
    for reason, (p, offset, start) in zip(told[outside]["reasons"], ((0, 101, 0), (1, 29, 30)), strict=True):
        words = f"offset {offset} is outside of the log, which goes from {start} to 100; --force writes it all the same"
        assert reason == f"{topic}[{p}]: {words}"
    assert told[both]["reasons"] == [
        f"no.such.topic[0]: site {west.name} has no topic no.such.topic",
        f"{topic}[7]: topic {topic} has 2 partitions at site {west.name}",
    ]
    assert {p: place.offset for (_, p), place in positions(west, ahead).items()} == {0: 40, 1: 60}
    assert positions(west, outside) == {}
    assert committed(west, both, topic).offset == 100

    shown = isthmus(setup, "groups", "import", str(file))
    assert shown.code == 6
    assert f"{ahead}: {told[ahead]['reasons'][0]}" in shown.out
    assert "4 of 7 positions were refused" in shown.err

    forced = isthmus(setup, "groups", "import", str(file), "--rewind", "--force", "--json").document
    counts = {row["group"]: (row["written"], row["kept"], row["refused"]) for row in forced}
    assert counts == {ahead: (2, 0, 0), outside: (2, 0, 0), both: (1, 0, 2)}
    assert committed(west, ahead, topic).offset == 20
    assert committed(west, outside, topic).offset == 101
    # A group with members is theirs, in a file as elsewhere.
    with member(west, ahead, topic):
        (row,) = [
            row
            for row in isthmus(setup, "groups", "import", str(file), "--rewind", "--json").document
            if row["group"] == ahead
        ]
    assert (row["written"], row["refused"]) == (0, 2)
    assert "has members there now" in row["reasons"][0]


@pytest.mark.parametrize("text", ["", "group,topic,partition,offset,metadata\n", "[]"])
def test_a_file_without_positions(east: KafkaSite, west: KafkaSite, tmp_path: Path, text: str) -> None:
    file = tmp_path / "nothing"
    file.write_text(text)
    answer = isthmus(one_link(east, west, ["t"]), "groups", "import", str(file))
    assert (answer.code, answer.out) == (2, "")
    assert f"{file}: there are no positions in it" in answer.err


# -- names that do not exist, and groups that do not follow ----------------------------------------------------------------


def test_names_that_do_not_exist(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, group, typo = create_topic(east, unique_topic("named")), new_name("named"), new_name("typo")
    produce(east, topic, numbered(3))
    setup = one_link(east, west, [topic], sync={"groups": [group, typo]})
    commit(east, group, {(topic, 0): 2})
    copy_until_caught_up(setup)
    missing = f"no such group at site {east.name}"
    change = planned(setup)[typo]
    assert (change["action"], change["why"]) == ("keep", missing)
    assert missing in isthmus(setup, "plan", setup.link).out, "without --all, too"
    assert sync(setup)[typo]["why"] == missing
    assert committed(west, group, topic).offset == 2

    words = f"group {typo} has committed no offset of a topic of link {setup.link} at site {east.name}"
    for verb in ("translate", "export"):
        answer = isthmus(setup, "groups", verb, typo, "--json")
        assert (answer.code, answer.document["message"]) == (6, words)
    at_site = isthmus(setup, "groups", "export", typo, "--site", east.name)
    assert (at_site.code, at_site.out) == (6, "")
    assert f"group {typo} has committed no offset at site {east.name}" in at_site.err
    with Client(setup.config) as client, pytest.raises(DataError) as raised:
        client.translate_group(setup.link, typo)
    assert raised.value.message == words


def test_a_list_has_also_those_that_do_not_follow(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, stem = create_topic(east, unique_topic("listed")), new_name("listed")
    follows, excluded, busy, other = (f"{stem}-{name}" for name in ("follows", "excluded", "busy", "other"))
    produce(east, topic, numbered(3))
    options = {"include": [f"/{stem}-(follows|excluded|busy)/"], "exclude": [excluded]}
    setup = one_link(east, west, [topic], sync={"groups": options})
    copy_until_caught_up(setup)
    for group in (follows, excluded, busy, other):
        commit(east, group, {(topic, 0): 2})
    with member(east, busy, topic):
        listed = {row["group"]: row for row in isthmus(setup, "groups", "list", "--json").document}
        shown = isthmus(setup, "groups", "list")
    assert {name: (row["to_write"], row["left_alone"]) for name, row in listed.items()} == {
        follows: (1, ""),
        excluded: (0, "sync.groups.exclude leaves it out"),
        other: (0, "sync.groups.include leaves it out"),
        busy: (0, "it has members at the source (Stable) and only_empty is set"),
    }
    assert not [key for row in listed.values() for key in row if " " in key]
    assert f"{excluded}: sync.groups.exclude leaves it out" in shown.out
    off = changed(setup, sync={"groups": False})
    assert "groups: off" in isthmus(off, "groups", "list").err


def test_what_a_position_lands_on(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """The end of a log, or the place of an aborted record, is where a group should go on; what is shown says so."""
    topic, group = create_topic(east, unique_topic("lands"), 3), new_name("lands")
    produce(east, topic, numbered(10) + numbered(10, partition=1))
    with transaction(east, commit=False) as producer:
        send(producer, topic, numbered(5, partition=2))
    produce(east, topic, numbered(5, partition=2))
    setup = one_link(east, west, [topic], sync={"groups": [group]})
    copy_until_caught_up(setup)
    commit(east, group, {(topic, 0): 4, (topic, 1): 10, (topic, 2): 3})
    rows = isthmus(setup, "groups", "translate", group, "--json").document["partitions"]
    assert [(row["exact"], row["lands_on"]) for row in rows] == [
        (True, "that record"),
        (False, "the end"),
        (False, "the next record"),
    ]
    shown = isthmus(setup, "groups", "translate", group).out
    for words in ("lands on", "that record", "the end", "the next record"):
        assert words in shown
    assert "exact" not in shown
    asked = isthmus(setup, "groups", "export", group, "--json")
    assert json.loads(asked.out) == isthmus(setup, "groups", "export", group, "--format", "json").document
