"""The ends of logs, behind which nothing is undecided.

Invariant: what stood in a log when it was asked is either visible or aborted when the answer is given. A transaction that is open when a site
dies is open when it returns, and hides what others wrote behind it, acknowledged as it may be: a look at what is visible alone takes these
records for none.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import LATEST, Partition, list_offsets

# Transactions whose producer is gone end by themselves: the broker aborts them, after a minute if their producer did not say otherwise.
OPEN_SECONDS = 90.0
LOOK_SECONDS = 0.2


async def settled_ends(cluster: Cluster, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Where these logs end now, when all that stands before is decided."""
    deadline = time.monotonic() + OPEN_SECONDS
    ends = await _ends(cluster, partitions, committed_only=False)
    left = list(ends)
    while left:
        stable = await _ends(cluster, left, committed_only=True)
        left = [key for key in left if stable[key] < ends[key]]
        if not left:
            break
        if time.monotonic() > deadline:
            (topic, partition), more = left[0], f" (and {len(left) - 1} more partitions)" if len(left) > 1 else ""
            raise DataError(
                f"{topic}[{partition}] at {cluster.site.name} has had a transaction open for {OPEN_SECONDS:.0f} s, from offset {stable[left[0]]}{more}: "
                f"end its producer, or abort it with kafka-transactions.sh; then give the command again"
            )
        await cluster.loop.sleep(LOOK_SECONDS)
    return ends


async def _ends(cluster: Cluster, partitions: Collection[Partition], committed_only: bool) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for key, end in (await list_offsets(cluster, dict.fromkeys(partitions, LATEST), committed_only)).items():
        if not isinstance(end, int):
            raise DataError(
                f"{cluster.site.name} does not tell the end of {key[0]}[{key[1]}]: {end.__name__}; are all its brokers back?"
            )
        ends[key] = end
    return ends
