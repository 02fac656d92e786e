"""How planning and applying grow with the number of topics: ``python -m bench.scale_control [TOPICS ...]``.

Topics of ten partitions with two settings of their own are made at one site; then a plan of all of them, an apply, a plan
that finds nothing to do, and one that finds a changed setting on each. The goal: 1,000 topics planned in under 10 s and
applied in under 2 minutes, on two cores that also run both sites.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from isthmus.config import Config, loads
from isthmus.control.change import DONE_BY_APPLY
from isthmus.control.resources import apply_link, plan_links
from isthmus.records.warm import warm
from isthmus.sandbox import KafkaSite, Sandbox

PARTITIONS = 10
RESOURCES = ("topics", "configs")
# The controller has acknowledged a change before the broker that we ask has heard of it.
SETTLE_SECONDS = 3


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    answer = call()
    return time.monotonic() - began, answer


def fill(site: KafkaSite, count: int) -> None:
    client = AdminClient({"bootstrap.servers": site.admin_bootstrap, "log_level": 0})
    settings = {"retention.ms": "86400000", "segment.bytes": "20000000"}
    for start in range(0, count, 100):
        names = [f"t{count}-{n}" for n in range(start, min(count, start + 100))]
        for future in client.create_topics(
            [NewTopic(n, PARTITIONS, 1, config=settings) for n in names], request_timeout=120, operation_timeout=120
        ).values():
            future.result(180)
    deadline = time.monotonic() + 180
    while sum(name.startswith(f"t{count}-") for name in client.list_topics(timeout=60).topics) < count:
        assert time.monotonic() < deadline, "the source does not come to know its topics"
        time.sleep(1)


def change(site: KafkaSite, count: int) -> None:
    client = AdminClient({"bootstrap.servers": site.admin_bootstrap, "log_level": 0})
    entry = ConfigEntry("segment.bytes", "30000000", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, f"t{count}-{n}", incremental_configs=[entry]) for n in range(count)]
    for future in client.incremental_alter_configs(resources, request_timeout=120).values():
        future.result(180)
    time.sleep(SETTLE_SECONDS)


def config_of(east: KafkaSite, west: KafkaSite, count: int) -> Config:
    sites = "".join(f"  {site.name}: {{bootstrap: '{site.admin_bootstrap}'}}\n" for site in (east, west))
    return loads(f"sites:\n{sites}links:\n  l{count}: {{from: east, to: west, topics: ['/t{count}-.*/']}}\n")


def measure(east: KafkaSite, west: KafkaSite, count: int) -> dict[str, float]:
    fill(east, count)
    config = config_of(east, west, count)
    link = config.links[f"l{count}"]

    def plan(expected: int) -> float:
        seconds, plans = timed(lambda: plan_links(config, [link], RESOURCES))
        todo = [c for c in plans[0].changes if c.action in DONE_BY_APPLY]
        blocked = [c for c in plans[0].changes if c.action == "blocked"]
        assert (len(todo), blocked) == (expected, []), (len(todo), expected, blocked[:3])
        return seconds

    def apply(expected: int) -> float:
        seconds, (_, outcomes) = timed(lambda: apply_link(config, link, RESOURCES))
        assert [o.done for o in outcomes] == [True] * expected
        return seconds

    figures = {"plan, nothing there": plan(count), "apply": apply(count), "plan, nothing to do": plan(0)}
    change(east, count)
    figures["plan, all changed"] = plan(count)
    figures["apply the changes"] = apply(count)
    return figures


def main(counts: list[int]) -> None:
    warm()
    with Sandbox() as box:
        east, west = box.start_all(["east", "west"], heap="1g")
        for count in counts:
            figures = measure(east, west, count)
            words = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in figures.items())
            print(f"{count} topics x {PARTITIONS} partitions: {words}", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [100, 300, 1000])
