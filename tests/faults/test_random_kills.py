"""kill -9, again and again, at random moments and at named points, of every process that takes part.

Each kill is printed, and after each one the judge goes over everything that has come out since.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import points
import pytest
from confluent_kafka import Consumer, TopicPartition
from ledger import QUIET
from nursery import FENCED, Child, Nursery
from replicator import Replicator

from isthmus.engine import state
from isthmus.errors import TakenOver
from isthmus.sandbox import KafkaSite, Sandbox

ONCE_A_LEASE = ("fence", "look", "read")
# How a copy may end that nobody killed: its lease was over, or somebody else has its slot.
ENDS = {0, TakenOver.exit_code, FENCED}


@pytest.fixture(scope="module")
def pair(box: Sandbox) -> Any:
    """Two sites whose brokers these tests may kill."""
    sites = box.start_all(["kills-source", "kills-target"])
    yield sites
    for site in sites:
        box.remove(site.name)


class Crew:
    """The copies of a link's present lease, as processes; older ones may still be about."""

    def __init__(self, nursery: Nursery, scene: Any) -> None:
        self._nursery, self._scene = nursery, scene
        self._lease: Child | None = None
        self.slots = 0
        self._killed: list[Child] = []
        self._all: list[Child] = []

    def deal(self, slots: int) -> None:
        self._lease = self._nursery.plan(self._scene, slots)
        assert self._lease.wait() == 0, self._lease.log
        self.slots = slots

    def start_planner(self, slots: int, **hook: Any) -> Child:
        return self._nursery.plan(self._scene, slots, **hook)

    def copy(self, slot: int, **hook: Any) -> Child:
        assert self._lease is not None
        child = self._nursery.copy(self._lease, slot, **hook)
        self._all.append(child)
        return child

    def killed(self, child: Child) -> None:
        """A child that is, or is about to be, dead by SIGKILL."""
        assert child.wait() == -signal.SIGKILL, child.log
        self._killed.append(child)

    def end(self) -> None:
        """Ask the rest to end, and see that nobody ended in a way that nobody meant."""
        for child in self._all:
            child.signal(signal.SIGTERM)
        for child in self._all:
            if child not in self._killed:
                assert child.wait() in ENDS, child.log


def test_copies_and_planners_killed_at_every_named_point(
    pair: list[KafkaSite], make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(*pair)
    crew = Crew(nursery, scene)
    every = (*points.COPY, *points.PLAN)
    with scene.judge() as judge, scene.load(aborts=True) as load:
        for number, point in enumerate(rng.sample(every, len(every))):
            slots = rng.choice((1, 2, 3))
            if point in points.PLAN:
                planner = crew.start_planner(slots, point=point)
                assert planner.wait() == -signal.SIGKILL, planner.log
                print(f"kill {number}: planner for {slots} slots at {point}")
                continue
            crew.deal(slots)
            slot = rng.randrange(slots)
            nth = 1 if point in ONCE_A_LEASE else rng.randint(1, 3)
            victim = crew.copy(slot, point=point, nth=nth)
            for other in set(range(slots)) - {slot}:
                crew.copy(other)
            crew.killed(victim)
            print(f"kill {number}: slot {slot} of {slots} at {point} number {nth}")
            if rng.random() < 0.5:
                crew.copy(slot)  # as Spark does: another attempt under the same lease
                judge.follow(load)
            judge.look()
        crew.deal(2)
        crew.copy(0)
        crew.copy(1)
        judge.finish(load.stop())
        assert load.aborted, "nobody has aborted anything"
    judge.check_map(scene.link)
    crew.end()


@pytest.mark.parametrize("point", points.PLAN)
def test_a_planner_killed_on_its_first_plan_does_not_lose_the_start(
    point: str, pair: list[KafkaSite], make_scene: Callable[..., Any], nursery: Nursery
) -> None:
    source, target = pair
    scene = make_scene(source, target, start="latest")
    with scene.load() as load:
        while not all(load.delivered):
            time.sleep(0.01)
    planner = nursery.plan(scene, point=point)
    assert planner.wait() == -signal.SIGKILL, planner.log
    planned = nursery.plan(scene)
    assert planned.wait() == 0, planned.log
    group = Consumer({**target.client_config(), **QUIET, "group.id": state.group(scene.link)})
    places = group.committed([TopicPartition(scene.topic, p) for p in range(scene.partitions)], timeout=30)
    group.close()
    assert [place.offset for place in places] == load.delivered


def test_copies_and_planners_killed_at_random_moments(
    pair: list[KafkaSite], make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(*pair)
    crew = Crew(nursery, scene)
    with scene.judge() as judge, scene.load(aborts=True) as load:
        for number in range(12):
            slots = rng.choice((1, 2, 3))
            moment = rng.uniform(0, 0.4)
            if rng.random() < 0.25:
                victims = [crew.start_planner(slots)]
                what = "planner"
            else:
                crew.deal(slots)
                moment += rng.uniform(0, 0.6)
                copies = [crew.copy(slot) for slot in range(slots)]
                victims = rng.sample(copies, rng.randint(1, slots))
                what = f"{len(victims)} of {slots} copies"
            time.sleep(moment)  # not for a condition: the moment is what is random
            for victim in victims:
                victim.signal(signal.SIGKILL)
            print(f"kill {number}: {what} after {moment:.3f} s")
            for victim in victims:
                if victim.wait() == -signal.SIGKILL:
                    crew.killed(victim)
            judge.look()
        crew.deal(2)
        crew.copy(0)
        crew.copy(1)
        judge.finish(load.stop())
        assert load.aborted, "nobody has aborted anything"
    judge.check_map(scene.link)
    crew.end()


@pytest.mark.timeout(900)
def test_drivers_workers_and_brokers_killed_under_load(
    pair: list[KafkaSite], make_scene: Callable[..., Any], replicate: Callable[..., Replicator], rng: random.Random
) -> None:
    source, target = pair
    scene = make_scene(source, target, tasks=2)
    hits = ["worker"] * 3 + ["daemon", "jvm", "driver", "source", "destination", "destination"]
    rng.shuffle(hits)
    with scene.judge() as judge, scene.load(aborts=True) as load:
        run = replicate(scene)
        judge.follow(load)
        for number, hit in enumerate(hits):
            time.sleep(rng.uniform(0, 0.5))  # not for a condition: the moment is what is random
            moment = time.monotonic()
            if hit == "driver":
                run.kill_driver()
                run = replicate(scene)
            elif hit == "jvm":
                assert run.kill_jvm() != 0
                run = replicate(scene)
            elif hit in ("source", "destination"):
                broker = (source if hit == "source" else target).brokers[0]
                broker.kill()
                broker.start()
            else:
                find = {"worker": run.workers, "daemon": run.daemons}[hit]
                while not (found := find()):  # its predecessor was killed a moment ago
                    assert time.monotonic() < moment + 60, run.output
                    time.sleep(0.05)
                os.kill(rng.choice(found), signal.SIGKILL)
            judge.follow(load)
            print(f"kill {number}: {hit}; caught up after {time.monotonic() - moment:.1f} s")
            assert not run.ended, run.output
        judge.finish(load.stop())
        assert load.aborted, "nobody has aborted anything"
        assert run.stop() == 130, run.output
    judge.check_map(scene.link)
