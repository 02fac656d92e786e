"""Look at single places of logs: the records of the batch that stands at, or next after, an offset.

Invariants:
- one round asks each leader once for all its partitions, each at one offset; nothing is read ahead;
- records of aborted transactions are not there, and neither are records that nobody has committed yet;
- a partition that cannot be read is an error value beside the others.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.consumer import FetchRequest

from isthmus.errors import PartitionFault
from isthmus.kafka.cluster import FIRST_BACKOFF, LAST_BACKOFF, Cluster, Metadata
from isthmus.kafka.fetch import end_of
from isthmus.kafka.offsets import Partition, by_topic

# Some batches of a usual producer; a batch that is larger is asked for again, alone, with room for any.
ROUND_BYTES, ANY_BYTES = 64 << 10, 64 << 20
_BASE = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Seen:
    """A record at a glance; ``headers`` are in their order."""

    offset: int
    timestamp: int
    headers: tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Records around an offset, ascending, some perhaps before it, and where the next batch begins."""

    records: tuple[Seen, ...]
    end: int


async def peek(
    cluster: Cluster, at: Mapping[Partition, int], timeout: float = 30.0, committed_only: bool = True
) -> dict[Partition, Glimpse | type[Exception]]:
    """What stands at each offset. No records and ``end`` as asked: the committed log ends there."""
    answers: dict[Partition, Glimpse | type[Exception]] = {}
    left, large = dict(at), set[Partition]()
    deadline, backoff = time.monotonic() + timeout, FIRST_BACKOFF
    while left:
        now = dict([next((k, left[k]) for k in left if k in large)]) if large & left.keys() else left
        sent = []
        try:
            metadata = await cluster.metadata(sorted({topic for topic, _ in now}))
            sent = [
                (
                    keys,
                    cluster.send(
                        _request(now, keys, ANY_BYTES if large & now.keys() else ROUND_BYTES, committed_only), node
                    ),
                )
                for node, keys in _by_leader(metadata, now).items()
            ]
        except kerrors.RetriableError as error:
            answers.update(dict.fromkeys(now, type(error)))
        moved = False
        for keys, future in sent:
            try:
                response = await future
            except (kerrors.RetriableError, kerrors.UnknownBrokerIdError) as error:
                answers.update(dict.fromkeys(keys, type(error)))
                continue
            for topic in response.responses:
                for part in topic.partitions:
                    key = (topic.topic, part.partition_index)
                    answer = _read(key, now[key], part)
                    if answer is None:
                        large.add(key)
                        moved = True
                        continue
                    answers[key] = answer
                    if isinstance(answer, Glimpse) or not issubclass(answer, kerrors.RetriableError):
                        left.pop(key, None)
                        large.discard(key)
                        moved = True
        if left and not moved:
            if time.monotonic() > deadline:
                for key in left:
                    answers.setdefault(key, kerrors.KafkaTimeoutError)
                break
            await cluster.loop.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 1.6)
    return answers


def _by_leader(metadata: Metadata, keys: Iterable[Partition]) -> dict[int, list[Partition]]:
    found: dict[int, list[Partition]] = {}
    for topic, partition in keys:
        info = metadata.topics.get(topic)
        known = info.partitions.get(partition) if info is not None and info.error is None else None
        if known is not None and known.leader >= 0:
            found.setdefault(known.leader, []).append((topic, partition))
    return found


def _request(at: Mapping[Partition, int], keys: list[Partition], room: int, committed_only: bool) -> Any:
    topic_type = FetchRequest.FetchTopic
    topics = [
        topic_type(
            topic=topic,
            partitions=[
                topic_type.FetchPartition(
                    partition=p,
                    current_leader_epoch=-1,
                    fetch_offset=at[topic, p],
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=room,
                )
                for p in ids
            ],
        )
        for topic, ids in by_topic(keys).items()
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max(room * len(keys), room),
        isolation_level=int(committed_only),
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
        max_version=12,
    )


def _read(key: Partition, wanted: int, part: Any) -> Glimpse | type[Exception] | None:
    """What one partition's answer holds; ``None`` when its first batch did not fit."""
    if part.error_code:
        error: type[Exception] = kerrors.for_code(part.error_code)
        return error
    data = part.records
    if not data:
        return Glimpse((), wanted) if wanted >= part.last_stable_offset else None
    view = memoryview(data)
    end = end_of(view, -1)
    if end < 0:
        return None
    aborted = [(a.producer_id, a.first_offset) for a in (part.aborted_transactions or [])]
    seen: list[Seen] = []
    try:
        seen.extend(seen_in(view, key, _BASE.unpack_from(view)[0], aborted))
    except PartitionFault as fault:
        if not seen:
            return type(fault)
    return Glimpse(tuple(seen), end)


def seen_in(data: Any, key: Partition, position: int, aborted: Sequence[tuple[int, int]]) -> Iterator[Seen]:
    """The records of fetched batches of a partition, from ``position`` on, but for those of aborted transactions."""
    from isthmus.records.arrow import decode  # brings the kernels

    for batch in decode(data, topic=key[0], partition=key[1], position=position, aborted=aborted):
        columns = (batch.column(name).to_pylist() for name in ("offset", "timestamp", "headers"))
        for offset, timestamp, headers in zip(*columns, strict=True):
            yield Seen(offset, timestamp, tuple((h["key"], h["value"]) for h in headers))
