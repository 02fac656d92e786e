"""Transactions that a coordinator takes for ended and that partitions still hold open.

Why: brokers that are lost all at once, as when a data centre dies, forget on their return to write the markers of a transaction that was being
ended (seen with Apache Kafka 4.3.1: "Couldn't find leader endpoint ... these partitions are likely deleted already"). Then readers of committed
records stand still there for ever, and so do the offsets that were committed in it.

Invariant: only transactions of ids that the caller has just taken are ended. Their coordinator says that nothing of them is open, so what a partition holds
open is an orphan; nothing of it was ever visible, so it is aborted, and its owner copies it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from kafka.protocol.admin.transactions import DescribeProducersRequest

from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.offsets import Partition, by_topic
from isthmus.kafka.produce import Producer

# The markers of a transaction that was really being ended are there by then.
SETTLE_SECONDS = 5.0


async def end_orphans(
    cluster: Cluster, leaders: Leaders, producers: Sequence[Producer], partitions: Collection[Partition], group: str
) -> list[Partition]:
    """Abort what these producers, which have begun just now, hold open in these partitions; where that was."""
    held = await _open_transactions(cluster, leaders, partitions)
    ended: list[Partition] = []
    for producer in producers:
        mine = sorted(partition for partition, ids in held.items() if not ids.isdisjoint(producer.producer_ids))
        if mine:
            await producer.abort_orphans(mine, group)
            ended += mine
    return ended


async def _open_transactions(
    cluster: Cluster, leaders: Leaders, partitions: Collection[Partition]
) -> dict[Partition, set[int]]:
    """Whose transactions are open, by partition. What a broker does not tell (too old, no right) counts as none."""
    if not cluster.supports(DescribeProducersRequest, 0):
        return {}
    led: dict[int, list[Partition]] = defaultdict(list)
    for partition in partitions:
        if leaders.of(partition) >= 0:
            led[leaders.of(partition)].append(partition)
    kind = DescribeProducersRequest.TopicRequest
    asked = [
        cluster.send(
            DescribeProducersRequest(
                topics=[kind(name=topic, partition_indexes=ids) for topic, ids in by_topic(some).items()]
            ),
            node,
        )
        for node, some in led.items()
    ]
    found: dict[Partition, set[int]] = {}
    for future in asked:
        response: Any = await future
        for topic in response.topics:
            for each in topic.partitions:
                ids = {p.producer_id for p in each.active_producers or () if p.current_txn_start_offset >= 0}
                if ids:
                    found[topic.name, each.partition_index] = ids
    return found
