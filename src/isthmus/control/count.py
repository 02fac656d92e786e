"""Counting what is there: the committed records of log ranges on both sides, and how many a link says it has copied.

Invariant: records are counted, not offsets: markers, aborted records and compacted holes take offsets too. A count costs
reading the range once; memory stays bounded however much that is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.control.ends import Ends
from isthmus.control.map_records import whole_map
from isthmus.control.topics import Topic, discover
from isthmus.engine.held import by_source
from isthmus.engine.lines import committed_of
from isthmus.engine.offset_map import build_maps
from isthmus.kafka.admin import TopicConfig, topic_configs
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched
from isthmus.kafka.offsets import Partition, log_ranges
from isthmus.kafka.read import Range, read_ranges

BUFFER_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class TopicCount:
    """One topic's records: at the source up to what is copied, copied by the link, at the destination."""

    topic: str
    target: str
    source: int
    copied: int
    destination: int
    compacted: bool
    rules: bool
    shared: bool  # others write there, too: the link has a loop rule

    @property
    def same(self) -> bool:
        return self.source == self.copied == self.destination

    @property
    def explained(self) -> bool:
        """Whether the counts agree as far as they can."""
        dropped = self.rules and self.copied == self.destination
        return self.same or self.compacted or dropped or (self.shared and self.destination >= self.copied)

    @property
    def words(self) -> str:
        if self.same:
            return "same"
        if self.compacted:
            return "compacted: each side drops superseded records in its own time"
        if self.rules and self.copied == self.destination:
            return "rules dropped the difference"
        if self.shared and self.destination >= self.copied:
            return "what came from there does not go back; others write there, too"
        if self.destination > self.copied:
            return "the destination has records that this link did not copy"
        if self.destination < self.copied:
            return "records are gone at the destination (retention?)"
        return (
            "records are gone at the source since they were copied (retention?)"
            if self.source < self.copied
            else "not all is copied"
        )

    def to_json(self) -> dict[str, Any]:
        names = ("topic", "target", "source", "copied", "destination")
        return {**{name: getattr(self, name) for name in names}, "same": self.same, "verdict": self.words}


async def count_link(ends: Ends) -> list[TopicCount]:
    """The counts of each topic of a link, up to what it has copied."""
    link, source, target = ends.link, ends.source, ends.target
    topics = await discover(source, link)
    committed = await committed_of(target, link)
    maps = build_maps(await whole_map(target, link.name))
    progress = by_source(committed)
    configs = await topic_configs(target, sorted(t.target for t in topics.values()))
    here = {
        (name, p): progress[name, p].offset
        for name, t in topics.items()
        for p in t.source.partitions
        if (name, p) in progress
    }
    at_source = await count_records(source, await _ranges(source, here))
    there = {(topics[name].target, p): -1 for name, p in here}
    at_target = await count_records(target, await _ranges(target, there))
    found = []
    for name, topic in topics.items():
        config = configs.get(topic.target)
        policy = config.values.get("cleanup.policy", "") if isinstance(config, TopicConfig) else ""
        found.append(
            TopicCount(
                name,
                topic.target,
                _sum(at_source, name, topic),
                sum(int(maps[name, p].runs[:, 2].sum()) for p in topic.source.partitions if (name, p) in maps),
                _sum(at_target, topic.target, topic),
                "compact" in policy,
                bool(link.rules),
                link.loop is not None,
            )
        )
    return found


def _sum(counts: dict[Partition, int], name: str, topic: Topic) -> int:
    return sum(counts.get((name, p), 0) for p in topic.source.partitions)


async def _ranges(cluster: Cluster, ends: dict[Partition, int]) -> dict[Partition, Range]:
    """From each log's start to these offsets (-1: to its end)."""
    logs = await log_ranges(cluster, ends)
    return {key: (first, last if ends[key] < 0 else min(ends[key], last)) for key, (first, last) in logs.items()}


async def count_records(cluster: Cluster, ranges: dict[Partition, Range]) -> dict[Partition, int]:
    """How many committed records there are in each range of offsets."""
    from isthmus.records.arrow import decode  # brings the kernels

    counts: dict[Partition, int] = defaultdict(int)

    def take(piece: Fetched, position: int) -> None:
        topic, partition = key = piece.partition
        for batch in decode(piece.data, topic=topic, partition=partition, position=position, aborted=piece.aborted):
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            counts[key] += int(np.searchsorted(offsets, ranges[key][1]))

    await read_ranges(cluster, ranges, take, BUFFER_BYTES)
    return counts
