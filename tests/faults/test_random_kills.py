"""kill -9, again and again, at random moments and at named points, of every process that takes part."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Any

import points
from nursery import FENCED, Child, Nursery

from isthmus.errors import TakenOver
from isthmus.sandbox import KafkaSite

ONCE_A_LEASE = ("fence", "look", "read")
# How a copy may end that nobody killed: its lease was over, or somebody else has its slot.
ENDS = {0, TakenOver.exit_code, FENCED}


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

    def kill_planner(self, slots: int, point: str) -> None:
        planner = self._nursery.plan(self._scene, slots, point=point)
        assert planner.wait() == -signal.SIGKILL, planner.log

    def copy(self, slot: int, **hook: Any) -> Child:
        assert self._lease is not None
        child = self._nursery.copy(self._lease, slot, **hook)
        self._all.append(child)
        return child

    def expect_killed(self, child: Child) -> None:
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
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(east, west)
    todo = [*points.COPY, *points.PLAN] * 2
    rng.shuffle(todo)
    crew = Crew(nursery, scene)
    with scene.judge() as judge, scene.load() as load:
        for point in todo:
            slots = rng.choice((1, 2, 3))
            if point in points.PLAN:
                crew.kill_planner(slots, point)
                print(f"planner for {slots} slots killed at {point}")
                crew.deal(slots)
                for slot in range(slots):
                    crew.copy(slot)
            else:
                crew.deal(slots)
                slot = rng.randrange(slots)
                nth = 1 if point in ONCE_A_LEASE else rng.randint(1, 3)
                victim = crew.copy(slot, point=point, nth=nth)
                for other in range(slots):
                    if other != slot:
                        crew.copy(other)
                crew.expect_killed(victim)
                print(f"slot {slot} of {slots} killed at {point} number {nth}")
                if rng.random() < 0.5:
                    crew.copy(slot)  # as Spark does: another attempt under the same lease
            judge.look()
        crew.deal(2)
        crew.copy(0)
        crew.copy(1)
        judge.finish(load.stop())
    judge.check_map(scene.link)
    crew.end()
