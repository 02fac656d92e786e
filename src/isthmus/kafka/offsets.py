"""Log ends and group offsets, of many partitions at a time; each partition's error is a value.

A commit is cut into requests by bytes: a broker writes what one request commits as one batch of its log of offsets, and refuses it whole when that is
too large. Where cutting is not enough, the site has a smaller limit than most: it is found by halving, and remembered.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.consumer import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest

from isthmus.kafka.cluster import FIRST_BACKOFF, GROUP, LAST_BACKOFF, TOO_LARGE, Cluster

Partition = tuple[str, int]
EARLIEST, LATEST = -2, -1
# What a committed offset costs in the broker's log beside the names of its group and topic and its metadata.
COMMITTED_BYTES = 96


@dataclass(slots=True, frozen=True)
class Committed:
    offset: int
    metadata: str


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        grouped[topic].append(partition)
    return grouped


async def list_offsets(
    cluster: Cluster, at: Mapping[Partition, int], committed_only: bool = True, timeout: float = 30.0
) -> dict[Partition, int | type[Exception]]:
    """The first offset at or after each timestamp (or EARLIEST, LATEST); -1 when there is none.

    LATEST is the last stable offset with ``committed_only``: the end of what a link may copy. Leaders that
    move are followed until the time is up; what is left then is an error value.
    """
    answers: dict[Partition, int | type[Exception]] = {}
    left, deadline, backoff = dict(at), time.monotonic() + timeout, FIRST_BACKOFF
    partition_type = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    while left:
        try:
            metadata = await cluster.metadata(sorted({topic for topic, _ in left}))
        except kerrors.RetriableError as error:
            metadata = None
            problem: type[Exception] = type(error)
        requests: dict[int, list[Partition]] = defaultdict(list)
        for key in list(left):
            if metadata is None:
                answers[key] = problem
                continue
            info = metadata.topics.get(key[0])
            if info is None or info.error is kerrors.UnknownTopicOrPartitionError or key[1] not in info.partitions:
                answers[key] = kerrors.UnknownTopicOrPartitionError
                del left[key]
            elif info.error:
                answers[key] = info.error
                if not issubclass(info.error, kerrors.RetriableError):
                    del left[key]
            elif info.partitions[key[1]].leader < 0:
                answers[key] = kerrors.LeaderNotAvailableError
            else:
                requests[info.partitions[key[1]].leader].append(key)
        sent: list[tuple[Any, list[Partition]]] = []
        for node, keys in requests.items():
            topics = [
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        partition_type(partition_index=p, current_leader_epoch=-1, timestamp=left[topic, p])
                        for p in ids
                    ],
                )
                for topic, ids in by_topic(keys).items()
            ]
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=int(committed_only), topics=topics, timeout_ms=10_000, max_version=7
            )
            sent.append((cluster.send(request, node), keys))
        for future, keys in sent:
            try:
                response = await future
            except (kerrors.RetriableError, kerrors.UnknownBrokerIdError) as error:
                answers.update(dict.fromkeys(keys, type(error)))
                continue
            for topic in response.topics:
                for p in topic.partitions:
                    key = (topic.name, p.partition_index)
                    if p.error_code:
                        answers[key] = error_type = kerrors.for_code(p.error_code)
                        if not issubclass(error_type, kerrors.RetriableError):
                            left.pop(key, None)
                    else:
                        answers[key] = p.offset
                        left.pop(key, None)
        if left:
            if time.monotonic() > deadline:
                break
            await cluster.loop.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 1.6)
    return answers


async def log_ranges(
    cluster: Cluster, partitions: Iterable[Partition], committed_only: bool = True
) -> dict[Partition, tuple[int, int]]:
    """Where each log begins and ends; those of which the site does not tell are left out."""
    keys = list(partitions)
    firsts = await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    lasts = await list_offsets(cluster, dict.fromkeys(keys, LATEST), committed_only)
    found: dict[Partition, tuple[int, int]] = {}
    for key in keys:
        first, last = firsts[key], lasts[key]
        if isinstance(first, int) and isinstance(last, int):
            found[key] = (first, last)
    return found


async def group_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[Partition] | None = None,
    stable: bool = True,
    timeout: float = 75.0,
) -> dict[Partition, Committed]:
    """What a group has committed (``None``: for all its partitions).

    ``stable`` waits out a transaction that is about to change an offset, so that nobody starts from a
    position that a dying predecessor is still moving.
    """
    topics = None if partitions is None else by_topic(partitions)
    batched = cluster.supports(OffsetFetchRequest, 8)

    def request() -> Any:
        if batched:
            kind = OffsetFetchRequest.OffsetFetchRequestGroup
            wanted = topics and [
                kind.OffsetFetchRequestTopics(name=t, partition_indexes=ids) for t, ids in topics.items()
            ]
            groups = [kind(group_id=group, member_id=None, member_epoch=-1, topics=wanted)]
            return OffsetFetchRequest(groups=groups, require_stable=stable, min_version=8, max_version=9)
        wanted = topics and [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=t, partition_indexes=ids) for t, ids in topics.items()
        ]
        return OffsetFetchRequest(group_id=group, topics=wanted, require_stable=stable, max_version=7)

    def answer(response: Any) -> Any:
        return response.groups[0] if batched else response

    def error_of(response: Any) -> int:
        body = answer(response)
        codes = [body.error_code] + [p.error_code for t in body.topics for p in t.partitions]
        return next((code for code in codes if code), 0)

    response = await cluster.ask_coordinator(GROUP, group, request, error_of, timeout)
    body = answer(response)
    if body.error_code == kerrors.GroupIdNotFoundError.errno:
        return {}  # some brokers say so of a group that has not committed yet
    if body.error_code:
        raise cluster.refused(response, body.error_code, group)
    return {
        (t.name, p.partition_index): Committed(p.committed_offset, p.metadata or "")
        for t in body.topics
        for p in t.partitions
        if not p.error_code and p.committed_offset >= 0
    }


def offset_commit(group: str, offsets: Mapping[Partition, Committed]) -> Any:
    """The request that commits these for a group without members."""
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            topic_type(
                name=topic,
                partitions=[
                    topic_type.OffsetCommitRequestPartition(
                        partition_index=p,
                        committed_offset=offsets[topic, p].offset,
                        committed_leader_epoch=-1,
                        committed_metadata=offsets[topic, p].metadata,
                    )
                    for p in ids
                ],
            )
            for topic, ids in by_topic(offsets).items()
        ],
        max_version=9,
    )


async def commit_group_offsets(cluster: Cluster, group: str, offsets: Mapping[Partition, Committed]) -> None:
    """Commit outside of a transaction, for a group that has no members."""
    if not offsets:
        return

    await commit_in_pieces(cluster, group, offsets, partial(offset_commit, group))


async def commit_in_pieces(
    cluster: Cluster,
    group: str,
    offsets: Mapping[Partition, Committed],
    request: Callable[[Mapping[Partition, Committed]], Any],
    resend: bool = True,
) -> None:
    """Commit all of these, in their order, by as many requests as it takes; raises what the site refuses. Without ``resend``, a request
    whose answer is lost is not sent again."""

    def error_of(response: Any) -> int:
        return next((p.error_code for t in response.topics for p in t.partitions if p.error_code), 0)

    limit = cluster.commit_bytes
    waiting = deque(pieces(group, offsets, limit))
    while waiting:
        piece = waiting.popleft()
        response = await cluster.ask_coordinator(GROUP, group, partial(request, piece), error_of, resend=resend)
        try:
            _raise_refusal(cluster, response)
        except (*TOO_LARGE, kerrors.UnknownError):  # of newer brokers: their coordinator has no name for it
            if len(piece) == 1:
                cluster.commit_bytes = limit  # its size was not what is wrong
                raise
            # Nothing of it was written: a request is one batch, or none.
            cluster.commit_bytes = sum(_cost(group, *each) for each in piece.items()) // 2
            rest = {key: value for some in (piece, *waiting) for key, value in some.items()}
            waiting = deque(pieces(group, rest, cluster.commit_bytes))


def pieces(group: str, offsets: Mapping[Partition, Committed], limit: int) -> Iterator[dict[Partition, Committed]]:
    """These offsets, cut so that each piece costs the broker's log so many bytes at most."""
    some: dict[Partition, Committed] = {}
    size = 0
    for key, value in offsets.items():
        cost = _cost(group, key, value)
        if some and size + cost > limit:
            yield some
            some, size = {}, 0
        some[key] = value
        size += cost
    if some:
        yield some


def halves(piece: Mapping[Partition, Committed]) -> list[dict[Partition, Committed]]:
    every = list(piece.items())
    return [dict(every[: len(every) // 2]), dict(every[len(every) // 2 :])]


def _cost(group: str, key: Partition, value: Committed) -> int:
    return COMMITTED_BYTES + len(group.encode()) + len(key[0]) + len(value.metadata.encode())


def _raise_refusal(cluster: Cluster, response: Any) -> None:
    """Raise the error of an answer to a commit; its words are the topics that have it."""
    codes = {t.name: p.error_code for t in response.topics for p in t.partitions if p.error_code}
    for code in codes.values():
        raise cluster.refused(response, code, ", ".join(sorted(name for name, its in codes.items() if its == code)))
