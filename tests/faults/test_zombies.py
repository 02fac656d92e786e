"""A process that was stopped, replaced, and wakes up again: it must find itself fenced, write nothing, and end."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import points
import pytest
from nursery import FENCED, Child, Nursery
from replicator import Replicator, alive

from isthmus.errors import TakenOver
from isthmus.sandbox import KafkaSite

# Points at which a copy has its transactional id, and so is fenced by whoever takes it next.
HELD = [point for point in points.COPY if point != "fence"]
ONCE_A_LEASE = ("fence", "look", "read")


def plan(nursery: Nursery, scene: Any, slots: int, **more: Any) -> Child:
    planned = nursery.plan(scene, slots, **more)
    assert planned.wait() == 0, planned.log
    return planned


def stopped_copy(nursery: Nursery, planned: Child, slot: int, point: str, rng: random.Random) -> Child:
    nth = 1 if point in ONCE_A_LEASE else rng.randint(1, 3)
    zombie = nursery.copy(planned, slot, point=point, nth=nth, act="stop")
    zombie.wait_until_stopped()
    print(f"slot {slot} stopped at {point} number {nth}")
    return zombie


def test_a_copy_that_wakes_up_beside_another_attempt_of_its_task(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(east, west)
    with scene.judge() as judge, scene.load() as load:
        for point in rng.sample(HELD, len(HELD)):
            planned = plan(nursery, scene, 2)
            neighbour = nursery.copy(planned, 0)
            zombie = stopped_copy(nursery, planned, 1, point, rng)
            heir = nursery.copy(planned, 1)
            judge.follow(load)
            zombie.signal(signal.SIGCONT)
            # Whoever hears that it is fenced ends. A zombie that slept until its connections broke hears nothing: it
            # takes the id back, as an attempt of the same lease may, and then the heir is the one that ends.
            loser = first_to_end(zombie, heir)
            assert loser.status == FENCED, loser.log
            survivor = heir if loser is zombie else zombie
            judge.follow(load)
            assert survivor.status is None, survivor.log
            assert neighbour.status is None, neighbour.log
        judge.finish(load.stop())
    judge.check_map(scene.link)


def first_to_end(*copies: Any, seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        for copy in copies:
            if copy.status is not None:
                return copy
        assert time.monotonic() < deadline, [copy.where() for copy in copies]
        time.sleep(0.05)


def test_a_copy_that_wakes_up_after_its_partitions_were_dealt_to_other_slots(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(east, west)
    slots = 2
    with scene.judge() as judge, scene.load() as load:
        for point in rng.sample(HELD, len(HELD)):
            planned = plan(nursery, scene, slots, run="same")
            zombie = stopped_copy(nursery, planned, slots - 1, point, rng)
            slots = 3 - slots if rng.random() < 0.8 else 3
            planned = plan(nursery, scene, slots, run=rng.choice(("same", "another")))
            heirs = [nursery.copy(planned, slot) for slot in range(slots)]
            judge.follow(load)
            zombie.signal(signal.SIGCONT)
            # Before its first batch it finds another lease in the claim and leaves; after it, it is fenced.
            assert zombie.wait() in (0, TakenOver.exit_code), zombie.log
            judge.follow(load)
            assert [heir.status for heir in heirs] == [None] * slots, [heir.log for heir in heirs]
            slots = min(slots, 2)
        judge.finish(load.stop())
    judge.check_map(scene.link)


def test_a_copy_that_wakes_up_before_its_fence_and_so_fences_its_heir(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(east, west)
    with scene.judge() as judge, scene.load() as load:
        planned = plan(nursery, scene, 1, run="same")
        zombie = stopped_copy(nursery, planned, 0, "fence", rng)
        planned = plan(nursery, scene, 1, run="same")
        heir = nursery.copy(planned)
        judge.follow(load)
        zombie.signal(signal.SIGCONT)
        # It takes the id, looks at the claim, and leaves without a word.
        assert zombie.wait() == 0, zombie.log
        assert zombie.result.records == 0
        # The link is still the heir's. Fenced, it asks for another attempt; fenced in the middle of a commit, it is only
        # told that the commit failed, and takes its id back.
        goal, deadline = sum(load.delivered) + 400, time.monotonic() + 30
        while judge.copied < goal:
            judge.look()
            if heir.status is not None:
                assert heir.status == FENCED, heir.log
                heir = nursery.copy(planned)
            assert time.monotonic() < deadline, heir.where()
        judge.finish(load.stop())
    judge.check_map(scene.link)


@pytest.mark.parametrize("point", points.PLAN)
def test_a_planner_that_wakes_up_after_another_has_taken_the_link(
    point: str, east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery
) -> None:
    # Both plan while the topic is empty, so that its latest offset is its first and every record is due.
    scene = make_scene(east, west, start="latest")
    zombie = nursery.plan(scene, 1, point=point, act="stop")
    zombie.wait_until_stopped()
    planned = plan(nursery, scene, 3)
    with scene.judge() as judge:
        with scene.load() as load:
            copies = [nursery.copy(planned, slot) for slot in range(3)]
            judge.follow(load)
        judge.finish(load.delivered)
        zombie.signal(signal.SIGCONT)
        # It had not claimed yet and so takes the link over; or it had, and finds out; or it had nothing left to write.
        expected = {"claim": 0, "claimed": TakenOver.exit_code, "fenced": TakenOver.exit_code, "started": 0}
        assert zombie.wait() == expected.get(point, TakenOver.exit_code), zombie.log
        for copy in copies:
            copy.kill()
        # Whoever comes next goes on from what is committed, whatever the zombie wrote.
        planned = plan(nursery, scene, 1)
        nursery.copy(planned)
        with scene.load() as more:
            judge.look()
        judge.finish([a + b for a, b in zip(load.delivered, more.delivered, strict=True)])
    judge.check_map(scene.link)


def test_two_replicators_of_one_link(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], replicate: Callable[..., Replicator]
) -> None:
    scene = make_scene(east, west, tasks=2)
    with scene.judge() as judge, scene.load() as load:
        first = replicate(scene)
        judge.follow(load)
        second = replicate(scene)
        assert first.wait() == TakenOver.exit_code, first.output
        judge.follow(load)
        assert not second.ended, second.output
        judge.finish(load.stop())
        assert second.stop() == 130, second.output
    judge.check_map(scene.link)


def test_a_worker_that_falls_silent_is_cut_off(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], replicate: Callable[..., Replicator]
) -> None:
    scene = make_scene(east, west, tasks=2)
    patch = "from isthmus.engine import supervise; supervise.SILENT_SECONDS = 6.0"
    with scene.judge() as judge, scene.load() as load:
        run = replicate(scene, patch=patch)
        judge.follow(load)
        workers = run.workers()
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        written = list(load.delivered)
        while any(now < then + 50 for now, then in zip(load.delivered, written, strict=True)):
            time.sleep(0.05)  # so that there is something that only others can copy
        judge.follow(load)
        for worker in workers:
            if alive(worker):
                os.kill(worker, signal.SIGCONT)
        judge.follow(load)
        judge.finish(load.stop())
        assert "has been silent" in run.output
        assert run.stop() == 130, run.output
    judge.check_map(scene.link)
