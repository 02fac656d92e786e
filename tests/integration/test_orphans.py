"""Transactions that brokers forgot to end, as they may when all of them are lost at once: a link ends them, and copies again.

A broker cannot be made to forget at will. One that does not check what a transaction writes to can be given the same state: records and offsets
of a transaction of which its coordinator knows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from links import (
    OFFSET_HEADER,
    Message,
    Replicator,
    Setup,
    admin,
    create_topic,
    delete_topic,
    ends,
    has_open_transaction,
    isthmus,
    move_progress,
    one_link,
    produce,
    read,
    reset,
    wait_for,
    wait_for_records,
)
from readers import commit, positions

from isthmus.config import Site
from isthmus.engine import state
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import Committed, Partition
from isthmus.kafka.produce import Producer, small_batch
from isthmus.records import Outgoing
from isthmus.sandbox import KafkaSite

Name = Callable[[str], str]
NOTHING_CHECKED = {"transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def careless(make_module_site: Callable[..., KafkaSite]) -> KafkaSite:
    return make_module_site(config=NOTHING_CHECKED)


def leave_open(
    site: Site,
    identity: str,
    partition: Partition,
    group: str,
    progress: Committed | None,
    copies: Sequence[Outgoing] = (),
    records: Sequence[Outgoing] | None = None,
    seen: Committed | None = None,
) -> None:
    """Write records and an offset under a transactional id, and tell nobody of it. ``copies`` are records whose markers were not forgotten, ``seen`` the same of an offset."""
    with Cluster(site) as cluster:
        leaders = Leaders(cluster, [partition[0]])

        async def work() -> None:
            await cluster.connect()
            await leaders.refresh()
            producer = Producer(cluster, leaders, Signal(cluster.loop), [identity])
            await producer.begin()
            for batch in copies:
                producer.produce({partition: batch})
            if copies:
                await producer.commit(group if seen else "", {partition: seen} if seen else {})
            producer._modern, producer._max_version = False, 11
            producer._opened = producer._group_enlisted = True
            producer._enlisted.add(partition)
            left = [small_batch([(b"never", b"to be seen")])] if records is None else records
            for batch in left:
                producer.produce({partition: batch})
            await producer.drain()
            if progress is not None:
                await producer._commit_progress(group, {partition: progress})

        cluster.call(work)


@pytest.mark.parametrize("whose", ["slot 0", "slot 0, in turn", "slot 1", "planner"])
def test_what_nobody_ended(east: KafkaSite, careless: KafkaSite, unique_topic: Name, whose: str) -> None:
    topic = create_topic(east, unique_topic("orphans"))
    setup = one_link(east, careless, [topic])
    first = [Message(f"first {n}".encode()) for n in range(50)]
    produce(east, topic, first)
    with Replicator(setup):
        wait_for_records(careless, topic, 50)
    ids = {
        "slot 0": state.transactional_ids(setup.link, 0)[0],
        "slot 0, in turn": state.transactional_ids(setup.link, 0)[1],
        "slot 1": state.transactional_ids(setup.link, 1)[0],
        "planner": state.planner_id(setup.link),
    }
    progress = Committed(7, "what an aborted transaction says does not count")
    where = state.map_topic(setup.link) if whose == "planner" else topic
    leave_open(setup.config.sites[careless.name], ids[whose], (where, 0), state.group(setup.link), progress)
    assert has_open_transaction(careless, where, admin(careless))
    later = [Message(f"later {n}".encode()) for n in range(50)]
    produce(east, topic, later)
    with Replicator(setup):
        wait_for_records(careless, topic, 100, 60)
        wait_for(lambda: not has_open_transaction(careless, where, admin(careless)), "the orphan's end")
    (found,) = read(careless, topic).values()
    assert [record.value for record in found] == [message.value for message in first + later]
    assert ends(careless, topic) == ends(careless, topic, False)


def copy_of(offset: int, *messages: Message) -> Outgoing:
    """A batch of records from this source offset on, as the link would have written it."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, message in enumerate(messages):
        headers = [(OFFSET_HEADER, (offset + number).to_bytes(8, "big"))]
        builder.append(number, message.timestamp, message.key, message.value, headers)
    payload = np.frombuffer(bytes(builder.build()), np.uint8).copy()
    return Outgoing(payload=payload, count=len(messages), runs=np.empty((0, 2), np.int64), next_offset=0)


def half_copied(east: KafkaSite, careless: KafkaSite, topic: str) -> tuple[Setup, list[Message]]:
    """A link that has copied the first 50 of 100 records, and all of them."""
    setup = one_link(east, careless, [topic])
    now = int(time.time() * 1000)
    messages = [Message(f"record {n}".encode(), timestamp=now + n) for n in range(100)]
    produce(east, topic, messages[:50])
    with Replicator(setup):
        wait_for_records(careless, topic, 50)
    produce(east, topic, messages[50:])
    return setup, messages


def test_what_was_ended_in_part(east: KafkaSite, careless: KafkaSite, unique_topic: Name) -> None:
    """Records got their marker before the brokers were lost, and the link's progress did not: they must not come twice."""
    topic = create_topic(east, unique_topic("in-part"))
    setup, messages = half_copied(east, careless, topic)
    visible = [copy_of(n, messages[n]) for n in range(50, 53)]
    identity, group = state.transactional_ids(setup.link, 0)[0], state.group(setup.link)
    site = setup.config.sites[careless.name]
    leave_open(site, identity, (topic, 0), group, Committed(53, "never ended"), visible, [])
    with Replicator(setup):
        wait_for_records(careless, topic, 100, 60)
    (found,) = read(careless, topic).values()
    assert [record.value for record in found] == [message.value for message in messages]
    commit(east, "readers", {(topic, 0): 51})
    assert isthmus(setup, "groups", "sync").code == 0
    place = positions(careless, "readers")[topic, 0].offset
    assert next(record.value for record in found if record.offset >= place) == b"record 51", (
        "the map knows of them, too"
    )
    assert isthmus(setup, "verify", setup.link).code == 0


def test_what_progress_has_passed_over(east: KafkaSite, careless: KafkaSite, unique_topic: Name) -> None:
    """The end of one transaction was forgotten, that of the next one was not: aborting the first would lose its records."""
    topic = create_topic(east, unique_topic("passed-over"))
    setup, messages = half_copied(east, careless, topic)
    hidden = [copy_of(n, messages[n]) for n in range(50, 53)]
    identity, group = state.transactional_ids(setup.link, 0)[0], state.group(setup.link)
    site = setup.config.sites[careless.name]
    progress = Committed(53, positions(careless, group)[topic, 0].metadata)
    move_progress(careless, setup.link, topic, 0, 53)
    leave_open(site, identity, (topic, 0), group, progress, records=hidden)
    with Replicator(setup):
        wait_for_records(careless, topic, 100, 60)
    (found,) = read(careless, topic).values()
    assert [record.value for record in found] == [message.value for message in messages]


def lands_on(setup: Setup, topic: str, offset: int) -> bytes | None:
    """What a group that has read up to this offset at the source reads first at the destination."""
    commit(setup.source, "readers", {(topic, 0): offset})
    assert isthmus(setup, "groups", "sync").code == 0
    place = positions(setup.target, "readers")[topic, 0].offset
    return next(record.value for record in read(setup.target, topic)[0] if record.offset >= place)


def test_more_was_ended_than_anybody_looks_back(east: KafkaSite, careless: KafkaSite, unique_topic: Name) -> None:
    """A large transaction: all of its records are visible, and its progress and its map are not."""
    topic = create_topic(east, unique_topic("large"))
    setup = one_link(east, careless, [topic])
    now = int(time.time() * 1000)
    messages = [Message(f"record {n}".encode(), timestamp=now) for n in range(24_050)]
    produce(east, topic, messages[:50])
    with Replicator(setup):
        wait_for_records(careless, topic, 50)
    produce(east, topic, messages[50:])
    visible = [copy_of(first, *messages[first : first + 1000]) for first in range(50, 24_050, 1000)]
    identity, group = state.transactional_ids(setup.link, 0)[0], state.group(setup.link)
    never = Committed(24_050, "never ended")
    leave_open(setup.config.sites[careless.name], identity, (topic, 0), group, never, visible, [])
    produce(east, topic, [Message(b"last", timestamp=now)])
    with Replicator(setup):
        wait_for_records(careless, topic, 24_051, 60)
    assert [record.value for record in read(careless, topic)[0]] == [*(message.value for message in messages), b"last"]
    assert lands_on(setup, topic, 1000) == b"record 1000"


def test_only_the_map_was_forgotten(east: KafkaSite, careless: KafkaSite, unique_topic: Name) -> None:
    """Records and progress got their markers, and the line of the map that belongs to them did not."""
    topic = create_topic(east, unique_topic("map-only"))
    setup, messages = half_copied(east, careless, topic)
    group, identity = state.group(setup.link), state.transactional_ids(setup.link, 0)[0]
    site, where = setup.config.sites[careless.name], state.map_topic(setup.link)
    seen = Committed(60, positions(careless, group)[topic, 0].metadata)
    leave_open(site, identity, (topic, 0), group, None, [copy_of(50, *messages[50:60])], [], seen)
    leave_open(site, identity, (where, 0), group, None)
    assert has_open_transaction(careless, where, admin(careless))
    with Replicator(setup):
        wait_for_records(careless, topic, 100, 60)
        wait_for(lambda: not has_open_transaction(careless, where, admin(careless)), "the orphan's end")
    assert [record.value for record in read(careless, topic)[0]] == [message.value for message in messages]
    assert lands_on(setup, topic, 52) == b"record 52"
    assert isthmus(setup, "verify", setup.link).code == 0


def test_copies_of_an_older_incarnation(east: KafkaSite, careless: KafkaSite, unique_topic: Name) -> None:
    """The source topic was made anew, and the link reset: what was copied of the old one is no copy of the new one."""
    topic = create_topic(east, unique_topic("anew"))
    setup = one_link(east, careless, [topic])
    now = int(time.time() * 1000)
    produce(east, topic, [Message(f"old {n}".encode(), timestamp=now) for n in range(80)])
    with Replicator(setup):
        wait_for_records(careless, topic, 80)
    delete_topic(east, topic)
    create_topic(east, topic)
    new = [Message(f"new {n}".encode(), timestamp=now) for n in range(100)]
    produce(east, topic, new)
    reset(setup, topic, to="earliest")
    group, identity = state.group(setup.link), state.transactional_ids(setup.link, 0)[0]
    never = Committed(10, "never ended")
    leave_open(setup.config.sites[careless.name], identity, (topic, 0), group, never, (), [])
    with Replicator(setup):
        wait_for_records(careless, topic, 180, 60)
    assert [record.value for record in read(careless, topic)[0]][80:] == [message.value for message in new]
