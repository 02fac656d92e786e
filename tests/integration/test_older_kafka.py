"""Kafka 3.9 at either end: no transaction version 2, so partitions and group are enlisted by request and epochs stay."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from links import (
    Message,
    Replicator,
    compare,
    copy_until_caught_up,
    create_topic,
    delete_records,
    delete_topic,
    ends,
    faults,
    freeze_in_transaction,
    grow_topic,
    isthmus,
    new_name,
    numbered,
    one_link,
    produce,
    read,
    replicator_process,
    reset,
    send,
    topics_of,
    transaction,
    wait_for,
    wait_for_records,
)
from readers import commit, read_on, sync

from isthmus.client import Client
from isthmus.kafka.cluster import Cluster
from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]
OLD = "3.9.2"


@pytest.fixture(scope="module")
def old(box: Sandbox) -> Iterator[KafkaSite]:
    yield box.kafka("old", version=OLD)
    box.remove("old")


@pytest.fixture(params=["source", "destination"])
def pair(request: pytest.FixtureRequest, old: KafkaSite, east: KafkaSite) -> tuple[KafkaSite, KafkaSite]:
    """The old site as a source, and as a destination."""
    return (old, east) if request.param == "source" else (east, old)


def test_the_old_site_is_old(old: KafkaSite, east: KafkaSite) -> None:
    setup = one_link(old, east, ["any"])
    found = {}
    for site in (old, east):
        with Cluster(setup.config.sites[site.name]) as cluster:
            cluster.call(cluster.connect)
            found[site.name] = cluster.modern_transactions
    assert found == {"old": False, "east": True}


def test_records_transactions_and_codecs(pair: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = pair
    topic = create_topic(east, unique_topic("core"), 3, max_message_bytes="3000000")
    produce(east, topic, [Message(None, b"k"), Message(b"", b""), Message(b"v", None, [("a", None), ("a", b"\xff")])])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(east, topic, numbered(500, partition=1, size=100), compression_type=codec)
    produce(east, topic, [Message(random.Random(1).randbytes(2_500_000), partition=2)], message_max_bytes=3_000_000)
    with transaction(east) as producer:
        send(producer, topic, numbered(50, partition=0))
    with transaction(east, commit=False) as producer:
        send(producer, topic, numbered(50, partition=0))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 3 + 2500 + 1 + 50
    # Again and again: sequences run on under one epoch.
    for part in range(5):
        produce(east, topic, [m for p in range(3) for m in numbered(10, part, partition=p)])
        copy_until_caught_up(setup)
    grow_topic(east, topic, 5)
    produce(east, topic, numbered(10, partition=4))
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 2554 + 150 + 10
    through = one_link(east, west, [topic], rename="{link}.{topic}", headers="off", compression="zstd")
    copy_until_caught_up(through)
    assert compare(east, west, topic, f"{through.link}.{topic}", header=None) == 2714


def test_groups_go_on(pair: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = pair
    topic, group = create_topic(east, unique_topic("read")), new_name("reader")
    for start in range(0, 100, 10):
        with transaction(east) as producer:
            send(producer, topic, numbered(10, start))
    setup = one_link(east, west, [topic], sync={"groups": [group]})
    copy_until_caught_up(setup)
    unread = read(east, topic)[0][60:]
    commit(east, group, {(topic, 0): unread[0].offset})
    assert sync(setup)[group]["why"] == "1 partition: 1 by map"
    assert read_on(west, group, topic)[0] == [record.value for record in unread]


def test_many_transactions_of_one_task(pair: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = pair
    topics = [create_topic(east, unique_topic("stream"), 2) for _ in range(3)]
    setup = one_link(east, west, topics, commit_interval="20ms")
    with Replicator(setup):
        for part in range(20):
            # Another set of partitions each time, so that transactions enlist different ones.
            produce(east, topics[part % 3], numbered(50, part * 50, partition=part % 2))
        for number, topic in enumerate(topics):
            wait_for_records(west, topic, 50 * len(range(number, 20, 3)))
    assert sum(compare(east, west, topic) for topic in topics) == 1000


def test_a_copier_killed_in_the_middle(pair: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = pair
    topic = create_topic(east, unique_topic("killed"), 2)
    setup = one_link(east, west, [topic])
    total = 0
    for _ in range(2):
        with replicator_process(setup) as process:
            total += 2 * freeze_in_transaction(process, setup, topic, total)
            process.kill()
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == total
    everything = sum(len(records) for records in read(west, topic, committed=False).values())
    print(f"{everything - total} records of transactions that were cut off")
    assert everything > total
    with Client(setup.config) as client:
        for record in read(west, topic)[0][::500]:
            offset = int.from_bytes(record.headers[-1][1] or b"", "big")
            assert client.translate(setup.link, topic, 0, offset).offset == record.offset


def test_a_broker_restarts_in_the_middle(pair: tuple[KafkaSite, KafkaSite], unique_topic: Name, old: KafkaSite) -> None:
    east, west = pair
    topic = create_topic(east, unique_topic("restarted"), 2)
    setup = one_link(east, west, [topic])
    produce(east, topic, [m for p in (0, 1) for m in numbered(5000, partition=p, size=1000)])
    with Replicator(setup):
        wait_for(lambda: topic in topics_of(west) and sum(ends(west, topic).values()) > 0, "the first records")
        old.brokers[0].kill()
        old.brokers[0].start()
        produce(east, topic, [m for p in (0, 1) for m in numbered(1000, 5000, partition=p)])
        wait_for_records(west, topic, 12_000)
    assert compare(east, west, topic) == 12_000


def test_faults_and_reset(pair: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = pair
    gap, recreated = (create_topic(east, unique_topic(stem)) for stem in ("gap", "recreated"))
    for topic in (gap, recreated):
        produce(east, topic, numbered(10))
    setup = one_link(east, west, [gap, recreated])
    copy_until_caught_up(setup)
    produce(east, gap, numbered(10, 10))
    delete_records(east, gap, {0: 15})
    delete_topic(east, recreated)
    create_topic(east, recreated)
    produce(east, recreated, numbered(5, 10))
    copy_until_caught_up(setup, faults_are_fine=True)
    assert faults(setup) == {(gap, 0): "RetentionGap", (recreated, 0): "SourceRecreated"}
    reset(setup, gap, recreated, to="earliest")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert [len(read(west, topic)[0]) for topic in (gap, recreated)] == [15, 15]
    assert isthmus(setup, "offsets", setup.link, f"{gap}:0", "0", "--json").document[0]["exact"]
