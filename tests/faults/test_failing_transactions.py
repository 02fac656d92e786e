"""Transactions that fail, one in three, while everything else goes on: what was read is read again, all of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from nursery import Nursery

from isthmus.sandbox import KafkaSite


def test_many_transactions_fail(
    east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    scene = make_scene(east, west, partitions=8, commit_interval="50ms")
    with scene.judge() as judge, scene.load(4000) as load:
        planned = nursery.plan(scene, 2)
        assert planned.wait() == 0, planned.log
        copies = [nursery.copy(planned, slot, interrupt=0.3, seed=rng.randrange(1 << 30)) for slot in range(2)]
        for _ in range(10):
            judge.follow(load)
        judge.finish(load.stop())
        for copy in copies:
            assert copy.status is None, copy.log
    judge.check_map(scene.link)
