"""How many requests a copy takes, counted and not timed, on real brokers."""

from __future__ import annotations

from dataclasses import replace

import links

from isthmus.engine.copy import Copier
from isthmus.engine.plan import Planner


def test_requests_stay_few(east, west, unique_topic):
    topic = links.create_topic(east, unique_topic(), partitions=6)
    count = 120_000
    spread = (
        message for number in range(count // 6) for p in range(6) for message in links.numbered(1, number, p, 100)
    )
    links.produce(east, topic, spread, **{"linger.ms": 50, "batch.size": 200_000})
    planner = Planner(links.job_of(links.one_link(east, west, [topic]), slots=1))
    try:
        lease = replace(planner.plan()[0], seconds=60.0)
    finally:
        planner.close()
    copier = Copier(lease)
    copier._should_stop = lambda: copier._totals.records >= count
    result = copier.run()
    assert result.records == count
    # 15 MB: a fetch brings up to 16 MiB, 2 MiB a partition, so a handful of fetches; each produce carries up to six
    # batches of almost 1 MB, so some ten; a transaction takes 64 MB or a second of time.
    assert copier._fetcher.requests <= 12
    assert copier._producer.requests <= 30
    assert result.transactions <= 6
