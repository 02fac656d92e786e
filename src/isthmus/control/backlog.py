"""How long records have waited that were at the source before the run began.

What is written while a run looks on is timed by the look (web/metrics.py). Of what was there before, only the records themselves know
their time: so the next record to copy of each such partition is looked at, every now and then, until that backlog is copied.

Invariant: one look asks each leader of the source once, for a bounded number of partitions; a log without a backlog costs nothing.
"""

from __future__ import annotations

from isthmus.control.ends import Ends
from isthmus.control.meter import METER, Meter
from isthmus.control.opposite import progress_of
from isthmus.control.topics import discover
from isthmus.engine.lines import committed_of
from isthmus.kafka.offsets import LATEST, Partition, list_offsets
from isthmus.kafka.peek import Glimpse, peek

PARTITIONS_A_LOOK = 500


class Backlog:
    """Of one link; ``look`` until it says that there is nothing left."""

    def __init__(self, meter: Meter = METER) -> None:
        self._meter = meter
        self._ends: dict[Partition, int] | None = None
        self._turn = 0

    async def look(self, ends: Ends) -> bool:
        """See how old the backlog is; whether some is left."""
        if self._ends is None:
            wanted = {
                (n, p): LATEST for n, t in (await discover(ends.source, ends.link)).items() for p in t.source.partitions
            }
            found = await list_offsets(ends.source, wanted)
            self._ends = {key: end for key, end in found.items() if isinstance(end, int)}
        committed = progress_of(await committed_of(ends.target, ends.link, stable=False, complete=False))
        positions = {(p.source_topic, key[1]): p.offset for key, p in committed.items()}
        for key in [key for key, end in self._ends.items() if positions.get(key, -1) >= end]:
            del self._ends[key]
            self._meter.copied((ends.link.name, *key))
        # What has no position yet gets one with the first lease.
        behind = sorted(key for key in self._ends if key in positions)
        some = behind[self._turn : self._turn + PARTITIONS_A_LOOK]
        self._turn = self._turn + PARTITIONS_A_LOOK if self._turn + PARTITIONS_A_LOOK < len(behind) else 0
        for key, seen in (await peek(ends.source, {key: positions[key] for key in some})).items() if some else ():
            if isinstance(seen, Glimpse):
                next_one = next((record for record in seen.records if record.offset >= positions[key]), None)
                if next_one is not None and next_one.timestamp >= 0:
                    self._meter.waits((ends.link.name, *key), next_one.timestamp / 1000)
        return bool(self._ends)
