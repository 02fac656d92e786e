"""One site in service, one standby, one link: a planned switch and back, an emergency with stranded records, writers kept out by ACLs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from disaster import values
from links import (
    Message,
    Replicator,
    Setup,
    configure,
    create_topic,
    grant,
    isthmus,
    new_name,
    producer_of,
    read,
    revoke,
    send,
    topics_of,
    two_guarded,
    wait_for,
    wait_for_records,
)
from readers import commit, committed

from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]


@pytest.fixture(scope="module")
def walled(box: Sandbox) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites with an authoriser, where the replicator may do everything."""
    with two_guarded(box, ["active", "standby"], everything=True) as both:
        yield both


def made(walled: tuple[KafkaSite, KafkaSite], topic: str) -> Setup:
    active, standby = walled
    link = {
        "from": active.name,
        "to": standby.name,
        "topics": [topic],
        "sync": {
            "acls": {"enabled": True, "interval": "1s"},
            "groups": {"include": f"/{topic}.*/", "only_empty": False},
        },
    }
    return configure({active.name: active, standby.name: standby}, {new_name("one-way"): link})


def write(site: KafkaSite, topic: str, stem: str, count: int) -> list[bytes]:
    """As an application does, that has an account."""
    some = [Message(f"{stem} {n}".encode(), f"k{n}".encode()) for n in range(count)]
    send(producer_of(site, "writer", message_timeout_ms=4000), topic, some)
    return [message.value or b"" for message in some]


def done(setup: Setup, *arguments: str) -> dict[str, Any]:
    answer = isthmus(setup, *arguments, "--json")
    assert answer.code == 0, f"{arguments}: {answer.code}\n{answer.out}\n{answer.err}"
    document: dict[str, Any] = answer.document
    return document


def may_not_write(site: KafkaSite, topic: str) -> bool:
    try:
        write(site, topic, "refused", 1)
    except KafkaException as error:
        return "TOPIC_AUTHORIZATION_FAILED" in str(error) or "authoriz" in str(error).lower()
    return False


def test_a_planned_switch_and_back(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    active, standby = walled
    topic = create_topic(active, unique_topic("planned"))
    grant(active, f"ALLOW ALL TOPIC:LITERAL:{topic} User:writer *")
    setup, group = made(walled, topic), f"{topic}-readers"
    first = write(active, topic, "first", 60)
    commit(active, group, {(topic, 0): 20})
    with Replicator(setup):
        wait_for_records(standby, topic, 60)
        assert isthmus(setup, "apply").code == 0
        assert may_not_write(standby, topic)

        shown = isthmus(setup, "failover", active.name, "--to", standby.name, "--planned", "--dry-run")
        assert shown.code == 0, shown
        assert f"take away ALLOW ALL on topic {topic}" in " ".join(shown.out.split()), shown.out
        report = done(setup, "failover", active.name, "--to", standby.name, "--planned")
        assert (report["rpo_records"], report["clients"]["groups"]) == (0, [group])
        assert may_not_write(active, topic)
        second = write(standby, topic, "second", 40)
        # The group goes on at the very record, and reads half of what is new.
        assert values(read(standby, topic))[0][20] == first[20]
        place = committed(standby, group, topic).offset
        assert next(r.value for r in read(standby, topic)[0] if r.offset >= place) == first[20]
        halfway = next(r.offset for r in read(standby, topic)[0] if r.value == second[20])
        commit(standby, group, {(topic, 0): halfway})

        home = done(setup, "failback", active.name)
        assert home["stranded_records"] == 0
        assert may_not_write(standby, topic)
        assert values(read(active, topic))[0] == values(read(standby, topic))[0] == first + second
        place = committed(active, group, topic).offset
        assert next(r.value for r in read(active, topic)[0] if r.offset >= place) == second[20]
        third = write(active, topic, "third", 10)
        wait_for_records(standby, topic, 110)
    assert values(read(standby, topic))[0] == first + second + third
    assert isthmus(setup, "verify", setup.link).code == 0


def test_a_planned_switch_needs_every_right_before_it_begins(
    walled: tuple[KafkaSite, KafkaSite], unique_topic: Name
) -> None:
    """Who may not read or change ACLs is not told that there are none, and nothing is fenced or opened."""
    active, standby = walled
    topic = create_topic(active, unique_topic("rights"))
    grant(active, f"ALLOW WRITE TOPIC:LITERAL:{topic} User:writer *")
    setup = made(walled, topic)
    first = write(active, topic, "first", 5)
    with Replicator(setup):
        wait_for_records(standby, topic, 5)
        assert isthmus(setup, "apply").code == 0
        walls = [f"DENY {operation} BROKER:LITERAL:kafka-cluster User:isthmus *" for operation in ("ALTER", "DESCRIBE")]
        grant(active, *walls)
        try:
            for _ in range(2):  # refused as often as it is given: it has left nothing to go on with
                refused = isthmus(setup, "failover", active.name, "--to", standby.name, "--planned", "--json")
                assert refused.code == 5, refused
                for operation in ("DESCRIBE", "ALTER"):
                    need = f"site {active.name}: ALLOW {operation} on the cluster for User:isthmus"
                    assert need in refused.document["needed"].splitlines()
                    assert f"--operation {operation.capitalize()} --cluster" in refused.document["message"]
        finally:
            revoke(active, *walls)
        second = write(active, topic, "second", 5)
        assert may_not_write(standby, topic)
        wait_for_records(standby, topic, 10)
    assert values(read(standby, topic))[0] == first + second


def test_an_interrupted_switch_leaves_a_fence_that_is_seen_and_lifted(
    walled: tuple[KafkaSite, KafkaSite], unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.recovery.switch import Switch

    active, standby = walled
    topic = create_topic(active, unique_topic("left"))
    grant(active, f"ALLOW WRITE TOPIC:LITERAL:{topic} User:writer *")
    setup = made(walled, topic)
    write(active, topic, "first", 5)
    with Replicator(setup):
        wait_for_records(standby, topic, 5)
    switch = ["failover", active.name, "--to", standby.name, "--planned"]

    def pressed(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Switch, "drain", pressed)
        stopped = isthmus(setup, *switch)
    assert stopped.code == 130, stopped
    again = f"isthmus failover {active.name} --to {standby.name} --planned"
    for words in ("Done: check, fence", "Not done: drain", again, f"keeps writers away from {active.name}"):
        assert words in stopped.err, stopped.err
    assert may_not_write(active, topic)

    def told() -> tuple[Any, Any]:
        (row,) = (row for row in isthmus(setup, "sites", "list", "--json").document if row["site"] == active.name)
        return row["fenced"], [each["goes_on_with"] for each in row["unfinished"]]

    assert told() == (["acls"], [again])
    shown = isthmus(setup, "status", "--json").document[0]
    # The standby may be fenced as well, since work came home from there.
    assert (shown["fenced"][active.name], shown["unfinished"][0]["done"]) == (["acls"], ["check", "fence"])
    shown = isthmus(setup, "status")
    assert (again in shown.err, f"isthmus unfence {active.name}" in shown.err) == (True, True), shown
    refused = isthmus(setup, "unfence", active.name)
    assert (refused.code, "--abandon" in refused.err) == (6, True), refused

    assert done(setup, *switch, "--abandon")["fenced"] == [active.name]
    assert told() == (["acls"], [])
    assert f"ALLOW WRITE on topic {topic} to User:writer" in done(setup, "unfence", active.name)["given_back"]
    assert done(setup, "unfence", active.name)["given_back"] == []
    assert told() == (None, [])
    write(active, topic, "second", 5)


def test_stranded_records(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name, seed: int) -> None:
    # By chance, as each takes a minute; test_failback.py::test_exactly_what_is_stranded tries the other one.
    policy = ("append", "set-aside")[seed % 2]
    active, standby = walled
    topic = create_topic(active, unique_topic(policy))
    grant(active, f"ALLOW WRITE TOPIC:LITERAL:{topic} User:writer *")
    setup = made(walled, topic)
    before = write(active, topic, "before", 30)
    with Replicator(setup):
        wait_for_records(standby, topic, 30)
        assert isthmus(setup, "apply").code == 0
    stranded = write(active, topic, "stranded", 7)

    report = done(setup, "failover", active.name, "--to", standby.name, "--emergency")
    (lost,) = report["steps"][3]["found"]["links"][0]["partitions"]
    assert (lost["topic"], lost["partition"], lost["position"], lost["most"], report["rpo_records"]) == (
        topic,
        0,
        30,
        7,
        7,
    )
    # It was fenced, and every partition answered after that: only so nothing is unknown.
    assert (report["at_most"], report["unknown"], lost["counted"]) == (True, [], True)
    later = write(standby, topic, "later", 5)
    wait_for(lambda: may_not_write(active, topic), "the fence")

    # Given again, refused or abandoned, no command makes the site forget since when it serves.
    again = done(setup, "failover", active.name, "--to", standby.name, "--emergency")
    assert (again["already"], again["id"]) == (True, report["id"])
    assert done(setup, "failover", active.name, "--to", standby.name, "--planned")["already"]
    assert isthmus(setup, "failover", active.name, "--to", standby.name, "--emergency", "--abandon").code == 2
    later += write(standby, topic, "still later", 5)
    # Even where it is done anew, because somebody has lifted the hold.
    assert isthmus(setup, "resume", setup.link, "--held").code == 0
    anew = done(setup, "failover", active.name, "--to", standby.name, "--emergency")
    assert (anew.get("already"), anew["steps"][5]["found"]["ends"]) == (None, report["steps"][5]["found"]["ends"])
    preview = done(setup, "failback", active.name, "--dry-run", "--stranded", policy)
    assert [f"{topic}[0] from offset 30: 7 records"] == preview["steps"][1]["now"]

    # What the operation's own links keep is deleted in the end: without that right nothing is begun.
    walls = [f"DENY DELETE {kind}:PREFIXED:_isthmus. User:isthmus *" for kind in ("TOPIC", "GROUP")]
    grant(standby, *walls)
    try:
        refused = isthmus(setup, "failback", active.name, "--stranded", policy, "--json")
    finally:
        revoke(standby, *walls)
    assert refused.code == 5, refused
    for kind in ("topic", "group"):
        need = f"site {standby.name}: ALLOW DELETE on {kind} _isthmus. (prefixed) for User:isthmus"
        assert need in refused.document["needed"].splitlines(), refused.document["needed"]
    home = done(setup, "failback", active.name, "--stranded", policy)
    assert home["stranded_records"] == 7
    assert not [name for name in topics_of(standby) if name.startswith(f"_isthmus.{setup.link}.stranded")]
    assert done(setup, "failback", active.name)["already"], "bringing work home twice would bring copies"
    at_home, away = values(read(active, topic))[0], values(read(standby, topic))[0]
    assert at_home == before + stranded + later
    if policy == "append":
        assert away == before + later + stranded
    else:
        assert away == before + later
        assert values(read(standby, f"{topic}.stranded"))[0] == stranded
    # Once more, to see that what came home is not taken for new.
    more = write(active, topic, "again", 3)
    with Replicator(setup):
        wait_for_records(standby, topic, len(away) + 3)
    assert values(read(standby, topic))[0] == away + more
    assert isthmus(setup, "verify", setup.link).code == 0
