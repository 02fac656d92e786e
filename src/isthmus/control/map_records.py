"""The records of a link's map, read again and again: each look reads only what came since the last one.

Invariant: what a look returns is the newest record of each chunk, in the order in which they were written, of all that was
committed when it began.
"""

from __future__ import annotations

import kafka.errors as kerrors

from isthmus.engine import state
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.read import read_to_end

Record = tuple[bytes, bytes]


class MapRecords:
    """Of one link, at its destination."""

    def __init__(self, link: str) -> None:
        self._topic = (state.map_topic(link), 0)
        self._newest: dict[bytes, bytes] = {}
        self._end: int | None = None
        self.grew = False

    @property
    def exists(self) -> bool:
        """Whether the last look found a map, be it an empty one."""
        return self._end is not None

    async def look(self, target: Cluster) -> list[Record]:
        """All of it; ``grew`` says whether something is new. A link that has never run has copied nothing."""
        try:
            try:
                fresh, self._end = await read_to_end(target, self._topic, self._end)
            except kerrors.OffsetOutOfRangeError:  # the topic was made anew
                self._newest.clear()
                fresh, self._end = await read_to_end(target, self._topic)
        except kerrors.UnknownTopicOrPartitionError:
            self._newest.clear()
            self._end, self.grew = None, False
            return []
        self.grew = bool(fresh)
        for key, value in fresh:
            if key is None:
                continue
            self._newest.pop(key, None)
            if value is not None:
                self._newest[key] = value
        return list(self._newest.items())
