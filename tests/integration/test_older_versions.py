"""Kafka 3.9.2, which has only the first transaction protocol, as source and as destination.

It stands in for every broker before transaction version 2 (older Kafka, Redpanda): partitions and group are enlisted by
request, one epoch lasts for many transactions, sequence numbers run on, and Produce and Fetch speak older versions.
"""

from __future__ import annotations

from collections.abc import Callable

import links
import pytest

from isthmus.sandbox import KafkaSite


@pytest.fixture(scope="module")
def old(make_module_site: Callable[..., KafkaSite]) -> KafkaSite:
    return make_module_site("old", version="3.9.2")


def fill(site: KafkaSite, topic: str, start: int, count: int = 3000) -> None:
    for partition in range(3):
        links.produce(site, topic, links.numbered(count, start, partition=partition))
    with links.transaction(site, commit=False) as producer:
        links.send(producer, topic, links.numbered(50, start))
    with links.transaction(site, commit=True) as producer:
        links.send(producer, topic, links.numbered(50, start + count))


@pytest.mark.parametrize("direction", ["from old", "to old"])
def test_copies_exactly_over_kills_and_restarts(
    direction: str, old: KafkaSite, east: KafkaSite, unique_topic: Callable[[], str]
) -> None:
    source, target = (old, east) if direction == "from old" else (east, old)
    topic = links.create_topic(source, unique_topic(), partitions=3)
    fill(source, topic, 0)
    setup = links.one_link(source, target, [topic], commit_interval="100ms")
    links.copy_until_caught_up(setup)
    links.compare(source, target, topic)
    for turn in range(1, 4):
        with links.replicator_process(setup) as process:
            fill(source, topic, turn * 4000)
            links.wait_for_records(target, topic, turn * 9000)
            process.kill()
    links.copy_until_caught_up(setup)
    links.compare(source, target, topic)


def test_the_map_is_exact_there_too(old: KafkaSite, east: KafkaSite, unique_topic: Callable[[], str]) -> None:
    from isthmus.client import Client

    topic = links.create_topic(east, unique_topic(), partitions=1)
    for turn in range(3):
        links.produce(east, topic, links.numbered(100, turn * 100))
        with links.transaction(east, commit=False) as producer:
            links.send(producer, topic, links.numbered(10))
    setup = links.one_link(east, old, [topic])
    links.copy_until_caught_up(setup)
    with Client(setup.config) as client:
        for record in links.read(old, topic)[0]:
            source = int.from_bytes(dict(record.headers)[links.OFFSET_HEADER], "big")
            place = client.translate(setup.link, topic, 0, source)
            assert (place.offset, place.exact) == (record.offset, True)
