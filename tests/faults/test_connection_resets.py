"""Connections to both sites that break all the time, after any number of bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nursery import Nursery
from proxy import Proxy

BREAKS, FEWEST, MOST_SECONDS = 25, 5, 60.0


def test_connections_break_at_both_sites(
    proxies: list[Proxy], make_far_scene: Callable[..., Any], nursery: Nursery
) -> None:
    scene = make_far_scene(commit_interval="100ms")
    with scene.judge() as judge, scene.load() as load:
        for proxy in proxies:
            proxy.breaking = True
        planned = nursery.plan(scene, 2)
        assert planned.wait() == 0, planned.log
        copies = [nursery.copy(planned, slot) for slot in range(2)]
        # While every connection breaks there need be no progress, only no harm; how often depends on the machine.
        deadline = time.monotonic() + MOST_SECONDS
        while any(proxy.broken < BREAKS for proxy in proxies) and time.monotonic() < deadline:
            judge.look()
        for proxy in proxies:
            proxy.breaking = False
        assert all(proxy.broken >= FEWEST for proxy in proxies), [proxy.broken for proxy in proxies]
        print(f"broken connections: {[proxy.broken for proxy in proxies]}")
        judge.finish(load.stop())
        for copy in copies:
            assert copy.status is None, copy.log
    judge.check_map(scene.link)
