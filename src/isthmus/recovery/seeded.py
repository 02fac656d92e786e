"""What a seeding link has done, partition by partition, and how other links go on behind it.

Invariants:
- it is read when the seeding link can write no more (hold.py), so positions, ends and map belong together;
- a link that goes on behind it gets position, map and claim in one transaction; which ranges came that way is remembered for verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from isthmus.config import Link
from isthmus.control import memory
from isthmus.engine import state
from isthmus.engine.offset_map import PartitionMap, Runs, build_maps
from isthmus.engine.positions import Chunk, map_chunks, set_positions
from isthmus.engine.state import Progress
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import Partition
from isthmus.kafka.read import read_to_end
from isthmus.recovery.standing import standing

# What verify reads of ranges that both sites got another way than by the link.
SEEDED = "seeded"


@dataclass(frozen=True, slots=True)
class Seeded:
    """One partition after the seeding: names and ids at both sites, how far it came here, and which offset became which there."""

    here: str
    here_id: Any
    there: str
    there_id: Any
    partition: int
    position: int
    runs: Runs

    @property
    def end(self) -> int:
        """Behind the last record that was seeded. By the map and not by the log: what somebody else writes there is behind it."""
        return int(self.runs[-1, 1] + self.runs[-1, 2]) if len(self.runs) else 0

    @property
    def reached(self) -> int:
        """Behind the source offset of that record."""
        return int(self.runs[-1, 0] + self.runs[-1, 2]) if len(self.runs) else 0


async def map_of(target: Cluster, link: Link, ids: Mapping[Partition, UUID]) -> dict[Partition, PartitionMap]:
    """A link's map, of these incarnations of its source topics, whatever came after them."""
    pairs, _ = await read_to_end(target, (state.map_topic(link.name), 0))
    return build_maps(((key, value) for key, value in pairs if key is not None), ids)


async def seeded_by(lost: Cluster, link: Link) -> list[Seeded]:
    """What a seeding link has done, partition by partition."""
    now = await standing(lost, link)
    maps = await map_of(lost, link, {key: progress.source_id for key, progress in now.progress.items()})
    found = []
    for (topic, partition), progress in sorted(now.progress.items()):
        runs = maps.get((topic, partition), PartitionMap(topic, partition)).runs
        place = now.targets[topic, partition]
        found.append(Seeded(topic, progress.source_id, place, progress.target_id, partition, progress.offset, runs))
    return found


async def continue_from(
    target: Cluster,
    link: Link,
    seeded: list[Seeded],
    source: Cluster,
    home: bool,
    since: Mapping[Partition, int] | None = None,
) -> None:
    """Set a link's position, map and claim so that it goes on behind what was seeded. ``home``: the link leads away from the rebuilt
    site, so its offsets are the seeded ones and its destination's are the survivor's; else the other way round. ``since`` says from which
    source offset on this is so, where the link keeps what it knew before that."""
    positions: dict[Partition, Progress] = {}
    chunks: list[Chunk] = []
    ranges: dict[str, list[int]] = {}
    for each in seeded:
        if home:
            progress = Progress(each.end, each.there, source.cluster_id, each.there_id, each.here_id)
            key, runs = (each.here, each.partition), each.runs[:, [1, 0, 2]]
        else:
            progress = Progress(each.position, each.here, source.cluster_id, each.here_id, each.there_id)
            key, runs = (each.there, each.partition), each.runs
        first = (since or {}).get((progress.source_topic, each.partition), 0)
        positions[key] = progress
        chunks += map_chunks(progress, each.partition, runs[runs[:, 0] >= first], first)
        ranges[f"{progress.source_topic}/{each.partition}"] = [first, progress.offset]
    await set_positions(target, link, source.cluster_id, positions, chunks)
    known = memory.of_kind(await memory.recall(target, link.name), SEEDED, memory.ranges) if since else {}
    await memory.remember(
        target,
        link.name,
        {
            (SEEDED, name): {"ranges": [*(r for r in known.get(name, []) if r[1] <= span[0]), span]}
            for name, span in ranges.items()
        },
    )
