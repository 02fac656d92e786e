"""A backlog over a line that carries it in many times what a request may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nursery import Nursery
from proxy import Proxy

TIMEOUT_SECONDS = 3
BYTES_PER_SECOND = 1_000_000
BACKLOG_SECONDS = 5.0


def test_a_backlog_over_a_slow_line(proxies: list[Proxy], make_far_scene: Callable[..., Any], nursery: Nursery) -> None:
    scene = make_far_scene(partitions=6, site={"request_timeout": f"{TIMEOUT_SECONDS}s"})
    with scene.judge() as judge:
        with scene.load(rate=30_000) as load:
            time.sleep(BACKLOG_SECONDS)
            counts = load.stop()
        proxies[1].bytes_per_second = BYTES_PER_SECOND  # the source gives more than the destination's line carries
        planned = nursery.plan(scene)
        assert planned.wait() == 0, planned.log
        started = time.monotonic()
        copy = nursery.copy(planned)
        while judge.look(0.2) == 0:
            assert time.monotonic() < started + 60, copy.where()
        shown = time.monotonic() - started
        judge.finish(counts)
        print(f"{sum(counts)} records; the first after {shown:.1f} s, all after {time.monotonic() - started:.1f} s")
        assert copy.status is None, copy.log
    judge.check_map(scene.link)
