"""Connections to both sites that break all the time, after any number of bytes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nursery import Nursery
from proxy import Proxy, advertise

from isthmus.sandbox import KafkaSite

BREAKS, FEWEST, MOST_SECONDS = 25, 5, 60.0


@pytest.fixture
def proxies(rng: random.Random) -> Iterator[list[Proxy]]:
    made = [Proxy(rng), Proxy(rng)]
    yield made
    for proxy in made:
        proxy.close()


def test_connections_break_at_both_sites(
    make_site: Callable[..., KafkaSite],
    make_scene: Callable[..., Any],
    nursery: Nursery,
    proxies: list[Proxy],
) -> None:
    sites = [make_site(wait=False) for _ in proxies]
    for site in sites:
        site.wait()
    addresses = [advertise(site, proxy) for site, proxy in zip(sites, proxies, strict=True)]
    scene = make_scene(*sites, commit_interval="100ms")
    # The link goes through the proxies; the load and the judge do not.
    body = json.loads(scene.config.read_text())
    for name, address in zip(body["sites"], addresses, strict=True):
        body["sites"][name]["bootstrap"] = [address]
    scene.config.write_text(json.dumps(body))
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
