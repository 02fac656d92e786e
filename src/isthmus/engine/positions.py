"""Setting where a link goes on, and what its map says, from outside of a copy.

Invariant: positions, map and claim change together, in one transaction of the pen; a link that has never run has run once afterwards, so its ``start`` does
not count any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.lines import position_record
from isthmus.engine.offset_map import ChunkKey, ChunkWriter, Runs
from isthmus.engine.pen import Pen, with_pen
from isthmus.engine.plan import ensure_state_topics
from isthmus.engine.state import Claim, Progress
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import Committed, Partition

Chunk = tuple[bytes, bytes]


async def set_positions(
    target: Cluster,
    link: Link,
    source_cluster: str,
    positions: Mapping[Partition, Progress],
    chunks: Iterable[Chunk] = (),
) -> None:
    """Let a link go on at these positions (keyed by destination partition), with these records added to its map."""
    await ensure_state_topics(target, link)
    given = list(chunks)
    known = {(key.topic, key.partition) for key in (ChunkKey.decode(raw) for raw, _ in given)}
    records: list[tuple[bytes, bytes | None]] = [*given]
    records += [position_record(each, p) for (_, p), each in positions.items() if (each.source_topic, p) not in known]

    async def write(pen: Pen, claim: Claim | None, committed: dict[Partition, Committed]) -> None:
        old = claim or Claim(0, "positions")
        claimed = Claim(old.number + 1, old.run, old.host, source_cluster, target.cluster_id, old.slots, True)
        offsets = {key: progress.commit() for key, progress in positions.items()}
        offsets[state.map_topic(link.name), 0] = claimed.commit()
        await pen.write(offsets, records)

    await with_pen(target, link, write)


def map_chunks(progress: Progress, partition: int, runs: Runs, first: int) -> list[Chunk]:
    """Runs as records of a link's map, that hide what the map knew from source offset ``first`` on."""
    writer = ChunkWriter(progress.source_topic, partition, progress.source_id, progress.target_id)
    return writer.stage([np.ascontiguousarray(runs)], first, progress.offset)
