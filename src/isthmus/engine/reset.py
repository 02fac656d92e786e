"""Setting a partition's position by hand: the answer to a fault that needs a decision.

Order, so that no task copies meanwhile: hold the planner (a mark of this command in the control line), take its pen (pen.py: it may be in the middle of
a plan), end the present lease (a claim under the same run), fence all slots, write the positions with the topics' present ids, then take the mark away.

Invariant: whether the link is paused is not touched. The mark names the command that set it: the last of several commands at once takes it away, and one
that was killed leaves its own, which the next reset replaces. Positions and map change together, so the map alone still tells where the link goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.hold import LETTING_GO_SECONDS
from isthmus.engine.lines import forgotten_progress, position_record
from isthmus.engine.pen import Pen, with_pen
from isthmus.engine.plan import Topic, discover
from isthmus.engine.report import FaultReport
from isthmus.engine.state import Claim, Control, Progress
from isthmus.engine.steer import change, steer
from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster, Metadata
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import (
    EARLIEST,
    LATEST,
    Committed,
    Partition,
    list_offsets,
)
from isthmus.kafka.produce import Producer, small_batches

To = int | Literal["earliest", "latest", "current"]


@dataclass(frozen=True, slots=True)
class Moved:
    topic: str
    partition: int
    before: int | None
    after: int


async def reset(
    source: Cluster, target: Cluster, link: Link, wanted: Mapping[str, set[int] | None], to: To
) -> list[Moved]:
    """Set the position of these partitions (``None``: all of the topic) and let the link go on."""
    topics = await discover(source, link)
    partitions: list[Partition] = []
    for name, only in wanted.items():
        if name not in topics:
            raise DataError(f"link {link.name} does not copy a topic {name} that exists at site {source.site.name}")
        if topics[name].problem:
            raise DataError(f"link {link.name}: {topics[name].problem}")
        there = set(topics[name].source.partitions)
        if only is not None and not only <= there:
            raise DataError(f"{name} has partitions 0 to {max(there)}, not {sorted(only - there)}")
        partitions += [(name, p) for p in sorted(only if only is not None else there)]
    targets = await target.metadata(sorted({topics[name].target for name, _ in partitions}))
    for name, info in targets.topics.items():
        if info.error is not None:
            raise DataError(f"destination topic {name} does not exist; create it, or let the link create it, first")
    mark = uuid.uuid4().hex
    await steer(target, link, reset=mark)
    try:
        if link.delivery != "exactly-once":
            await target.loop.sleep(LETTING_GO_SECONDS)
        moved = await _move(source, target, link, partitions, to, topics, targets)
        await _clear_faults(target, link, partitions)
    finally:
        await change(target, link, lambda now: _over(now, mark))
    return moved


def _over(now: Control, mark: str) -> Control:
    return replace(now, deal=now.deal + 1, reset="" if now.reset == mark else now.reset)


async def _move(
    source: Cluster,
    target: Cluster,
    link: Link,
    partitions: list[Partition],
    to: To,
    topics: Mapping[str, Topic],
    targets: Metadata,
) -> list[Moved]:
    async def move(pen: Pen, claim: Claim | None, committed: dict[Partition, Committed]) -> list[Moved]:
        if to == "current" and any((topics[name].target, p) not in committed for name, p in partitions):
            known = await forgotten_progress(target, link, claim or Claim(0, ""), committed)
            committed = {**committed, **{key: each.commit() for key, each in known.items()}}
        offsets = await _offsets(source, partitions, to, committed, {n: t.target for n, t in topics.items()})
        moved: list[Moved] = []
        write: dict[Partition, Committed] = {}
        chunks = []
        for name, p in partitions:
            there_id: uuid.UUID = targets.topics[topics[name].target].id
            key = (topics[name].target, p)
            old = Progress.read(committed[key]) if key in committed else None
            now = Progress(offsets[name, p], name, source.cluster_id, topics[name].source.id, there_id)
            write[key] = now.commit()
            chunks.append(position_record(now, p))
            moved.append(Moved(name, p, old.offset if old else None, now.offset))
        if claim is not None:
            # Who sets positions by hand means the clusters that there are now; partitions that are not set tell by their topics' ids.
            ours = replace(claim, source_cluster=source.cluster_id, target_cluster=target.cluster_id)
            write[state.map_topic(link.name), 0] = ours.commit()
        await pen.write(write, chunks)
        return moved

    return await with_pen(target, link, move)


async def _offsets(
    source: Cluster,
    partitions: list[Partition],
    to: To,
    committed: Mapping[Partition, Committed],
    targets: Mapping[str, str],
) -> dict[Partition, int]:
    if isinstance(to, int):
        firsts = await list_offsets(source, dict.fromkeys(partitions, EARLIEST))
        lasts = await list_offsets(source, dict.fromkeys(partitions, LATEST))
        for key in partitions:
            first, last = firsts[key], lasts[key]
            if isinstance(first, int) and isinstance(last, int) and not first <= to <= last:
                raise DataError(f"{key[0]}[{key[1]}] holds offsets {first} to {last} at the source; {to} is outside")
        return dict.fromkeys(partitions, to)
    if to == "current":
        found: dict[Partition, int] = {}
        for name, p in partitions:
            value = committed.get((targets[name], p))
            if value is None:
                raise DataError(f"{name}[{p}] has no position to keep; use --to earliest, latest or an offset")
            found[name, p] = value.offset
        return found
    at = EARLIEST if to == "earliest" else LATEST
    ends = await list_offsets(source, dict.fromkeys(partitions, at))
    result: dict[Partition, int] = {}
    for key, offset in ends.items():
        if not isinstance(offset, int):
            raise DataError(f"{key[0]}[{key[1]}]: the source does not tell its {to} offset: {offset.__name__}")
        result[key] = offset
    return result


async def _clear_faults(target: Cluster, link: Link, partitions: list[Partition]) -> None:
    status = (state.status_topic(link.name), 0)
    leaders = Leaders(target, [status[0]])
    await leaders.refresh()
    teller = Producer(target, leaders, Signal(target.loop))
    for batch in small_batches([(FaultReport.key(p), None) for p in partitions]):
        teller.produce({status: batch})
    await teller.drain()
