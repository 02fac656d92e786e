"""The records of a link's map, read again and again: each look reads only what came since the last one.

Invariants:
- what a look returns is the newest record of each chunk, in the order in which they were written, of one incarnation of the
  map topic: one that was made anew is read from its start;
- the map is one log of all slots, and readers of committed records see nothing behind a transaction that is open there. So a
  look waits for what was *appended* when it began. ``whole`` says whether all of that came: only then does the map have
  every copy that was visible, and all that belongs to progress that was read, before the look.
"""

from __future__ import annotations

import time
import uuid

import kafka.errors as kerrors

from isthmus.engine import state
from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import LATEST, list_offsets
from isthmus.kafka.read import read_to_end

Record = tuple[bytes, bytes]

# For so long a look waits for transactions that are being ended, which takes milliseconds; one whose owner stands still is
# ended by its broker after a minute.
PATIENCE_SECONDS, UNTIL_ENDED_SECONDS = 5.0, 75.0
_AGAIN_SECONDS = 0.05


class MapRecords:
    """Of one link, at its destination."""

    def __init__(self, link: str, patience: float = PATIENCE_SECONDS) -> None:
        self._topic = (state.map_topic(link), 0)
        self.patience = patience
        self._forget()
        self.grew, self.whole = False, False

    def _forget(self) -> None:
        self._newest: dict[bytes, bytes] = {}
        self._end: int | None = None
        self._incarnation: tuple[str, uuid.UUID] | None = None

    @property
    def exists(self) -> bool:
        """Whether the last look found a map, be it an empty one."""
        return self._end is not None

    @property
    def open_from(self) -> str:
        """Where the map is hidden, in words, when it is not whole."""
        return f"a transaction in {self._topic[0]} is open from offset {self._end} on"

    async def look(self, target: Cluster) -> list[Record]:
        """All of it; ``grew`` says whether something is new. A link that has never run has copied nothing."""
        self.grew, self.whole = False, False
        deadline = time.monotonic() + self.patience
        appended: int | None = None
        while True:
            try:
                incarnation = await self._present(target)
                if incarnation != self._incarnation:
                    self.grew, appended = self.grew or self.exists, None
                    self._forget()
                if appended is None:
                    appended = await self._appended(target)
                if self._end is not None and appended < self._end:  # made anew, at a site whose topics have no ids
                    self.grew = True
                    self._forget()
                fresh, end = await read_to_end(target, self._topic, self._end)
                if await self._present(target) != incarnation:
                    continue  # made anew meanwhile: nobody can tell of which of the two this is
            except kerrors.OffsetOutOfRangeError:
                self.grew = True
                self._forget()
                continue
            except kerrors.UnknownTopicOrPartitionError:
                self._forget()
                self.grew, self.whole = False, True
                return []
            self._end, self._incarnation = end, incarnation
            for key, value in fresh:
                if key is None:
                    continue
                self.grew = True
                self._newest.pop(key, None)
                if value is not None:
                    self._newest[key] = value
            self.whole = end >= appended
            if self.whole or time.monotonic() > deadline:
                return list(self._newest.items())
            await target.loop.sleep(_AGAIN_SECONDS)

    async def _present(self, target: Cluster) -> tuple[str, uuid.UUID]:
        info = (await target.metadata([self._topic[0]])).topics[self._topic[0]]
        passing = info.error is not None and issubclass(info.error, kerrors.RetriableError)
        if info.error is not None and (info.error is kerrors.UnknownTopicOrPartitionError or not passing):
            raise info.error(self._topic[0])
        return target.cluster_id, info.id

    async def _appended(self, target: Cluster) -> int:
        found = (await list_offsets(target, {self._topic: LATEST}, committed_only=False))[self._topic]
        if not isinstance(found, int):
            raise found(self._topic[0])
        return found


async def whole_map(target: Cluster, link: str) -> list[Record]:
    """A link's map, once, with all that was appended by now; a link that has never run has none."""
    records = MapRecords(link, UNTIL_ENDED_SECONDS)
    found = await records.look(target)
    if not records.whole:
        raise DataError(
            f"site {target.site.name}: {records.open_from}, and without it the map is not whole; find and end it (kafka-transactions.sh)"
        )
    return found
