"""The pen of a link: who holds it may write the claim, and progress and map outside of a copy. One planner at a time.

Invariant: take, then read, then write. Taking fences whoever held the pen before, so what was read after taking it is
still true when it is written, or the write fails: a planner that was asleep cannot put back what others have moved
since. Nothing of a failed write is visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.config import Link
from isthmus.engine import state
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal, gather
from isthmus.kafka.offsets import Committed, Partition, commit_group_offsets, group_offsets
from isthmus.kafka.produce import Producer, small_batches


class Pen:
    """Raises ``Fenced`` when another holder has come, ``Interrupted`` when only reading can tell what is written."""

    def __init__(self, target: Cluster, link: Link) -> None:
        self._target, self._link = target, link
        self._group, self._map = state.group(link.name), (state.map_topic(link.name), 0)
        self._exactly_once = link.delivery == "exactly-once"
        self._leaders = Leaders(target, [self._map[0]])
        self._producer = self._make(state.planner_id(link.name) if self._exactly_once else None)

    def _make(self, transactional_id: str | None) -> Producer:
        return Producer(self._target, self._leaders, Signal(self._target.loop), transactional_id)

    async def take(self) -> None:
        if self._exactly_once:
            await self._producer.begin()

    async def write(
        self, offsets: Mapping[Partition, Committed], chunks: Sequence[tuple[bytes, bytes | None]] = ()
    ) -> None:
        """Commit these offsets and chunks of the map together; everybody can read them when this returns."""
        if not offsets:
            return
        if chunks:
            await self._leaders.refresh()
            for batch in small_batches(list(chunks)):
                self._producer.produce({self._map: batch})
        if not self._exactly_once:
            await self._producer.drain()
            await commit_group_offsets(self._target, self._group, offsets)
            return
        await self._producer.commit(self._group, offsets)
        # The broker answers before it has marked the offsets as committed; a stable read waits for the marks.
        await group_offsets(self._target, self._group, list(offsets), stable=True)

    async def fence(self, slots: int) -> None:
        """Take every slot's transactional id: aborts what tasks left open, and ends tasks that still run."""
        if self._exactly_once:
            ids = [state.transactional_id(self._link.name, slot) for slot in range(slots)]
            await gather([self._target.loop.spawn(self._make(each).begin()) for each in ids])
