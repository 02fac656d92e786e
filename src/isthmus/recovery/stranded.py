"""Records of a site that never made it across before it was lost, and what becomes of them when it returns.

Invariants:
- stranded is what the link would copy from its position on: found by the map's own end, counted by the link's own rules, never guessed from times.
  What came from the other site is none of it, wherever it stands;
- what is copied apart is exactly the ranges that were counted (config/part.py), by a link whose name holds the operation: its state is of no other one;
- *append*: they are copied like any others; they stand at the other site behind what was written there meanwhile, so their order among
  those is new, and their order among themselves is kept. With links one way only they also get an origin header, so that they do not
  come home a second time;
- what came home from the other site is no more expected there than what was set aside, and is remembered in the same way, by the map of the way
  home: what somebody wrote at home in between is the link's to copy, and expected;
- *set aside*: they are copied to ``TOPIC.stranded`` at the other site, the link's position moves past them, and that they are not missing is remembered
  (verify reads it). They stay in their own site's log as well: a log has no way to take them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Link
from isthmus.config.link import StartOffsets
from isthmus.config.loop import Loop
from isthmus.config.origin import Origin
from isthmus.config.part import Part, Within, part
from isthmus.config.topics import Topics
from isthmus.config.turned import STRANDED as SUFFIX
from isthmus.control import memory
from isthmus.engine import state
from isthmus.engine.positions import Chunk, map_chunks, set_positions
from isthmus.engine.state import Progress
from isthmus.errors import DataError
from isthmus.kafka.admin import delete_topics
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched
from isthmus.kafka.groups import delete_groups
from isthmus.kafka.offsets import Partition, log_ranges
from isthmus.kafka.read import Range, read_ranges
from isthmus.records import Transcoder
from isthmus.recovery.seeded import SEEDED, Seeded
from isthmus.recovery.settled import settled_ends
from isthmus.recovery.standing import Standing
from isthmus.recovery.verify_units import Longs, clipped, merged, spans_of
from isthmus.rules import Identities, compile_rules

Policy = Literal["append", "set-aside"]
STRANDED = "stranded"
# So many ranges of a partition are remembered one by one: a record of some hundred kilobytes. More are joined where the gaps are smallest.
MOST_RANGES = 10_000

Ranges = dict[Partition, Range]


async def behind(home: Cluster, now: Standing) -> Ranges:
    """From where to where each partition at home is not copied; refuses a log that has lost what was copied."""
    hint = f"It returned without all its data: `isthmus reseed {home.site.name} --from SITE --wipe` rebuilds it"
    topics = (await home.metadata(sorted({topic for topic, _ in now.progress}))).topics
    for (topic, _), progress in sorted(now.progress.items()):
        info = topics[topic]
        if info.error is kerrors.UnknownTopicOrPartitionError:
            raise DataError(f"{home.site.name} has no topic {topic} any more. {hint}")
        if info.id.int and progress.source_id.int and info.id != progress.source_id:
            raise DataError(f"{topic} at {home.site.name} was deleted and created again. {hint}")
    ends = await settled_ends(home, now.progress)
    found: Ranges = {}
    for key, progress in sorted(now.progress.items()):
        end = ends[key]
        if end < progress.offset:
            raise DataError(
                f"{key[0]}[{key[1]}] at {home.site.name} ends at {end}, and {progress.offset} was copied before the outage. {hint}"
            )
        if end > progress.offset:
            found[key] = (progress.offset, end)
    return found


@dataclass(slots=True)
class Counted:
    """Of one range: how many records a link would copy, and the offset of the first one, or -1."""

    records: int = 0
    first: int = -1


async def count(
    home: Cluster, link: Link, ranges: Mapping[Partition, Range], identities: Identities, seconds: float = 60.0
) -> dict[Partition, Counted]:
    """How many records of these ranges the link would copy; nothing new for so many seconds is an error."""
    counts = {key: Counted() for key in ranges}
    transcoder = Transcoder(compile_rules(link, identities), link.compression, link.on_corrupt)

    def take(piece: Fetched, position: int) -> None:
        topic, partition = piece.partition
        copied = transcoder.feed(
            piece.data, topic=topic, partition=partition, position=position, aborted=piece.aborted, max_bytes=1 << 30
        )
        if copied.fault is not None:
            raise copied.fault
        counted = counts[piece.partition]
        counted.records += copied.records
        if counted.first < 0 and copied.batches:
            counted.first = int(copied.batches[0].runs[0, 0])

    await read_ranges(home, ranges, take, timeout=seconds)
    return counts


async def ends_elsewhere(home: Cluster, ranges: Ranges) -> dict[Partition, int]:
    """Where the other partitions of these topics end: what copies the ranges need not read them from their first record on."""
    topics = (await home.metadata(sorted({topic for topic, _ in ranges}))).topics
    others = [(name, p) for name, info in topics.items() for p in info.partitions if (name, p) not in ranges]
    return {key: end for key, (_, end) in (await log_ranges(home, others)).items()}


def apart(
    link: Link, ranges: Ranges, name: str, suffix: str = "", elsewhere: Mapping[Partition, int] | None = None
) -> Part:
    """A link of its own that copies these ranges, to the same topics or, with a suffix, to others. They are stamped with where they were
    born: only so can they be told, later, from what the other site wrote itself. What that one wrote stays out."""
    within: Within = {}
    starts: dict[str, dict[int, int]] = {}
    for (topic, partition), span in ranges.items():
        within.setdefault(topic, {})[partition] = span
        starts.setdefault(topic, {})[partition] = span[0]
    for (topic, partition), end in (elsewhere or {}).items():
        starts.setdefault(topic, {})[partition] = end
    return part(
        link,
        within,
        name=f"{link.name}{SUFFIX}-{name}",
        rename=link.rename + suffix,
        origin=link.origin or Origin(),
        loop=link.loop or Loop(drop="returning"),
        topics=Topics(include=sorted(within) or ["none"]),
        start=StartOffsets(offsets=starts),
        # Nobody reads there yet: positions would only look like lag.
        sync=link.sync.model_copy(update={"groups": link.sync.groups.model_copy(update={"enabled": False})}),
    )


async def remember(
    target: Cluster, link: Link, ranges: Mapping[Partition, Iterable[Range]], kind: str = STRANDED
) -> None:
    """That these source ranges are not expected at the destination, or, as ``SEEDED``, came there another way."""
    known = memory.of_kind(await memory.recall(target, link.name), kind, memory.ranges)
    things: memory.Things = {}
    for (topic, partition), spans in ranges.items():
        name = f"{topic}/{partition}"
        every = [*known.get(name, []), *spans]
        if every:
            things[kind, name] = {"ranges": few(merged(np.array(every, np.int64))).tolist()}
    await memory.remember(target, link.name, things)


def few(spans: Longs, most: int = MOST_RANGES) -> Longs:
    """Ascending ranges, joined over the smallest gaps until there are so few."""
    if len(spans) <= most:
        return spans
    gaps = spans[1:, 0] - spans[:-1, 1]
    cut = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
    firsts = np.concatenate((spans[:1, 0], spans[cut + 1, 0]))
    return np.stack([firsts, np.concatenate((spans[cut, 1], spans[-1:, 1]))], axis=1)


def past(now: Standing, ranges: Ranges) -> dict[Partition, Progress]:
    """The link's progress behind these ranges, keyed by destination partition, of those that it has not passed yet."""
    found: dict[Partition, Progress] = {}
    for key, (_, end) in ranges.items():
        if now.progress[key].offset < end:
            found[now.targets[key], key[1]] = replace(now.progress[key], offset=end)
    return found


async def adopt(
    target: Cluster,
    link: Link,
    source_cluster: str,
    ranges: Ranges,
    positions: Mapping[Partition, Progress],
    copied: Iterable[Seeded],
) -> None:
    """Let a link go on at these positions, and know as its own what another link has copied of these ranges. Remember, then do: the positions
    tell that it is done."""
    by_source = {(each.here, each.partition): each.runs for each in copied}
    chunks: list[Chunk] = []
    came: dict[Partition, list[Range]] = {}
    for (_, partition), progress in positions.items():
        key = (progress.source_topic, partition)
        if key in by_source and key in ranges:
            runs = clipped(by_source[key], *ranges[key])
            chunks += map_chunks(progress, partition, runs, ranges[key][0])
            came[key] = [(int(a), int(b)) for a, b in spans_of(runs, 0)]
    await remember(target, link, came, SEEDED)
    if positions:
        await set_positions(target, link, source_cluster, positions, chunks)


async def forget(target: Cluster, links: Iterable[str]) -> None:
    """Delete the state of links that are done and that nobody runs again."""
    names = list(links)
    await delete_topics(target, [topic for name in names for topic in state.topics_of(name)])
    await delete_groups(target, [state.group(name) for name in names])
