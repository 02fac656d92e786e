"""Brokers of replicated sites lost and brought back under load: leaders, coordinators, one after another."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, TopicMetadata
from ledger import QUIET, Judge, Load, read_topic
from nursery import Child, Nursery

from isthmus.engine import state
from isthmus.sandbox import KafkaSite, Sandbox
from isthmus.sandbox.kafka import Broker

BROKERS = 3
WHOLE_SECONDS = 90.0


@pytest.fixture(scope="module")
def trios(box: Sandbox) -> Iterator[list[KafkaSite]]:
    """Two sites of three brokers; a write needs two of them."""
    sites = box.start_all(["trio-source", "trio-target"], brokers=BROKERS, config={"min.insync.replicas": "2"})
    yield sites
    for site in sites:
        box.remove(site.name)


def topics(site: KafkaSite) -> dict[str, TopicMetadata]:
    return AdminClient({**site.client_config(), **QUIET}).list_topics(timeout=30).topics


def leader(site: KafkaSite, topic: str, partition: int) -> Broker:
    return site.brokers[topics(site)[topic].partitions[partition].leader - 1]


def coordinator(site: KafkaSite, kind: str, key: str) -> Broker:
    """Who keeps a group (``__consumer_offsets``) or a transactional id (``__transaction_state``)."""
    code = 0
    for character in key:
        code = (31 * code + ord(character)) & 0xFFFFFFFF  # Java's String.hashCode
    return leader(site, kind, (code & 0x7FFFFFFF) % len(topics(site)[kind].partitions))


def wait_until_whole(site: KafkaSite) -> None:
    """Until each partition has all its replicas in sync, so that the next loss leaves enough."""
    deadline = time.monotonic() + WHOLE_SECONDS
    while True:
        torn = [
            f"{name}[{number}]: {partition.isrs}"
            for name, topic in topics(site).items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas) or partition.leader < 0
        ]
        if not torn:
            return
        assert time.monotonic() < deadline, f"not whole after {WHOLE_SECONDS} s: {torn}"
        time.sleep(0.2)


def start_copies(nursery: Nursery, scene: Any) -> list[Child]:
    # A broker that has not heard of the topic yet shows an empty site; a driver would plan again, too.
    for _ in range(20):
        planned = nursery.plan(scene, 2)
        assert planned.wait() == 0, planned.log
        if sum(len(lease.assignments) for lease in planned.result) == scene.partitions:
            break
        time.sleep(0.5)
    return [nursery.copy(planned, slot) for slot in range(2)]


def lose(hits: list[Broker], frozen: bool, judge: Judge, load: Load) -> float:
    """Kill or freeze these brokers at once; the link must go on without them. Then they come back."""
    moment = time.monotonic()
    for broker in hits:
        if frozen:
            broker.pause()
        else:
            broker.kill()
    judge.follow(load)
    took = time.monotonic() - moment
    if frozen:
        for broker in hits:
            broker.resume()  # each still takes itself for a leader
    else:
        with ThreadPoolExecutor(len(hits)) as pool:
            list(pool.map(Broker.start, hits))
    for broker in hits:
        wait_until_whole(broker.site)
    judge.look()
    return took


def check_undisturbed(copies: list[Child]) -> None:
    """A lost broker is no reason for a task to end, nor for a partition to stand still."""
    for copy in copies:
        assert copy.status is None, copy.log


def check_no_faults(scene: Any) -> None:
    faults = [m for m in read_topic(scene.target, state.status_topic(scene.link)) if m.key().startswith(b"fault/")]
    assert not faults, [(m.key(), m.value()) for m in faults]


def test_lost_leaders_and_coordinators(
    trios: list[KafkaSite], make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    source, target = trios
    scene = make_scene(source, target, partitions=6, site={"request_timeout": "2s"})
    with scene.judge() as judge, scene.load() as load:
        copies = start_copies(nursery, scene)
        judge.follow(load)
        victims: dict[str, Callable[[], Broker]] = {
            "the leader of a partition": lambda: leader(target, scene.topic, rng.randrange(6)),
            "the transaction coordinator": lambda: coordinator(
                target, "__transaction_state", rng.choice(state.transactional_ids(scene.link, rng.randrange(2)))
            ),
            "the group coordinator": lambda: coordinator(target, "__consumer_offsets", state.group(scene.link)),
        }
        frozen = rng.choice(list(victims))
        for what, find in victims.items():
            hits = [leader(source, scene.topic, rng.randrange(6)), find()]
            took = lose(hits, what == frozen, judge, load)
            how = "frozen" if what == frozen else "killed"
            print(f"{what} ({hits[1].label}) and {hits[0].label} {how}; caught up after {took:.1f} s")
            check_undisturbed(copies)
        judge.finish(load.stop())
    judge.check_map(scene.link)
    check_no_faults(scene)


def test_rolling_restart_of_both_sites(
    trios: list[KafkaSite], make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(*trios, partitions=6)
    with scene.judge() as judge, scene.load() as load:
        copies = start_copies(nursery, scene)
        judge.follow(load)
        for number in range(BROKERS):
            brokers = [site.brokers[number] for site in trios]
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(Broker.stop, brokers))
                list(pool.map(Broker.start, brokers))
            for site in trios:
                wait_until_whole(site)
            judge.follow(load)
            check_undisturbed(copies)
        judge.finish(load.stop())
    judge.check_map(scene.link)
    check_no_faults(scene)


def test_brokers_that_have_not_heard_of_the_topics_yet(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery
) -> None:
    scene = make_scene(east, west)
    with scene.judge() as judge, scene.load() as load:
        planned = nursery.plan(scene)
        assert planned.wait() == 0, planned.log
        copy = nursery.copy(planned, forgetful=[east.name, west.name], times=5)
        judge.follow(load)
        check_undisturbed([copy])
        judge.finish(load.stop())
    check_no_faults(scene)
