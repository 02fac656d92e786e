"""Nothing that would lose, double or change records passes in silence: each case by its error, its words and its cure.

In each test a second partition or topic must go on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType
from links import (
    Message,
    Replicator,
    Run,
    Setup,
    allow,
    changed,
    compare,
    configure,
    copy_until_caught_up,
    create_topic,
    delete_records,
    delete_topic,
    deny,
    faults,
    grow_topic,
    isthmus,
    move_progress,
    new_name,
    numbered,
    one_link,
    produce,
    producer_of,
    read,
    reset,
    run,
    send,
    set_config,
    status,
    two_guarded,
    wait_for,
    wait_for_records,
)

from isthmus.engine import undecided
from isthmus.errors import (
    AuthenticationFailed,
    AuthorisationFailed,
    ClusterChanged,
    ConnectionFailed,
    IsthmusError,
    SameCluster,
    TakenOver,
)
from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]


def message_of(setup: Setup, topic: str, partition: int = 0) -> str:
    """What ``isthmus status`` says about a partition that stands still."""
    found = {(p["topic"], p["partition"]): p["message"] for p in status(setup)["partitions"]}
    return str(found[topic, partition])


def two_topics(east: KafkaSite, unique_topic: Name, stem: str) -> tuple[str, str]:
    """One for the fault and one that must go on, each with ten records."""
    topics = unique_topic(stem), unique_topic(f"{stem}-other")
    for topic in topics:
        produce(east, create_topic(east, topic), numbered(10))
    return topics


# -- the source topic ------------------------------------------------------------------------------------


def test_source_topic_deleted_and_created_again_while_running(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    topic, other = two_topics(east, unique_topic, "source-gone")
    setup = one_link(east, west, [topic, other])
    with Replicator(setup):
        wait_for_records(west, topic, 10)
        delete_topic(east, topic)
        wait_for(lambda: faults(setup) == {(topic, 0): "SourceDeleted"}, "SourceDeleted")
        assert "deleted" in message_of(setup, topic)
        assert f"{topic} keeps what was copied" in message_of(setup, topic)
        produce(east, other, numbered(10, 10))
        wait_for_records(west, other, 20)
        assert len(read(west, topic)[0]) == 10

    create_topic(east, topic)
    produce(east, topic, numbered(5, 100))
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "SourceRecreated"}
    assert f"isthmus reset {setup.link} {topic}:0 --to earliest" in message_of(setup, topic)
    assert len(read(west, topic)[0]) == 10

    assert reset(setup, topic, to="earliest") == [{"topic": topic, "partition": 0, "before": 10, "after": 0}]
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    values = [r.value for r in read(west, topic)[0]]
    assert values == [m.value for m in numbered(10) + numbered(5, 100)]
    assert compare(east, west, other) == 20


def test_source_topic_deleted_and_created_again_while_stopped(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    topic, other = two_topics(east, unique_topic, "source-gone-stopped")
    setup = one_link(east, west, [topic, other])
    copy_until_caught_up(setup)
    delete_topic(east, topic)
    produce(east, other, numbered(10, 10))
    copy_until_caught_up(setup)
    assert faults(setup) == {(topic, 0): "SourceDeleted"}
    create_topic(east, topic)
    # Longer than before, so that offset 10 exists and would be silently wrong.
    produce(east, topic, numbered(30, 100))
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "SourceRecreated"}
    reset(setup, f"{topic}:0", to="earliest")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert [r.value for r in read(west, topic)[0]][10:] == [m.value for m in numbered(30, 100)]
    assert compare(east, west, other) == 20


def test_source_topic_excluded_after_it_was_deleted(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, other = two_topics(east, unique_topic, "source-excluded")
    setup = one_link(east, west, [topic, other])
    copy_until_caught_up(setup)
    delete_topic(east, topic)
    copy_until_caught_up(setup)
    assert faults(setup) == {(topic, 0): "SourceDeleted"}
    # The message's other remedy.
    without = changed(setup, topics=[other])
    copy_until_caught_up(without)
    assert faults(without) == {}


def test_retention_passed_us(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("retention"), 2)
    produce(east, topic, numbered(10) + numbered(10, partition=1))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    produce(east, topic, numbered(20, 10) + numbered(20, 10, partition=1))
    delete_records(east, topic, {0: 15})
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "RetentionGap"}
    words = message_of(setup, topic)
    assert "offsets 10 to 14" in words
    assert f"isthmus reset {setup.link} {topic}:0 --to earliest" in words
    assert len(read(west, topic)[0]) == 10
    assert len(read(west, topic)[1]) == 30

    assert reset(setup, f"{topic}:0", to="earliest")[0]["after"] == 15
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert [r.value for r in read(west, topic)[0]] == [m.value for m in numbered(10) + numbered(15, 15)]


def test_source_log_ends_before_our_position(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("truncated"), 2)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(10) + numbered(10, partition=1))
    copy_until_caught_up(setup)
    # What a source looks like that has lost records: our position is after its end.
    move_progress(west, setup.link, topic, 0, 15)
    produce(east, topic, numbered(1, 10, partition=1))
    with Replicator(setup):
        wait_for(lambda: faults(setup) == {(topic, 0): "SourceTruncated"}, "SourceTruncated")
        wait_for_records(west, topic, 21)
    assert "the source ends at 10" in message_of(setup, topic)
    reset(setup, f"{topic}:0", to="latest")
    produce(east, topic, numbered(5, 10))
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert compare(east, west, topic) == 26


# -- the destination topic -------------------------------------------------------------------------------


def test_destination_topic_deleted_while_running(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, other = two_topics(east, unique_topic, "target-gone")
    setup = one_link(east, west, [topic, other])
    with Replicator(setup) as replicator:
        wait_for_records(west, topic, 10)
        wait_for_records(west, other, 10)
        delete_topic(west, topic)
        produce(east, topic, numbered(10, 10))
        wait_for(lambda: faults(setup) == {(topic, 0): "DestinationMissing"}, "DestinationMissing")
        assert "was deleted" in message_of(setup, topic)
        produce(east, other, numbered(10, 10))
        wait_for_records(west, other, 20)

        # Created again by somebody, it is still not the topic that held the copies.
        create_topic(west, topic)
        produce(east, topic, numbered(1, 20))
        before = replicator.leases
        isthmus(setup, "reset", setup.link, other, "--to", "current")  # deals a new lease
        wait_for(lambda: replicator.leases > before, "a new lease")
        wait_for(lambda: faults(setup) == {(topic, 0): "DestinationRecreated"}, "DestinationRecreated")
        assert "--to earliest" in message_of(setup, topic)
        assert read(west, topic)[0] == []

        reset(setup, topic, to="earliest")
        wait_for_records(west, topic, 21)
        wait_for(lambda: faults(setup) == {}, "no faults")
    assert compare(east, west, topic) == 21
    assert compare(east, west, other) == 20


def test_destination_topic_deleted_while_stopped(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, other = two_topics(east, unique_topic, "target-gone-stopped")
    setup = one_link(east, west, [topic, other])
    copy_until_caught_up(setup)
    delete_topic(west, topic)
    produce(east, topic, numbered(5, 10))
    produce(east, other, numbered(5, 10))
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "DestinationMissing"}
    assert compare(east, west, other) == 15

    create_topic(west, topic)
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "DestinationRecreated"}
    assert read(west, topic)[0] == []
    # Go on after the loss: what was copied before is not copied again.
    reset(setup, topic, to="current")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert compare(east, west, topic, since={0: 10}) == 5
    reset(setup, topic, to="earliest")
    copy_until_caught_up(setup)
    assert len(read(west, topic)[0]) == 20


def test_destination_topic_that_refuses_or_would_change_records(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    stamped, keyless, fine = (create_topic(east, unique_topic(stem)) for stem in ("stamped", "keyless", "fine"))
    for topic in (stamped, keyless, fine):
        produce(east, topic, [Message(b"no key", timestamp=1_750_000_000_000 + n) for n in range(10)])
    create_topic(west, stamped, message_timestamp_type="LogAppendTime")
    create_topic(west, keyless, cleanup_policy="compact")  # which takes no record without a key
    setup = one_link(east, west, [stamped, keyless, fine])
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(stamped, 0): "DestinationRefused", (keyless, 0): "DestinationRefused"}
    assert "set its message.timestamp.type to CreateTime" in message_of(setup, stamped)
    assert "InvalidRecord" in message_of(setup, keyless)
    assert compare(east, west, fine) == 10
    assert read(west, stamped)[0] == read(west, keyless)[0] == []
    set_config(west, ResourceType.TOPIC, stamped, message_timestamp_type="CreateTime")
    set_config(west, ResourceType.TOPIC, keyless, cleanup_policy="delete")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert compare(east, west, stamped) == compare(east, west, keyless) == 10


def test_a_topic_whose_new_name_cannot_be_stands_still_alone(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    stem = unique_topic("renamed")
    long = stem + "-" + "x" * (246 - len(stem))  # legal here, and too long with what the link puts before it
    for topic in (long, stem):
        produce(east, create_topic(east, topic), numbered(10))
    setup = one_link(east, west, [f"/{stem}.*/"], rename="copy.{topic}")
    assert faults(setup) == {(long, 0): "DestinationRefused"}  # known before anything has run
    plan = isthmus(setup, "plan", "--json")
    assert plan.code == 21
    actions = {
        change["name"]: change["action"] for change in plan.document[0]["changes"] if change["resource"] == "topics"
    }
    assert actions == {f"copy.{long}": "blocked", f"copy.{stem}": "create"}
    copy_until_caught_up(setup)
    assert compare(east, west, stem, f"copy.{stem}") == 10
    assert status(setup)["lag"] == 10
    assert faults(setup) == {(long, 0): "DestinationRefused"}
    assert "at most 249 characters" in message_of(setup, long)
    assert "change links." in message_of(setup, long)
    mended = changed(setup, rename="c.{topic}")
    copy_until_caught_up(mended)
    assert faults(mended) == {}
    assert compare(east, west, long, f"c.{long}") == 10


# -- the sites -------------------------------------------------------------------------------------------


def test_both_ends_are_one_cluster(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("self"))
    port = east.brokers[0].port
    setup = configure(
        {"here": east, "there": west},
        {new_name(): {"from": "here", "to": "there", "topics": [topic], "rename": "copy.{topic}"}},
        {"there": {"bootstrap": [f"localhost:{port}"]}},
    )
    with pytest.raises(SameCluster, match="one cluster"):
        copy_until_caught_up(setup)
    answer = run(setup)
    assert answer.code == 6
    assert answer.lines[-1]["error"] == "SameCluster"


@pytest.fixture(scope="module", autouse=True)
def run_to_nowhere(east: KafkaSite, west: KafkaSite) -> Iterator[Run]:
    """A run whose destination nobody can reach; it tries for half a minute, while other tests run."""
    links = {new_name(): {"from": "here", "to": "there", "topics": ["any"]}}
    with Run(configure({"here": east, "there": west}, links, {"there": {"bootstrap": ["127.0.0.1:1"]}})) as started:
        yield started


@pytest.fixture(scope="module")
def rebuilt(box: Sandbox) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites of this file's own, to be wiped and damaged."""
    first, second = box.start_all(["rebuilt-east", "rebuilt-west"])
    yield first, second
    box.remove("rebuilt-east")
    box.remove("rebuilt-west")


def flip_bytes(site: KafkaSite, topic: str, partition: int, value: bytes) -> None:
    """Damage the batch that holds a value, behind the broker's back."""
    site.stop()
    log = Path(site.brokers[0].data_directory, f"{topic}-{partition}", "00000000000000000000.log")
    data = bytearray(log.read_bytes())
    at = data.index(value)
    data[at] ^= 0xFF
    log.write_bytes(data)
    site.start()


def test_corrupt_data(rebuilt: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = rebuilt
    topic = create_topic(east, unique_topic("corrupt"), 2)
    for start in (0, 10, 20):
        produce(east, topic, numbered(10, start) + numbered(10, start, partition=1))
    flip_bytes(east, topic, 0, b"value 15 ")
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 0): "CorruptBatch"}
    words = message_of(setup, topic)
    assert topic in words
    assert "offset 10" in words
    assert [r.value for r in read(west, topic)[0]] == [m.value for m in numbered(10)]
    assert len(read(west, topic)[1]) == 30

    skipping = changed(setup, on_corrupt="skip")
    copy_until_caught_up(skipping)
    assert faults(skipping) == {}
    assert [r.value for r in read(west, topic)[0]] == [m.value for m in numbered(10) + numbered(10, 20)]


def test_cluster_changed(rebuilt: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = rebuilt
    topic = create_topic(east, unique_topic("rebuilt"))
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)

    east.wipe()
    create_topic(east, topic)
    produce(east, topic, numbered(20, 100))
    with pytest.raises(ClusterChanged, match="isthmus reseed") as caught:
        copy_until_caught_up(setup)
    assert caught.value.fields["site"] == east.name
    assert caught.value.fields["found"] == east.cluster_id
    assert len(read(west, topic)[0]) == 10
    answer = run(setup, "--until-caught-up")
    assert answer.code == 6
    assert answer.lines[-1]["error"] == "ClusterChanged"
    # What the message says.
    assert isthmus(setup, "sites", "list").code == 6
    replaced = isthmus(setup, "sites", "replace", east.name, "--json")
    assert replaced.document["incarnation"] == 2
    again = one_link(east, west, [topic], rename="{topic}.again")
    copy_until_caught_up(again)
    assert compare(east, west, topic, f"{topic}.again") == 20

    # A destination that was wiped has lost the link's memory with its records; a pinned id tells it apart.
    entry = {**west.site_yaml(), "cluster_id": west.cluster_id}
    pinned = configure(
        again.sites,
        {again.link: {"from": east.name, "to": west.name, "topics": [topic], "rename": "{topic}.again"}},
        {west.name: entry},
    )
    copy_until_caught_up(pinned)
    west.wipe()
    with pytest.raises(ClusterChanged, match=f"sites.{west.name}.cluster_id"):
        copy_until_caught_up(pinned)
    assert run(pinned, "--until-caught-up").code == 6
    # Not pinned, the new cluster is a destination like any other: all is copied to it.
    copy_until_caught_up(again)
    assert compare(east, west, topic, f"{topic}.again") == 20


def test_cluster_changed_while_running(rebuilt: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = rebuilt
    topic = create_topic(east, unique_topic("rebuilt-running"))
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [topic])
    with Replicator(setup) as replicator:
        wait_for_records(west, topic, 10)
        west.wipe()
        produce(east, topic, numbered(10, 10))
        error = replicator.ended()
    assert isinstance(error, ClusterChanged), repr(error)
    assert error.fields["site"] == west.name

    copy_until_caught_up(setup)
    with Replicator(setup) as replicator:
        wait_for_records(west, topic, 20)
        east.wipe()
        create_topic(east, topic)
        produce(east, topic, numbered(30, 100))
        error = replicator.ended()
    assert isinstance(error, ClusterChanged), repr(error)
    assert error.fields["site"] == east.name
    assert len(read(west, topic)[0]) == 20


# -- taken over ------------------------------------------------------------------------------------------


def test_another_replicator_takes_over(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("taken"), 2)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(100) + numbered(100, partition=1))
    with Run(setup) as first:
        wait_for_records(west, topic, 200)
        with Replicator(setup) as second:
            produce(east, topic, numbered(100, 100) + numbered(100, 100, partition=1))
            answer = first.finish()
            assert answer.code == TakenOver.exit_code == 7, answer
            assert answer.lines[-1]["error"] == "TakenOver"
            assert second.job.host in answer.lines[-1]["message"]
            wait_for_records(west, topic, 400)
            with Replicator(setup):
                error = second.ended()
                assert isinstance(error, TakenOver)
                produce(east, topic, numbered(100, 200) + numbered(100, 200, partition=1))
                wait_for_records(west, topic, 600)
    assert compare(east, west, topic) == 600


def test_a_link_of_several_that_is_taken_over_ends_alone(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """A recovery operation gives the link back; another replicator keeps it, and nobody takes it from there again."""
    topics = [create_topic(east, unique_topic("taken")) for _ in range(2)]
    names = [new_name(), new_name()]
    ends = {"from": east.name, "to": west.name}
    links = {name: {**ends, "topics": [topic]} for name, topic in zip(names, topics, strict=True)}
    setup = configure({east.name: east, west.name: west}, links)
    copied = 0

    def both_go_on() -> None:
        nonlocal copied
        for topic in topics:
            produce(east, topic, numbered(10, copied))
        copied += 10
        for topic in topics:
            wait_for_records(west, topic, copied)

    with Run(setup) as first:

        def said(words: str) -> None:
            wait_for(lambda: words in first.so_far().out, words, seconds=120)

        both_go_on()
        with Replicator(setup, names[0], temporary=True):
            said("runs this link until it has caught up")
            both_go_on()
        said("its sites can be used again; going on")
        both_go_on()
        with Replicator(setup, names[0]) as newer:
            said("has taken this link over; this one stops; the other links go on")
            both_go_on()
            assert newer.leases == 1  # it was not taken back
            with Replicator(setup, names[1]):
                answer = first.finish()
                assert answer.code == TakenOver.exit_code, answer
                assert answer.lines[-1]["error"] == "TakenOver"
                both_go_on()
    assert [compare(east, west, topic) for topic in topics] == [copied, copied]


# -- authorisation ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(box: Sandbox) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites that know their users and allow them nothing."""
    with two_guarded(box, ["guarded-east", "guarded-west"]) as both:
        yield both


@pytest.fixture
def allowed(guarded: tuple[KafkaSite, KafkaSite]) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """The same with everything that a link needs; each test takes something away."""
    for site in guarded:
        deny(site)
    east, west = guarded
    allow(east, "read", "topic", "")
    allow(east, "describe-configs", "topic", "")
    allow(west, "read", "topic", "")
    for operation in ("create", "write", "describe-configs", "alter"):
        allow(west, operation, "topic", "")
    allow(west, "read", "group", "_isthmus.")
    for operation in ("write", "describe"):
        allow(west, operation, "transactional-id", "_isthmus.")
    yield guarded
    for site in guarded:
        deny(site)


def raised(setup: Setup) -> IsthmusError:
    with pytest.raises(IsthmusError) as caught:
        copy_until_caught_up(setup)
    return caught.value


def test_not_allowed_to_read_a_topic(allowed: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = allowed
    topics = [create_topic(east, unique_topic(stem)) for stem in ("hidden", "unreadable", "fine")]
    hidden, unreadable, fine = topics
    for topic in topics:
        produce(east, topic, numbered(10))
    deny(east, "read", "topic", "")
    allow(east, "describe", "topic", unreadable)
    allow(east, "read", "topic", fine)
    setup = one_link(east, west, topics)
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(hidden, 0): "SourceUnreadable", (unreadable, 0): "SourceUnreadable"}
    for topic in (hidden, unreadable):
        assert "grant ALLOW READ" in message_of(setup, topic)
    assert compare(east, west, fine) == 10
    for topic in (hidden, unreadable):
        allow(east, "read", "topic", topic)
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert [compare(east, west, topic) for topic in topics] == [10, 10, 10]


def test_not_allowed_to_write_a_topic(allowed: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = allowed
    topics = [create_topic(east, unique_topic(stem)) for stem in ("unwritable", "uncreatable", "fine")]
    unwritable, uncreatable, fine = topics
    for topic in topics:
        produce(east, topic, numbered(10))
    setup = one_link(east, west, topics)
    for operation in ("create", "write"):
        deny(west, operation, "topic", "")
        allow(west, operation, "topic", "_isthmus.")
        allow(west, operation, "topic", fine)
    create_topic(west, unwritable)
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(unwritable, 0): "DestinationRefused", (uncreatable, 0): "DestinationRefused"}
    assert "grant ALLOW WRITE" in message_of(setup, unwritable)
    assert "CREATE" in message_of(setup, uncreatable)
    assert compare(east, west, fine) == 10
    for operation in ("create", "write"):
        allow(west, operation, "topic", "")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert [compare(east, west, topic) for topic in topics] == [10, 10, 10]


def test_not_allowed_to_add_partitions(allowed: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = allowed
    topic = create_topic(east, unique_topic("ungrowable"))
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(10))
    copy_until_caught_up(setup)
    deny(west, "alter", "topic")
    grow_topic(east, topic, 2)
    produce(east, topic, numbered(10, 10) + numbered(10, partition=1))
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(topic, 1): "DestinationRefused"}
    assert "grant ALLOW ALTER" in message_of(setup, topic, 1)
    assert len(read(west, topic)[0]) == 20
    allow(west, "alter", "topic", "")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert compare(east, west, topic) == 30


@pytest.mark.parametrize(
    ("operation", "kind", "names"),
    [("read", "group", "groups"), ("write", "transactional-id", "transactional ids"), ("create", "topic", "CREATE")],
)
def test_not_allowed_what_the_link_needs(
    allowed: tuple[KafkaSite, KafkaSite], unique_topic: Name, operation: str, kind: str, names: str
) -> None:
    east, west = allowed
    topic = create_topic(east, unique_topic("needs"))
    setup = one_link(east, west, [topic])
    deny(west, operation, kind)
    error = raised(setup)
    assert isinstance(error, AuthorisationFailed)
    assert error.exit_code == 5
    assert error.site == west.name
    assert names in error.message
    if kind == "group":  # the others meet the same frame
        answer = run(setup, "--until-caught-up")
        assert answer.code == 5
        assert answer.lines[-1]["error"] == "AuthorisationFailed"
        assert names in answer.lines[-1]["message"]
    allow(west, operation, kind, "" if kind == "topic" else "_isthmus.")
    copy_until_caught_up(setup)


def test_wrong_password(guarded: tuple[KafkaSite, KafkaSite], unique_topic: Name, tmp_path: Path) -> None:
    east, west = guarded
    secret = tmp_path / "secret"
    secret.write_text("not-the-password")
    entry = west.site_yaml()
    entry["sasl"]["password"] = {"file": str(secret)}
    setup = configure(
        {"here": east, "there": west},
        {new_name(): {"from": "here", "to": "there", "topics": ["any"]}},
        {"there": entry},
    )
    error = raised(setup)
    assert isinstance(error, AuthenticationFailed)
    assert error.site == "there"
    assert "sites.there.sasl" in error.message
    answer = run(setup)
    assert answer.code == 5
    assert answer.lines[-1]["error"] == "AuthenticationFailed"
    assert "not-the-password" not in answer.out + answer.err + error.message
    assert isthmus(setup, "status").code == 5
    del entry["sasl"]
    links = {new_name(): {"from": "here", "to": "there", "topics": ["any"]}}
    answer = isthmus(configure({"here": east, "there": west}, links, {"there": entry}), "status")
    assert answer.code == 4
    assert "probably expects SASL" in answer.err


def test_unreachable_site(run_to_nowhere: Run) -> None:
    answer = run_to_nowhere.finish()
    assert answer.code == ConnectionFailed.exit_code == 4
    error = answer.lines[-1]
    assert error["error"] == "ConnectionFailed"
    assert error["site"] == "there"
    assert "127.0.0.1:1" in error["message"]
    assert "sites.there.bootstrap" in error["message"]


def test_what_stands_behind_an_open_transaction(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads it, so lag is 0: it is told all the same, with whose it is and how to end it."""
    topic, identity = create_topic(east, unique_topic("held-back")), unique_topic("billing")
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(10))
    copy_until_caught_up(setup)
    producer = producer_of(east, transactional_id=identity, transaction_timeout_ms=600_000)
    producer.init_transactions(60)
    producer.begin_transaction()
    send(producer, topic, [Message(b"undecided")])
    produce(east, topic, numbered(100))

    def look() -> tuple[dict[str, Any], list[str]]:
        (link,) = isthmus(setup, "status", "--json").document
        (found,) = link["partitions"]
        return found, link["trouble"]

    monkeypatch.setattr(undecided, "LONG_SECONDS", 0.0)
    found, trouble = look()
    assert (found["lag"], found["hidden"], found["fault"]) == (0, 101, "")
    assert trouble == [found["trouble"]]
    for words in (
        f"transactional id {identity} ",
        "from offset 10 on",
        "since 20",
        f"--topic {topic} --partition 0 --start-offset 10",
    ):
        assert words in found["trouble"]
    assert "101 behind an open transaction" in " ".join(isthmus(setup, "status").out.split())
    monkeypatch.setattr(undecided, "LONG_SECONDS", 3600.0)
    found, trouble = look()
    assert (found["hidden"], found["trouble"], trouble) == (101, "", []), "a short one is everyday life"
    producer.abort_transaction(60)
    wait_for(lambda: look()[0]["hidden"] == 0, "the end of the transaction")
