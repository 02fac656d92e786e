"""More partitions than a broker takes in one request. Here its limit is low, so that few of them are many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from links import compare, copy_until_caught_up, create_topic, numbered, one_link, produce

from isthmus.sandbox import KafkaSite

Name = Callable[..., str]
PARTITIONS = 120


@pytest.fixture(scope="module")
def narrow(make_module_site: Callable[..., KafkaSite]) -> KafkaSite:
    return make_module_site(config={"message.max.bytes": str(48 << 10)})


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_progress_of_many_partitions_is_committed(
    east: KafkaSite, narrow: KafkaSite, unique_topic: Name, delivery: str
) -> None:
    # Progress names topics twice: some 70 KiB.
    topic = create_topic(east, unique_topic("long" * 50), PARTITIONS)
    produce(east, topic, [m for p in range(PARTITIONS) for m in numbered(2, partition=p)])
    again = delivery == "at-least-once"
    setup = one_link(east, narrow, [topic], delivery=delivery)
    copy_until_caught_up(setup, slots=1)
    assert compare(east, narrow, topic, twice_is_fine=again) == 2 * PARTITIONS
    # Again: a plan that finds progress, and a task that commits all of it in one transaction.
    produce(east, topic, [m for p in range(PARTITIONS) for m in numbered(1, 2, partition=p)])
    copy_until_caught_up(setup, slots=1)
    assert compare(east, narrow, topic, twice_is_fine=again) == 3 * PARTITIONS
