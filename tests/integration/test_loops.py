"""Sites that are written to at the same time: every record exactly once everywhere, in the order of its site, and none goes round.

What is at a site is read by confluent-kafka. Each value is ``SITE NUMBER``, so who was born where needs no header to be seen.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from links import (
    OFFSET_HEADER,
    Message,
    Record,
    Replicator,
    Run,
    Setup,
    configure,
    copy_until_caught_up,
    create_topic,
    isthmus,
    new_name,
    producer_of,
    read,
    run,
    send,
    topics_of,
    wait_for,
)

from isthmus.client import Client
from isthmus.control.resources import refuse_clashes
from isthmus.kafka.cluster import Cluster
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]
PARTITIONS = 2
OWN = [("trace", b"1"), ("trace", None)]  # what a record's writer has given it


def numbered(site: KafkaSite, first: int, count: int) -> list[Message]:
    return [
        Message(f"{site.name} {number}".encode(), headers=list(OWN), partition=number % PARTITIONS)
        for number in range(first, first + count)
    ]


class Writer:
    """Writes to a topic of a site, a little at a time, until it is told to stop."""

    def __init__(self, site: KafkaSite, topic: str) -> None:
        self.site, self.count = site, 0
        self._topic, self._stop = topic, threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        producer = producer_of(self.site)
        try:
            while not self._stop.is_set():
                send(producer, self._topic, numbered(self.site, self.count, 20))
                self.count += 20
                self._stop.wait(0.02)
        except BaseException as error:
            self._failure = error


def born_at(record: Record) -> str:
    return (record.value or b"").decode().split()[0]


def copies(here: KafkaSite, topic: str) -> int:
    """How many records have come from elsewhere."""
    return sum(born_at(record) != here.name for records in read(here, topic).values() for record in records)


def check_site(
    here: KafkaSite, topic: str, written: dict[str, int], header: str, names: dict[str, str], extra: int = 1
) -> dict[int, list[Record]]:
    """Every record of every site exactly once, in its site's order, with the headers that it should have; ``names`` says how sites
    stand in the header, ``extra`` how many offset headers a copy has at most."""
    found = read(here, topic)
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for partition, records in found.items():
        for record in records:
            site, number = (record.value or b"").decode().split()
            numbers[site, partition].append(int(number))
            held = list(record.headers)
            assert held[:2] == OWN, record
            if site == here.name:
                assert held[2:] == [], record
                continue
            assert held[2][0] == header, record
            assert (held[2][1] or b"").decode().startswith(names[site]), record
            assert {key for key, _ in held[3:]} == {OFFSET_HEADER}, record
            assert len(held) - 3 <= extra, record
    expected = {
        (site, partition): list(range(partition, count, PARTITIONS))
        for site, count in written.items()
        for partition in range(PARTITIONS)
    }
    assert {key: got for key, got in numbers.items() if got != expected[key]} == {}
    assert set(numbers) == set(expected)
    return found


def check_translation(setup: Setup, link: str, topic: str, there: dict[int, list[Record]], source: KafkaSite) -> int:
    """Each copied record is where the link's map says; how many there were."""
    count = 0
    with Client(setup.path) as client:
        for partition, records in there.items():
            for record in records:
                if born_at(record) == source.name:
                    offset = int.from_bytes(record.headers[-1][1] or b"", "big")
                    place = client.translate(link, topic, partition, offset)
                    assert (place.offset, place.exact) == (record.offset, True), (record, place)
                    count += 1
    return count


def test_one_topic_written_at_both_sites(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Both links run, die in the middle of it, and go on; both sites are written to all the time."""
    topic = unique_topic("both")
    sites = {east.name: east, west.name: west}
    for site in sites.values():
        create_topic(site, topic, PARTITIONS)
    there, home = new_name("there"), new_name("home")
    common = {"topics": [topic], "loop": "returning", "commit_interval": "100ms", "sync": {"groups": False}}
    setup = configure(
        sites,
        {there: {"from": east.name, "to": west.name, **common}, home: {"from": west.name, "to": east.name, **common}},
    )
    writers = [Writer(site, topic) for site in sites.values()]
    with Run(setup) as started:
        for site in sites.values():
            wait_for(lambda site=site: copies(site, topic) > 200, f"copies at {site.name}", 120, pause=0.3)
        os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()
    for writer in writers:
        writer.stop()
    answer = run(setup, "--until-caught-up")
    assert answer.code == 0, answer
    written = {writer.site.name: writer.count for writer in writers}
    names = {name: name for name in sites}
    at_east = check_site(east, topic, written, "isthmus-origin", names)
    at_west = check_site(west, topic, written, "isthmus-origin", names)
    assert check_translation(setup, there, topic, at_west, east) == written[east.name]
    assert check_translation(setup, home, topic, at_east, west) == written[west.name]
    # Records of both sites lie between each other, or nothing of this was shown.
    assert any(
        sum(born_at(one) != born_at(two) for one, two in pairwise(records)) > 1
        for records in (*at_east.values(), *at_west.values())
    )


@pytest.fixture(scope="module")
def north(make_module_site: Callable[..., KafkaSite]) -> KafkaSite:
    """A third site."""
    return make_module_site("north")


def cluster_id(site: KafkaSite, setup: Setup) -> str:
    with Cluster(setup.config.sites[site.name]) as cluster:
        cluster.call(cluster.connect)
        return str(cluster.cluster_id)


def test_mesh_ring_and_hub(east: KafkaSite, west: KafkaSite, north: KafkaSite, unique_topic: Name) -> None:
    """Three sites, each way to join them, and each kind of header, in one file; all links run at the same time."""
    sites = {site.name: site for site in (east, west, north)}
    names = list(sites)
    shapes: dict[str, tuple[list[tuple[str, str, str]], dict[str, str]]] = {
        "mesh": ([(a, b, "foreign") for a in names for b in names if a != b], {"value": "site"}),
        "ring": (
            [(a, b, "returning") for a, b in zip(names, names[1:] + names[:1], strict=True)],
            {"header": "ring", "value": "cluster"},
        ),
        "hub": (
            [
                *((name, north.name, "foreign") for name in names[:2]),
                *((north.name, name, "returning") for name in names[:2]),
            ],
            {"header": "hub", "value": "provenance"},
        ),
    }
    topics = {shape: unique_topic(shape) for shape in shapes}
    links: dict[str, dict[str, Any]] = {}
    for shape, (ways, origin) in shapes.items():
        for source, target, loop in ways:
            links[new_name(shape)] = {
                "from": source, "to": target, "topics": [topics[shape]], "loop": loop, "origin": origin,
            }  # fmt: skip
    for topic in topics.values():
        for site in sites.values():
            create_topic(site, topic, PARTITIONS)
    setup = configure(sites, links)
    refuse_clashes(setup.config, list(links))
    ids = {name: cluster_id(site, setup) for name, site in sites.items()}

    producers = {name: producer_of(site) for name, site in sites.items()}
    written = dict.fromkeys(names, 0)

    with contextlib.ExitStack() as running:
        for link in links:
            running.enter_context(Replicator(setup, link, slots=1))
        # Each time, what went round before would be there when all that is new is.
        for count in (40, 2):
            for name in names:
                for topic in topics.values():
                    send(producers[name], topic, numbered(sites[name], written[name], count))
                written[name] += count
            total = sum(written.values())
            for topic in topics.values():
                for site in sites.values():
                    wait_for(
                        lambda site=site, topic=topic: sum(map(len, read(site, topic).values())) >= total,  # noqa: B023
                        f"every record at {site.name} in {topic}",
                        120,
                    )
    by_name = {name: name for name in names}
    for shape, header, known in (
        ("mesh", "isthmus-origin", by_name),
        ("ring", "ring", ids),
        ("hub", "hub", {name: f"{id_},{topics['hub']}," for name, id_ in ids.items()}),
    ):
        for site in sites.values():
            check_site(site, topics[shape], written, header, known, extra=1 if shape == "mesh" else 2)


def test_copies_that_their_names_tell(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """``topic1`` is ``topic1.replica`` at the other site, and is not copied back from there."""
    stem = unique_topic("named")
    one, two = create_topic(east, f"{stem}-1", PARTITIONS), create_topic(west, f"{stem}-2", PARTITIONS)
    common = {"topics": [f"/{stem}.*/"], "rename": "{topic}.replica", "loop": "returning", "sync": {"groups": False}}
    there, home = new_name("there"), new_name("home")
    setup = configure(
        {east.name: east, west.name: west},
        {there: {"from": east.name, "to": west.name, **common}, home: {"from": west.name, "to": east.name, **common}},
    )
    for site, topic in ((east, one), (west, two)):
        send(producer_of(site), topic, numbered(site, 0, 10))
    for link in (there, home, there, home):
        copy_until_caught_up(setup, link, slots=1)
    assert {name for name in topics_of(east) if name.startswith(stem)} == {one, f"{two}.replica"}
    assert {name for name in topics_of(west) if name.startswith(stem)} == {two, f"{one}.replica"}
    assert sum(len(records) for records in read(west, f"{one}.replica").values()) == 10
    plan = isthmus(setup, "plan", "--json")
    assert plan.code == 0, plan.out
    assert {c["name"] for link in plan.document for c in link["changes"] if c["resource"] == "topics"} == {
        f"{one}.replica", f"{two}.replica",
    }  # fmt: skip


def test_what_was_written_to_a_copy_goes_home(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Readers and writers of ``orders`` have moved to its copy at the other site; what they wrote comes to the original."""
    topic = create_topic(east, unique_topic("orders"), PARTITIONS)
    copy, there, home = f"{east.name}.{topic}", new_name("there"), new_name("home")
    common = {"loop": "returning", "sync": {"groups": False}}
    setup = configure(
        {east.name: east, west.name: west},
        {
            there: {
                "from": east.name,
                "to": west.name,
                "topics": [f"/{topic}/"],
                "rename": "{source}.{topic}",
                **common,
            },
            home: {"from": west.name, "to": east.name, "topics": [copy], "rename": topic, **common},
        },
    )
    send(producer_of(east), topic, numbered(east, 0, 20))
    copy_until_caught_up(setup, there, slots=1)
    send(producer_of(west), copy, numbered(west, 0, 10))
    for link in (home, there, home):
        copy_until_caught_up(setup, link, slots=1)
    names = {site.name: site.name for site in (east, west)}
    written = {east.name: 20, west.name: 10}
    check_site(east, topic, written, "isthmus-origin", names)
    check_site(west, copy, written, "isthmus-origin", names)
