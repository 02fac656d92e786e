"""kill -9, again and again, at random moments and at named points, of every process that takes part."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import points
import pytest
from nursery import Nursery

from isthmus.sandbox import KafkaSite


@pytest.mark.parametrize("point", points.COPY)
def test_a_copy_killed_at_every_point_of_its_cycle(
    point: str, east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(east, west)
    with scene.judge() as judge, scene.load() as load:
        for nth in (1, 3):
            planned = nursery.plan(scene)
            assert planned.wait() == 0, planned.log
            victim = nursery.copy(planned, point=point, nth=nth)
            assert victim.wait() == -9, victim.log
            judge.look()
        planned = nursery.plan(scene)
        assert planned.wait() == 0, planned.log
        nursery.copy(planned)
        judge.until(500)
        judge.finish(load.stop())
    judge.check_map(scene.link)
