"""What a link keeps must outlive its group: brokers forget a group's offsets after a week (``offsets.retention.minutes``).

Deleting the group is the same for all that look at it, and takes no week.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from links import (
    Replicator,
    Setup,
    admin,
    compare,
    copy_until_caught_up,
    create_topic,
    in_threads,
    isthmus,
    numbered,
    one_link,
    produce,
    read,
    reset,
    status,
    wait_for,
    wait_for_records,
)
from readers import positions

from isthmus.cli.connect import connected
from isthmus.engine import reset as resetting
from isthmus.engine import steer as steering
from isthmus.engine.hold import hold
from isthmus.engine.state import Control, group
from isthmus.engine.steer import read_control, steer
from isthmus.kafka.cluster import Cluster
from isthmus.recovery.standing import standing
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def forget(setup: Setup) -> None:
    """What a broker does after ``offsets.retention.minutes``."""
    name, client = group(setup.link), admin(setup.target)  # the client must live until it is answered
    client.delete_consumer_groups([name])[name].result(30)


def at(setup: Setup) -> Cluster:
    cluster = Cluster(setup.config.sites[setup.target.name])
    cluster.call(cluster.connect)
    return cluster


def test_a_held_link_stays_held(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("held"))
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(20))
    with Replicator(setup), at(setup) as target:
        wait_for_records(west, topic, 20)
        target.call(hold, target, setup.config.links[setup.link], "west is in service")
        for _ in range(2):  # once with tasks that know of the hold, once without
            forget(setup)
            produce(east, topic, numbered(5))
            # The living run puts back all that was there: what is asked of it, who it is, where it goes on.
            wait_for(lambda: len(positions(west, group(setup.link))) == 3, "claim, control and progress to be put back")
            assert status(setup)["state"] == "held"
        assert len(read(west, topic)[0]) == 20
        assert isthmus(setup, "resume", setup.link, "--held").code == 0
        wait_for_records(west, topic, 30)
    assert compare(east, west, topic) == 30


def test_recovery_knows_a_link_that_rested(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """A partition of which nothing was copied, a position that was set by hand, and the rest of them."""
    topic = create_topic(east, unique_topic("rested"), 3)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(20) + numbered(20, partition=1))
    copy_until_caught_up(setup)
    reset(setup, f"{topic}:1", to="5")
    assert isthmus(setup, "pause", setup.link).code == 0
    before = {(p["topic"], p["partition"]): p["position"] for p in status(setup)["partitions"]}
    assert before == {(topic, 0): 20, (topic, 1): 5, (topic, 2): 0}
    forget(setup)
    now = status(setup)
    assert now["state"] == "paused"
    assert {(p["topic"], p["partition"]): p["position"] for p in now["partitions"]} == before
    assert isthmus(setup, "resume", setup.link).code == 0
    forget(setup)
    reset(setup, f"{topic}:1", to="current")
    forget(setup)
    reset(setup, f"{topic}:1", to="20")
    forget(setup)
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 40
    forget(setup)
    with at(setup) as target:
        found = target.call(standing, target, setup.config.links[setup.link])
    assert {key: progress.offset for key, progress in found.progress.items()} == {
        (topic, 0): 20,
        (topic, 1): 20,
        (topic, 2): 0,
    }
    assert found.claim.started


def test_start_counts_once(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem = unique_topic("born")
    first = create_topic(east, f"{stem}-first")
    produce(east, first, numbered(10))
    setup = one_link(east, west, [f"/{stem}-.*/"], start="latest")
    copy_until_caught_up(setup)
    forget(setup)
    late = create_topic(east, f"{stem}-late")
    produce(east, late, numbered(30))
    produce(east, first, numbered(5, 10))
    copy_until_caught_up(setup)
    assert compare(east, west, late) == 30
    assert compare(east, west, first, since={0: 10}) == 5


def test_a_task_whose_claim_was_forgotten_goes_on(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("claim"))
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(10))
    with Replicator(setup):
        wait_for_records(west, topic, 10)
        forget(setup)
        produce(east, topic, numbered(10, 10))
        wait_for_records(west, topic, 20)
        wait_for(lambda: len(positions(west, group(setup.link))) == 3, "all to be written again")
    assert compare(east, west, topic) == 20


def test_brokers_that_really_forget(east: KafkaSite, make_site: Callable[..., KafkaSite], unique_topic: Name) -> None:
    """After ``offsets.retention.minutes``: a held link whose run lives stays held, and work comes home over one that nobody runs."""
    forgetful = make_site(config={"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"})
    stem = unique_topic("week")
    living, rested = create_topic(east, f"{stem}-living"), create_topic(east, f"{stem}-rested")
    held, left = one_link(east, forgetful, [living]), one_link(east, forgetful, [rested], origin=True)
    for topic in (living, rested):
        produce(east, topic, numbered(20))
    copy_until_caught_up(left)
    assert isthmus(left, "failover", east.name, "--to", forgetful.name, "--emergency", "--json").code == 0
    with Replicator(held), at(held) as target:
        wait_for_records(forgetful, living, 20)
        target.call(hold, target, held.config.links[held.link], "the other site is in service")
        produce(east, living, numbered(5, 20))
        produce(forgetful, rested, numbered(5, 20))
        wait_for(lambda: not positions(forgetful, group(left.link)), "the broker to forget a link", 200, pause=1)
        # What the living run's link keeps is as old, and was put back.
        wait_for(lambda: len(positions(forgetful, group(held.link))) == 3, "the living run's lines", 60)
        assert status(held)["state"] == status(left)["state"] == "held"
        assert len(read(forgetful, living)[0]) == 20
    answer = isthmus(left, "failback", east.name, "--fence", "none", "--json")
    assert answer.code == 0, answer
    assert len(read(east, rested)[0]) == len(read(forgetful, rested)[0]) == 25


# -- wishes of several at once ---------------------------------------------------------------------------------


def test_no_wish_is_lost_to_another(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver has read what is asked of the link and is about to ask for a new deal; recovery holds the link; the driver writes."""
    topic = create_topic(east, unique_topic("wishes"))
    setup = one_link(east, west, [topic])
    link = setup.config.links[setup.link]
    copy_until_caught_up(setup)
    original, met = steering.read_control, threading.Event()
    with at(setup) as driver, at(setup) as operator:

        async def slow(target: Any, name: str, stable: bool = False) -> Control:
            found = await original(target, name, stable)
            if target is driver and stable and not met.is_set():
                met.set()
                in_threads([lambda: operator.call(hold, operator, link, "west is in service")])
            return found

        monkeypatch.setattr(steering, "read_control", slow)
        driver.call(lambda: steer(driver, link, deal_again=True))
        found = operator.call(original, operator, setup.link)
    assert met.is_set()
    assert (found.held, found.deal) == ("west is in service", 1)


def test_wishes_of_many_at_once(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("many"))
    setup = one_link(east, west, [topic])
    link = setup.config.links[setup.link]
    copy_until_caught_up(setup)

    def ask() -> None:
        with at(setup) as target:
            target.call(lambda: steer(target, link, deal_again=True))

    in_threads([ask] * 3)
    with at(setup) as target:
        assert target.call(read_control, target, setup.link).deal == 3


def test_a_link_without_transactions_can_be_steered(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("plain"))
    setup = one_link(east, west, [topic], delivery="at-least-once")
    copy_until_caught_up(setup)
    assert isthmus(setup, "pause", setup.link).code == 0
    forget(setup)
    assert status(setup)["state"] == "paused"


@pytest.mark.parametrize("paused", [False, True])
def test_a_reset_leaves_the_pause_as_it_was(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    """Two at once; and one that was killed, given again."""
    topic = create_topic(east, unique_topic("resets"), 2)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(5))
    copy_until_caught_up(setup)
    if paused:
        assert isthmus(setup, "pause", setup.link).code == 0
    expected = ("paused",) if paused else ("stopped", "running")  # the tasks' last reports are young
    meet, original = threading.Barrier(2, timeout=60), resetting._clear_faults

    async def together(*arguments: Any) -> None:
        await original(*arguments)
        meet.wait()  # both have begun before one is done

    monkeypatch.setattr(resetting, "_clear_faults", together)

    def reset_one(partition: int) -> None:
        link, sites = setup.config.links[setup.link], setup.config.sites
        with connected(sites[east.name], sites[west.name]) as (source, target):
            target.call(resetting.reset, source, target, link, {topic: {partition}}, "earliest")

    in_threads([lambda p=p: reset_one(p) for p in range(2)])
    assert status(setup)["state"] in expected
    monkeypatch.undo()

    with at(setup) as target:
        target.call(lambda: steer(target, setup.config.links[setup.link], reset="killed"))  # all that a kill leaves
    found = status(setup)
    assert found["state"] == "paused"
    assert any("reset" in words for words in found["trouble"])
    reset(setup, topic, to="earliest")
    assert status(setup)["state"] in expected
    assert not status(setup)["trouble"]
