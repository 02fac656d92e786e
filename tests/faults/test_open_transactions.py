"""A killed task leaves its transaction open, and that hides from readers what comes after it; but not for long.

The broker would end it after a minute. Whoever takes the slot next ends it at once.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from ledger import QUIET
from nursery import Nursery

from isthmus.engine.copy import TRANSACTION_SECONDS
from isthmus.sandbox import KafkaSite

SOON = TRANSACTION_SECONDS / 3  # on a busy machine; alone it is a fraction of a second


def ends(site: KafkaSite, topic: str, partitions: int, isolation: IsolationLevel) -> list[int]:
    admin = AdminClient({**site.client_config(), **QUIET})
    wanted = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
    found = {place.partition: answer for place, answer in admin.list_offsets(wanted, isolation_level=isolation).items()}
    return [found[p].result(30).offset for p in range(partitions)]


def hidden(scene: Any) -> int:
    """Records, and marks, that readers of committed records may not see yet."""
    written = ends(scene.target, scene.topic, scene.partitions, IsolationLevel.READ_UNCOMMITTED)
    readable = ends(scene.target, scene.topic, scene.partitions, IsolationLevel.READ_COMMITTED)
    return sum(written) - sum(readable)


@pytest.mark.parametrize("heir", ["another attempt", "the next lease"])
def test_readers_go_on_as_soon_as_a_killed_task_has_an_heir(
    heir: str, east: KafkaSite, west: KafkaSite, make_scene: Callable[..., Any], nursery: Nursery
) -> None:
    scene = make_scene(east, west)
    with scene.judge() as judge, scene.load() as load:
        planned = nursery.plan(scene)
        assert planned.wait() == 0, planned.log
        victim = nursery.copy(planned, point="end", nth=3)
        assert victim.wait() == -signal.SIGKILL, victim.log
        assert hidden(scene) > 0
        restarted = time.monotonic()
        if heir == "the next lease":
            planned = nursery.plan(scene)
            assert planned.wait() == 0, planned.log
            assert hidden(scene) == 0
        nursery.copy(planned)
        judge.follow(load)
        took = time.monotonic() - restarted
        print(f"readers got what was written since {took:.2f} s after the restart")
        assert took < SOON
        judge.finish(load.stop())
    judge.check_map(scene.link)
