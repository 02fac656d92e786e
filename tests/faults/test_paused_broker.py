"""A broker that stops answering for longer than a request may take, and then goes on as if nothing had been.

What was sent before the pause is carried out after it: requests of a transaction that was given up in the meantime.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nursery import Nursery

from isthmus.sandbox import KafkaSite, Sandbox

REQUEST_TIMEOUT = 1.0
PAUSE = 3.0


@pytest.fixture(scope="module")
def pair(box: Sandbox) -> Iterator[list[KafkaSite]]:
    """Two sites whose brokers may be stopped."""
    sites = box.start_all(["paused-source", "paused-target"])
    yield sites
    for site in sites:
        box.remove(site.name)


def test_source_and_destination_paused_under_load(
    pair: list[KafkaSite], make_scene: Callable[..., Any], nursery: Nursery, rng: random.Random
) -> None:
    source, target = pair
    scene = make_scene(source, target, site={"request_timeout": f"{REQUEST_TIMEOUT}s"}, commit_interval="100ms")
    with scene.judge() as judge, scene.load() as load:
        planned = nursery.plan(scene, 2)
        assert planned.wait() == 0, planned.log
        copies = [nursery.copy(planned, slot) for slot in range(2)]
        judge.follow(load)
        for sites in ([target], [source], [target], [source, target], [target]):
            time.sleep(rng.uniform(0, 0.3))  # not for a condition: the moment is what is random
            for site in sites:
                site.brokers[0].pause()
            time.sleep(PAUSE)
            for site in sites:
                site.brokers[0].resume()
            judge.follow(load)
            for copy in copies:
                assert copy.status is None, copy.log
        judge.finish(load.stop())
    judge.check_map(scene.link)
