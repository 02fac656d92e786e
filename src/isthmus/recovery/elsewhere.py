"""Links between a rebuilt site and third sites, in a mesh where each site sends only what was born there (``loop: foreign``).

The survivor knows both: what the lost site had sent it stands in the map of the link from there, what third sites sent it in the maps of theirs. So for
each record of the rebuilt log it is known whether a third site has it, and for each record of a third site whether the rebuilt log has it.

Invariants:
- such a link goes on with the first record that the other side has not got, and not one earlier: in each log, records of one birthplace stand in
  the same order, so what a site has of another's births is always a beginning of them;
- where a third site sends more than its own births, that is not so, and the link is left to the operator, with words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.config import Link
from isthmus.control import memory
from isthmus.engine.offset_map import PartitionMap, Runs
from isthmus.engine.positions import Chunk, map_chunks, set_positions
from isthmus.engine.state import Progress
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import Partition
from isthmus.recovery.seeded import SEEDED, Seeded, map_of
from isthmus.recovery.standing import Standing, standing

NOTHING: Runs = np.empty((0, 3), np.int64)


def own_births(link: Link) -> bool:
    """Whether a link sends only what was born at its source."""
    return link.loop is not None and link.loop.drop == "foreign"


def compose(first: Runs, second: Runs) -> Runs:
    """From runs x -> y and y -> z, both ascending, the runs x -> z."""
    found: list[tuple[int, int, int]] = []
    a = b = 0
    while a < len(first) and b < len(second):
        x, y, length = (int(value) for value in first[a])
        other, z, width = (int(value) for value in second[b])
        begin, end = max(y, other), min(y + length, other + width)
        if begin < end:
            found.append((x + begin - y, z + begin - other, end - begin))
        if y + length <= other + width:
            a += 1
        else:
            b += 1
    return np.array(found, np.int64).reshape(-1, 3)


def inverse(runs: Runs) -> Runs:
    return runs[:, [1, 0, 2]]


def before(runs: Runs, place: int) -> Runs:
    """The part of runs whose places lie before this one."""
    kept = runs[runs[:, 1] < place].copy()
    if len(kept):
        kept[-1, 2] = min(kept[-1, 2], place - kept[-1, 1])
    return kept


@dataclass(slots=True)
class _Setting:
    """What a link is told: positions, map, and which ranges came another way."""

    positions: dict[Partition, Progress]
    chunks: list[Chunk]
    ranges: dict[str, list[int]]

    def add(self, key: Partition, progress: Progress, runs: Runs) -> None:
        self.positions[key] = progress
        self.chunks += map_chunks(progress, key[1], runs, 0)
        self.ranges[f"{progress.source_topic}/{key[1]}"] = [0, progress.offset]

    async def write(self, target: Cluster, link: Link, source_cluster: str) -> None:
        if self.positions:
            await set_positions(target, link, source_cluster, self.positions, self.chunks)
            things: memory.Things = {(SEEDED, name): {"ranges": [span]} for name, span in self.ranges.items()}
            await memory.remember(target, link.name, things)


async def set_outgoing(
    third: Cluster, away: Link, survivor: Cluster, forward: Link, lost: Cluster, seeded: Sequence[Seeded]
) -> int:
    """The link from the rebuilt site to a third one goes on behind what that one has. ``forward`` led from the lost site to the survivor."""
    now: Standing = await standing(third, away)
    fresh = {(each.there, each.partition): each for each in seeded}
    old = {key: p.source_id for key, p in now.progress.items() if key in fresh and p.source_id != fresh[key].there_id}
    there, here = await map_of(third, away, old), await map_of(survivor, forward, old)
    setting = _Setting({}, [], {})
    for key in old:
        each, progress = fresh[key], now.progress[key]
        to_survivor = here[key].runs if key in here else NOTHING
        moved = compose(to_survivor, each.runs)  # old log -> rebuilt log
        place = PartitionMap(*key, runs=moved).translate(progress.offset)
        position = place.offset if place.copied else each.end
        runs = compose(inverse(moved), there[key].runs if key in there else NOTHING)
        renewed = Progress(position, key[0], lost.cluster_id, each.there_id, progress.target_id)
        setting.add((now.targets[key], key[1]), renewed, runs)
    await setting.write(third, away, lost.cluster_id)
    return len(setting.positions)


async def set_incoming(
    lost: Cluster, coming: Link, survivor: Cluster, known: Link, third: Cluster, seeded: Sequence[Seeded]
) -> int:
    """The link from a third site to the rebuilt one goes on behind what was seeded of it. ``known`` leads from there to the survivor."""
    now: Standing = await standing(survivor, known)
    maps = await map_of(survivor, known, {key: progress.source_id for key, progress in now.progress.items()})
    fresh = {(each.here, each.partition): each for each in seeded}
    setting = _Setting({}, [], {})
    for key, progress in now.progress.items():
        each = fresh.get((now.targets[key], key[1]))
        if each is None or not coming.topics.matches(key[0]) or coming.destination_topic(key[0]) != each.there:
            continue
        brought = before(maps[key].runs if key in maps else NOTHING, each.position)
        position = int(brought[-1, 0] + brought[-1, 2]) if len(brought) else 0
        renewed = Progress(position, key[0], third.cluster_id, progress.source_id, each.there_id)
        setting.add((each.there, key[1]), renewed, compose(brought, each.runs))
    await setting.write(lost, coming, third.cluster_id)
    return len(setting.positions)
