"""Named points of a copy and of a plan, at which a process can be made to die or to freeze.

    point         where                                        what is open at that moment
    fence         a task takes its transactional id            nothing, or what a predecessor left
    look          after the fence, before the claim is read
    read          after the claim, before progress is read
    produce       before the first batch leaves
    produced      the first batch is on the wire               a transaction, its answer unknown
    map           records are appended, map not yet            a transaction
    progress      before TxnOffsetCommit                       a transaction with records and map
    end           after TxnOffsetCommit, before EndTxn         a complete transaction
    ended         EndTxn is on the wire                        its answer unknown
    next          EndTxn was answered                          nothing
    claim         a planner, before it writes its claim        nothing
    claimed       a planner, after its claim, before the fence
    fenced        a planner, after the fence
    start         a planner, before it writes progress
    started       a planner, after it wrote progress

Installed by patching, in the process that is to be hit; the product has no hooks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

from kafka.errors import UnknownTopicOrPartitionError
from kafka.protocol.producer import EndTxnRequest

from isthmus.engine import copy, plan
from isthmus.engine.pen import Pen
from isthmus.kafka.cluster import Cluster, Metadata
from isthmus.kafka.produce import Interrupted, Producer

COPY = ("fence", "look", "read", "produce", "produced", "map", "progress", "end", "ended", "next")
CYCLE = ("map", "progress", "end", "next")
PLAN = ("claim", "claimed", "fenced", "start", "started")


def install(point: str, nth: int, act: Callable[[], None]) -> None:
    """Make ``act`` happen when this process reaches ``point`` for the ``nth`` time (from 1)."""
    left = [nth]

    def hit() -> None:
        left[0] -= 1
        if left[0] == 0:
            act()

    _INSTALLERS[point](hit)


def interrupt(seed: int, share: float) -> None:
    """Make this share of transactions fail, each at some point of its cycle, as if a broker had said no."""
    rng = random.Random(seed)
    due: list[str] = []

    def begin() -> None:
        due[:] = [rng.choice(CYCLE)] if rng.random() < share else []

    def hit(point: str) -> Callable[[], None]:
        def act() -> None:
            if due == [point]:
                due.clear()
                raise Interrupted(f"a test at {point}")

        return act

    for point in CYCLE:
        _INSTALLERS[point](hit(point))
    _before(Producer, "_open")(begin)


def forget_topics(site: str, times: int) -> None:
    """Make the first answers of a site come from a broker that has not heard of its topics yet."""
    original, left = Cluster.metadata, [times]

    async def wrapped(self: Cluster, topics: list[str] | None, node: int | None = None) -> Metadata:
        metadata = await original(self, topics, node)
        if self.site.name == site and topics and left[0] > 0:
            left[0] -= 1
            for info in metadata.topics.values():
                info.error, info.partitions = UnknownTopicOrPartitionError, {}
        return metadata

    Cluster.metadata = wrapped  # type: ignore[method-assign]


def _before(owner: Any, name: str, when: Callable[..., bool] = lambda *a, **k: True) -> Callable[[Any], None]:
    def installer(hit: Callable[[], None]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if when(*args, **kwargs):
                hit()
            return original(*args, **kwargs)

        setattr(owner, name, wrapped)

    return installer


def _after(owner: Any, name: str) -> Callable[[Any], None]:
    def installer(hit: Callable[[], None]) -> None:
        original = getattr(owner, name)

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = await original(*args, **kwargs)
            hit()
            return result

        setattr(owner, name, wrapped)

    return installer


async def _written(cluster: Cluster) -> None:
    """Returns when the kernel has every byte that was to be sent to the site."""
    while True:
        await cluster.loop.sleep(0)
        connections = cluster._manager._conns.values()
        if not any(c.initializing or (c.transport and c.transport._writing) for c in connections):
            return


def _first_batch_sent(hit: Callable[[], None]) -> None:
    original = Producer._send

    def wrapped(self: Producer, node: int, batches: Any) -> Any:
        future = original(self, node, batches)
        if self.transactional and not self._opened:

            async def act() -> None:
                await _written(self._cluster)
                hit()

            self._loop.spawn(act())
        return future

    Producer._send = wrapped  # type: ignore[method-assign]


def _end_sent(hit: Callable[[], None]) -> None:
    original = Cluster.request

    async def wrapped(self: Cluster, request: Any, node: int | None = None, timeout: float | None = None) -> Any:
        if not isinstance(request, EndTxnRequest):
            return await original(self, request, node, timeout)
        future = self.send(request, node, timeout)
        await _written(self)
        hit()
        return await future

    Cluster.request = wrapped  # type: ignore[method-assign]


def _holds_map(partitions: Iterable[tuple[str, int]]) -> bool:
    return any(topic.endswith(".map") for topic, _ in partitions)


def _is_claim(offsets: Collection[tuple[str, int]]) -> bool:
    return len(offsets) == 1 and _holds_map(offsets)


def _reads_progress(*_: Any, stable: bool = True, **__: Any) -> bool:
    return stable


_INSTALLERS: dict[str, Callable[[Callable[[], None]], None]] = {
    "fence": _before(Producer, "begin"),
    "look": _after(Producer, "begin"),
    "read": _before(copy, "group_offsets", _reads_progress),
    "produce": _before(Producer, "_open"),
    "produced": _first_batch_sent,
    "map": _before(Producer, "produce", lambda _, round_: _holds_map(round_)),
    "progress": _before(Producer, "_commit_progress"),
    "end": _before(Producer, "_end"),
    "ended": _end_sent,
    "next": _after(Producer, "_end"),
    "claim": _before(Pen, "write", lambda _, offsets, *__: _is_claim(offsets)),
    "claimed": _before(Pen, "fence"),
    "fenced": _after(Pen, "fence"),
    "start": _before(Pen, "write", lambda _, offsets, *__: not _is_claim(offsets)),
    "started": _after(plan.Planner, "_ensure_progress"),
}
