"""What stands behind an open transaction at the source: nobody reads it, and no link copies it, until that has ended.

A transaction whose producer hangs, or whose end the brokers have forgotten, holds back all that others write behind it: the lag of what is visible is 0.

Invariants:
- short transactions are everyday life: only one that has been open for ``LONG_SECONDS``, and still is after all was asked, is trouble;
- whose it is and since when is told as far as the site lets us ask: the record at its start needs no more than the right to read.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

from isthmus.kafka.cluster import TRANSACTION, Cluster
from isthmus.kafka.offsets import LATEST, Partition, by_topic, list_offsets
from isthmus.kafka.peek import Glimpse, peek

LONG_SECONDS = 30.0
TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Undecided:
    """An open transaction from offset ``start`` on, with ``hidden`` offsets behind its start. ``since`` is in seconds, 0 if nobody tells; ``known`` says whether its
    coordinator knows it, None if nobody tells."""

    start: int
    hidden: int
    since: float = 0.0
    producer: int = -1
    transactional_id: str = ""
    known: bool | None = None

    def words(self, key: Partition, cluster: Cluster) -> str:
        """What stands there, since when, whose it is, and how to end it."""
        topic, partition = key
        whose = f"producer id {self.producer}" if self.producer >= 0 else "an unknown producer"
        if self.transactional_id:
            whose = f"transactional id {self.transactional_id} ({whose})"
        since = ""
        if self.since:
            since = f" since {datetime.fromtimestamp(self.since, UTC).isoformat(timespec='seconds')}"
        hangs = "; its coordinator does not know it, so it will never end by itself" if self.known is False else ""
        return (
            f"{topic}[{partition}]: {self.hidden} offsets at site {cluster.site.name} stand behind a transaction that is open{since}, from offset {self.start} on, of {whose}{hangs}. "
            f"Nobody reads them until it ends: end its producer, or run `kafka-transactions.sh --bootstrap-server {','.join(cluster.site.bootstrap)} abort --topic {topic} "
            f"--partition {partition} --start-offset {self.start}`"
        )


async def undecided(cluster: Cluster, ends: Mapping[Partition, int]) -> dict[Partition, Undecided]:
    """The partitions that have more than was visible (``ends``), and what holds it back."""
    tops = await list_offsets(cluster, dict.fromkeys(ends, LATEST), committed_only=False, timeout=TIMEOUT)
    hidden = {
        key: (ends[key], top - ends[key]) for key, top in tops.items() if isinstance(top, int) and top > ends[key]
    }
    if not hidden:
        return {}
    began = await _began(cluster, {key: start for key, (start, _) in hidden.items()})
    owners = await _owners(cluster, {key: start for key, (start, _) in hidden.items()})
    known = await _transactions(cluster, set(owners.values()))
    # What has ended meanwhile was none; one in which our answers disagree is looked at the next time.
    still = await list_offsets(cluster, dict.fromkeys(hidden, LATEST), timeout=TIMEOUT)
    found: dict[Partition, Undecided] = {}
    for key, (start, count) in hidden.items():
        if still[key] != start:
            continue
        who = owners.get(key, -1)
        name, since = known.get(who, ("", 0.0)) if known is not None else ("", 0.0)
        told = bool(since) if known is not None and who >= 0 else None
        found[key] = Undecided(start, count, since or began.get(key, 0.0), who, name, told)
    return found


def is_long(one: Undecided) -> bool:
    """Whether somebody should look at it: of what nobody tells how old it is, nobody knows that it is young."""
    return time.time() - one.since >= LONG_SECONDS


async def _began(cluster: Cluster, starts: Mapping[Partition, int]) -> dict[Partition, float]:
    """The time of the record with which each transaction began."""
    found: dict[Partition, float] = {}
    for key, seen in (await peek(cluster, starts, TIMEOUT, committed_only=False)).items():
        if isinstance(seen, Glimpse):
            first = next((record for record in seen.records if record.offset >= starts[key]), None)
            if first is not None and first.timestamp > 0:
                found[key] = first.timestamp / 1000
    return found


async def _owners(cluster: Cluster, starts: Mapping[Partition, int]) -> dict[Partition, int]:
    """The producer ids whose transactions begin there; of those that the site tells."""
    if not cluster.supports(DescribeProducersRequest, 0):
        return {}
    found: dict[Partition, int] = {}
    try:
        metadata = await cluster.metadata(sorted({topic for topic, _ in starts}))
        led: dict[int, list[Partition]] = defaultdict(list)
        for topic, partition in starts:
            info = metadata.topics[topic].partitions.get(partition)
            if info is not None and info.leader >= 0:
                led[info.leader].append((topic, partition))
        kind = DescribeProducersRequest.TopicRequest
        for node, keys in led.items():
            topics = [kind(name=topic, partition_indexes=ids) for topic, ids in by_topic(keys).items()]
            response = await cluster.request(DescribeProducersRequest(topics=topics), node)
            for topic in response.topics:
                for part in topic.partitions:
                    key = (topic.name, part.partition_index)
                    open_ = [p for p in part.active_producers or () if p.current_txn_start_offset >= 0]
                    if open_:
                        found[key] = min(open_, key=lambda p: p.current_txn_start_offset).producer_id
    except (kerrors.KafkaError, OSError):
        pass
    return found


async def _transactions(cluster: Cluster, producers: Collection[int]) -> dict[int, tuple[str, float]] | None:
    """Transactional id and start of what these producers have open, as their coordinators know it: a start of 0 where they do not. None if the site does not
    tell: it leaves out what we may not see, so what it does not list at all is not told either."""
    if not producers or not cluster.supports(ListTransactionsRequest, 0):
        return None
    names: dict[int, str] = {}
    try:
        for node in (await cluster.metadata([])).brokers:
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producers), max_version=0)
            for one in (await cluster.request(request, node)).transaction_states:
                names[one.producer_id] = one.transactional_id
        found: dict[int, tuple[str, float]] = {}
        for producer, name in names.items():
            node = await cluster.coordinator(TRANSACTION, name)
            response: Any = await cluster.request(DescribeTransactionsRequest(transactional_ids=[name]), node)
            for state in response.transaction_states:
                is_open = not state.error_code and state.producer_id == producer and state.transaction_start_time_ms > 0
                found[producer] = (name, state.transaction_start_time_ms / 1000 if is_open else 0.0)
        return found
    except (kerrors.KafkaError, OSError):
        return None
