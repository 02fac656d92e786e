"""Groups between two sites that are both written to: a stock consumer that goes on at the other site misses nothing.

What may be read again is only what the design allows: what stands there behind a record that the group has not read.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer
from links import (
    QUIET,
    Message,
    Record,
    Replicator,
    Setup,
    configure,
    copy_until_caught_up,
    create_topic,
    isthmus,
    new_name,
    numbered,
    produce,
    read,
    wait_for,
    wait_for_records,
)
from readers import commit, committed, read_on, sync

from isthmus.client import Client
from isthmus.control.ends import Ends
from isthmus.control.group_verbs import move_groups
from isthmus.engine import state
from isthmus.engine.offset_map import ChunkWriter
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.produce import Producer, small_batch
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def both_ways(east: KafkaSite, west: KafkaSite, topics: list[str], groups: Any, **options: Any) -> tuple[Setup, str]:
    """Two links that meet; the name of the one that goes home."""
    there, home = new_name("there"), new_name("home")
    common = {"topics": topics, "loop": "returning", "sync": {"groups": groups}, **options}
    links = {
        there: {"from": east.name, "to": west.name, **common},
        home: {"from": west.name, "to": east.name, **common},
    }
    return configure({east.name: east, west.name: west}, links), home


def values(records: list[Record]) -> list[bytes]:
    return [record.value or b"" for record in records]


def judge(here: list[Record], there: list[Record], offset: int, position: int) -> int:
    """What a group read here before ``offset``; that its position there is the first record that it has not read. How many
    it reads again."""
    had = {record.value for record in here if record.offset < offset}
    skipped = [record for record in there if record.offset < position and record.value not in had]
    assert not skipped, f"at {offset} here, {position} there: never read {skipped[:3]}"
    rest = [record.value for record in there if record.offset >= position]
    if rest and not set(rest) <= had:
        assert rest[0] not in had, "something is read again before the first that was not read"
    else:
        assert not rest, "everything was read, and some of it is read again"
    return len(had & set(rest))


def test_two_sites_that_are_both_written_to(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance, topic = random.Random(seed), unique_topic("both")
    create_topic(east, topic)
    create_topic(west, topic)
    stem = new_name("traveller")
    setup, home = both_ways(east, west, [topic], f"/{stem}.*/")
    count = 0
    for _ in range(4):
        for site in chance.sample([east, west], 2):
            more = chance.randrange(5, 30)
            produce(site, topic, numbered(more, count))
            count += more
        for link in chance.sample([setup.link, home], chance.randrange(1, 3)):
            copy_until_caught_up(setup, link)
    copy_until_caught_up(setup, home)  # so that each has brought something at least once
    copy_until_caught_up(setup)
    for site in (east, west):  # and something of either side is still on its way
        produce(site, topic, numbered(7, count))
        count += 7
    sites = {"there": (east, west), "home": (west, east)}
    logs = {site.name: read(site, topic)[0] for site in (east, west)}
    groups: dict[str, tuple[str, int]] = {}
    for way, (here, _) in sites.items():
        for number in range(6):
            end = logs[here.name][-1].offset + 1
            groups[f"{stem}-{way}-{number}"] = (way, end if number == 0 else chance.randrange(end + 1))
    for group, (way, offset) in groups.items():
        commit(sites[way][0], group, {(topic, 0): offset})
    for way, link in (("there", setup.link), ("home", home)):
        done = sync(setup, "--link", link)
        own = {row["why"] for name, row in done.items() if groups[name][0] == way}
        assert own == {"1 partition: 1 by two-way"}, done
    again = 0
    for group, (way, offset) in groups.items():
        here, there = sites[way]
        position = committed(there, group, topic).offset
        # What was written there is found by the link that goes back: it may lead over markers, and never over a record.
        passed = range(offset, committed(here, group, topic).offset)
        assert not [record for record in logs[here.name] if record.offset in passed]
        again += judge(logs[here.name], logs[there.name], offset, position)
    assert again, "orders that do not differ show nothing"
    # The same by the other doors.
    group = f"{stem}-there-1"
    told = isthmus(setup, "groups", "translate", group, "--link", setup.link, "--json").document["partitions"]
    with Client(setup.config) as client:
        (row,) = client.translate_group(setup.link, group)
    place = committed(west, group, topic).offset
    assert [(told[0]["method"], told[0]["to_offset"])] == [("two-way", place)]
    assert row.position is not None
    assert (row.position.method, row.position.offset) == ("two-way", place)
    # A stock member goes on there. Whatever arrives later stands behind its position, too.
    copy_until_caught_up(setup)
    copy_until_caught_up(setup, home)
    everything = set(values(read(west, topic)[0]))
    assert everything == {message.value for message in numbered(count)}
    for group, (way, offset) in list(groups.items())[::5]:
        here, there = sites[way]
        had = {record.value for record in logs[here.name] if record.offset < offset}
        assert set(read_on(there, group, topic)[0]) | had == everything


def test_one_site_at_a_time_is_exact_there_and_home(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Failover and failback: nothing missed, nothing twice, although the links do not run at the same time."""
    topic, group, reader = create_topic(east, unique_topic("switched")), new_name("switched"), new_name("reader")
    setup, home = both_ways(east, west, [topic], [group, reader])
    produce(east, topic, numbered(10))
    copy_until_caught_up(setup)
    copy_until_caught_up(setup, home)  # finds nothing that was born at west, and is off from here on
    for start in range(10, 50, 10):  # transactions whose markers only a look tells from somebody's records
        produce(east, topic, numbered(10, start))
        copy_until_caught_up(setup)
    assert values(read(east, topic)[0]) == values(read(west, topic)[0])
    commit(east, group, {(topic, 0): 33})
    assert sync(setup, "--link", setup.link)[group]["why"] == "1 partition: 1 by two-way"
    with Client(setup.config) as client:
        assert committed(west, group, topic).offset == client.translate(setup.link, topic, 0, 33).offset
    # The group moves. What it reads at west, and what is written there, is its own when it comes home.
    got = read_on(west, group, topic, most=12, commit=True)[0]
    assert [value.split()[1] for value in got] == [b"%d" % n for n in range(33, 45)]
    produce(west, topic, numbered(20, 50))
    got = read_on(west, group, topic, most=3, commit=True)[0]
    commit(west, reader, {(topic, 0): read(west, topic)[0][-5].offset})
    copy_until_caught_up(setup, home)
    done = sync(setup, "--link", home)
    assert done[reader]["why"] == "1 partition: 1 by two-way"
    assert [v.split()[1] for v in read_on(east, group, topic)[0]] == [b"%d" % n for n in range(48, 70)]
    assert [v.split()[1] for v in read_on(east, reader, topic)[0]] == [b"%d" % n for n in range(65, 70)]


@pytest.fixture
def reading(east: KafkaSite) -> Iterator[Callable[[str, str], Consumer]]:
    """Members of groups, gone after the test."""
    made: list[Consumer] = []

    def member(group: str, topic: str) -> Consumer:
        consumer = Consumer(
            {"bootstrap.servers": east.admin_bootstrap, **QUIET, "group.id": group, "enable.auto.commit": False}
        )
        made.append(consumer)
        consumer.subscribe([topic])
        wait_for(lambda: (consumer.poll(0.1), consumer.assignment())[1], f"{group} to be assigned")
        return consumer

    yield member
    for consumer in made:
        consumer.close()


def test_all_groups_move_at_a_failover(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, reading: Callable[[str, str], Consumer]
) -> None:
    """Members at the old site or not; never back; and copies under a name of their own go home to the original."""
    topic = create_topic(east, unique_topic("moving"))
    quiet, busy, ahead = new_name("quiet"), new_name("busy"), new_name("ahead")
    setup, home = both_ways(east, west, [topic], [quiet, busy, ahead], rename="{source}.{topic}")
    there = f"{east.name}.{topic}"
    produce(east, topic, numbered(20))
    copy_until_caught_up(setup)
    for group in (quiet, busy, ahead):
        commit(east, group, {(topic, 0): 12})
    commit(west, ahead, {(there, 0): 19})
    reading(busy, topic)
    left_out = new_name("left-out")
    commit(east, left_out, {(topic, 0): 3})
    link = setup.config.links[setup.link]
    with Ends.of(setup.config, link) as ends:
        moved = {each.group: each for each in ends.loop.run(move_groups, ends)}
        again = {each.group: each for each in ends.loop.run(move_groups, ends)}
    assert set(moved) == {quiet, busy, ahead}
    assert {name: (each.written, each.kept) for name, each in moved.items()} == {
        quiet: (1, 0), busy: (1, 0), ahead: (0, 1),
    }  # fmt: skip
    assert moved[ahead].reasons == [f"{there}[0]: at 19 there, which is further than 12; never moved back"]
    assert {name: (each.written, each.kept) for name, each in again.items()} == dict.fromkeys(moved, (0, 1))
    for group in (quiet, busy):
        assert [v.split()[1] for v in read_on(west, group, there)[0]] == [b"%d" % n for n in range(12, 20)]
    # Home again: the link home does not carry this topic, and the map that brought it answers.
    commit(west, quiet, {(there, 0): read(west, there)[0][16].offset})
    with Ends.of(setup.config, setup.config.links[home]) as ends:
        back = {each.group: each for each in ends.loop.run(move_groups, ends)}
    assert back[quiet].written == 1
    assert [v.split()[1] for v in read_on(east, quiet, topic)[0]] == [b"16", b"17", b"18", b"19"]


def stand_in_its_commit(setup: Setup, link: str) -> Callable[[], None]:
    """A slot of the link that has written its line of the map and goes no further; what ends its transaction."""
    topic = state.map_topic(link)
    cluster = Cluster(setup.config.sites[setup.config.links[link].target])
    leaders = Leaders(cluster, [topic])
    writer = ChunkWriter("another", 0, uuid.UUID(int=1), uuid.UUID(int=2))
    (line,) = writer.stage([np.array([[0, 0, 1]], np.int64)], 0, 1)
    producer = Producer(cluster, leaders, Signal(cluster.loop), [state.transactional_ids(link, 1)[0]])

    async def stand() -> None:
        await cluster.connect()
        await leaders.refresh()
        await producer.begin()
        producer.produce({(topic, 0): small_batch([line])})
        await producer.drain()

    def end() -> None:
        cluster.call(producer.begin)
        cluster.close()

    cluster.call(stand)
    return end


@pytest.mark.parametrize("whose", ["there", "home"])
def test_a_slot_that_stands_in_its_commit(east: KafkaSite, west: KafkaSite, unique_topic: Name, whose: str) -> None:
    """It hides the lines of the map that other slots write meanwhile, while their progress moves on."""
    topic, group = unique_topic("both"), new_name("readers")
    create_topic(east, topic)
    create_topic(west, topic)
    setup, home = both_ways(east, west, [topic], {"include": [group], "only_empty": False})

    def write(site: KafkaSite, stem: str) -> None:
        produce(site, topic, [Message(f"{stem} {n}".encode()) for n in range(10)])

    with Replicator(setup, setup.link), Replicator(setup, home):
        write(east, "a")
        write(west, "b")
        wait_for_records(west, topic, 20)
        wait_for_records(east, topic, 20)
        end = read(east, topic)[0][-1].offset + 1
        commit(east, group, {(topic, 0): end})  # it has read all that is at east
        over = stand_in_its_commit(setup, home if whose == "home" else setup.link)
        write(west, "w")
        wait_for_records(east, topic, 30)
        write(east, "e")
        wait_for_records(west, topic, 40)
        sync(setup, "--link", setup.link)
        place = committed(west, group, topic).offset
        over()
        had = {record.value for record in read(east, topic)[0] if record.offset < end}
        skipped = [record.value for record in read(west, topic)[0] if record.offset < place and record.value not in had]
        assert not skipped
        sync(setup, "--link", setup.link)
        judge(read(east, topic)[0], read(west, topic)[0], end, committed(west, group, topic).offset)
