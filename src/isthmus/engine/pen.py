"""The pen of a link: who holds it may write the claim, and progress and map outside of a copy. One planner at a time.

The claim stands in the link's control topic too, in the same transaction, because brokers forget a group's lines (lines.py).

Invariant: take, then read, then write. Taking fences whoever held the pen before, so what was read after taking it is
still true when it is written, or the write fails: a planner that was asleep cannot put back what others have moved
since. Nothing of a failed write is visible.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.lines import claim_thing, lines
from isthmus.engine.orphans import SETTLE_SECONDS, known_ends, open_transactions, passed_over, seen_beyond
from isthmus.engine.state import Claim, Progress
from isthmus.engine.table import ensure_table, table_records
from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal, gather
from isthmus.kafka.offsets import Committed, Partition, commit_group_offsets, group_offsets
from isthmus.kafka.produce import Fenced, Interrupted, Producer, small_batches

# A planner that was in the middle of a plan takes the pen back once; then it sees what is wanted of it. The rest is for lost answers.
ATTEMPTS, AGAIN_SECONDS = 5, 0.05

_Result = TypeVar("_Result")


class Pen:
    """Raises ``Fenced`` when another holder has come, ``Interrupted`` when only reading can tell what is written."""

    def __init__(self, target: Cluster, link: Link) -> None:
        self._target, self._link = target, link
        self._group, self._map = state.group(link.name), (state.map_topic(link.name), 0)
        self._exactly_once = link.delivery == "exactly-once"
        self._control = (state.control_topic(link.name), 0)
        self._leaders = Leaders(target, [self._map[0], self._control[0]])
        self._producer = self._make([state.planner_id(link.name)] if self._exactly_once else [])
        self._fenced: list[Producer] = []

    def _make(self, transactional_ids: Sequence[str]) -> Producer:
        return Producer(self._target, self._leaders, Signal(self._target.loop), transactional_ids)

    async def take(self) -> None:
        await ensure_table(self._target, self._control[0])
        await self._leaders.refresh()
        if self._exactly_once:
            await self._producer.begin()
            # What an older holder left and brokers have forgotten to end would be committed along with what is written next.
            await self._producer.end_orphans([self._map, self._control], self._group)

    async def write(
        self, offsets: Mapping[Partition, Committed], chunks: Sequence[tuple[bytes, bytes | None]] = ()
    ) -> None:
        """Commit these offsets and chunks of the map together; everybody can read them when this returns."""
        if not offsets:
            return
        claims = claim_thing(offsets[self._map]) if self._map in offsets else {}
        signed = await table_records(self._target, self._control[0], claims) if claims else []
        for place, records in ((self._map, chunks), (self._control, signed)):
            for batch in small_batches(list(records)):
                self._producer.produce({place: batch})
        if self._exactly_once:
            await self._producer.commit(self._group, offsets)
        else:
            await self._producer.drain()
            await commit_group_offsets(self._target, self._group, offsets)
        # The broker answers before it has marked the offsets as committed; a stable read waits for the marks.
        found = await group_offsets(self._target, self._group, list(offsets), stable=self._exactly_once)
        # Progress without its words would count as none, and the next run would copy everything again.
        if any(value.metadata and key in found and not found[key].metadata for key, value in offsets.items()):
            raise state.not_kept(f"site {self._target.site.name}")

    async def fence(self, slots: int) -> None:
        """Take every slot's transactional ids: aborts what tasks left open, and ends tasks that still run."""
        if self._exactly_once:
            ids = [state.transactional_ids(self._link.name, slot) for slot in range(slots)]
            self._fenced = [self._make(each) for each in ids]
            await gather([self._target.loop.spawn(each.begin()) for each in self._fenced])

    async def settle(self) -> dict[Partition, Committed]:
        """After ``fence``: what the link's group has committed, when nothing of the link is undecided any more. What brokers have forgotten to end
        is ended; where a part of it had become visible before that, progress follows what is there (orphans.py)."""
        if not self._exactly_once:
            return await group_offsets(self._target, self._group)
        try:
            committed, stuck = await group_offsets(self._target, self._group, timeout=SETTLE_SECONDS), False
        except kerrors.UnstableOffsetCommitError:
            committed, stuck = await group_offsets(self._target, self._group, stable=False), True
        places = [key for key, value in committed.items() if Progress.read(value) is not None]
        leaders = Leaders(self._target, {self._map[0], *(topic for topic, _ in places)})
        await leaders.refresh()
        ours = {who: epoch for producer in self._fenced for who, epoch in producer.epochs.items()}
        held = await open_transactions(self._target, leaders, [*places, self._map], ours)
        if not stuck and not held:
            return committed
        known = await known_ends(self._target, self._link, committed)
        commit = await passed_over(self._target, self._link, held, committed)
        for producer in self._fenced:
            await producer.end_orphans([*places, self._map], self._group, commit)
        committed = await group_offsets(self._target, self._group)
        moved, chunks = await seen_beyond(self._target, self._link, committed, ours, known)
        await self.write(moved, chunks)
        return {**committed, **moved}


async def with_pen(
    target: Cluster, link: Link, work: Callable[[Pen, Claim | None, dict[Partition, Committed]], Awaitable[_Result]]
) -> _Result:
    """Take the pen, end whatever older leases could still write, read what is committed, and do ``work`` with it.

    Begins again from the start when a planner took the pen meanwhile; so ``work`` may be done more than once.
    """
    group, map_key = state.group(link.name), (state.map_topic(link.name), 0)
    keys = [map_key, (state.status_topic(link.name), 0)]
    pen = Pen(target, link)
    for attempt in range(ATTEMPTS):
        try:
            await pen.take()
            claim, _ = await lines(target, link.name, await group_offsets(target, group, keys, stable=True))
            if claim is not None:
                claim = replace(claim, number=claim.number + 1)
                await pen.write({map_key: claim.commit()})
                await pen.fence(claim.slots)
            return await work(pen, claim, await pen.settle())
        except (Fenced, Interrupted):
            if attempt + 1 == ATTEMPTS:
                raise DataError(
                    f"link {link.name}: another planner kept writing; nothing is sure to be done, give the command again"
                ) from None
            await target.loop.sleep(random.uniform(0.5, 1.5) * AGAIN_SECONDS * 2**attempt)
    raise AssertionError("unreachable")
