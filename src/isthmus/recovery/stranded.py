"""Records of a site that never made it across before it was lost, and what becomes of them when it returns.

Invariants:
- stranded is what the link would copy from its position on: found by the map's own end, counted by the link's own rules, never guessed from times;
- *append*: they are copied like any others; they stand at the other site behind what was written there meanwhile, so their order among
  those is new, and their order among themselves is kept. With links one way only they also get an origin header, so that they do not
  come home a second time;
- what came home from the other site is no more expected there than what was set aside, and is remembered in the same way;
- *set aside*: they are copied to ``TOPIC.stranded`` at the other site, the link's position moves past them, and that they are not missing is remembered
  (verify reads it). They stay in their own site's log as well: a log has no way to take them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.config.link import StartOffsets
from isthmus.config.origin import Origin
from isthmus.config.topics import Topics
from isthmus.config.turned import STRANDED as SUFFIX
from isthmus.control import memory
from isthmus.engine.state import Progress
from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched
from isthmus.kafka.offsets import Partition
from isthmus.kafka.read import Range, read_ranges
from isthmus.records import Transcoder
from isthmus.recovery.settled import settled_ends
from isthmus.recovery.standing import Standing
from isthmus.rules import Identities, compile_rules

Policy = Literal["append", "set-aside"]
STRANDED = "stranded"

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


def aside(link: Link, ranges: Ranges, suffix: str) -> Link:
    """A link of its own that copies these ranges, to the same topics or, with a suffix, to others. They are stamped with where they were
    born: only so can they be told, later, from what the other site wrote itself."""
    offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), (first, _) in ranges.items():
        offsets.setdefault(topic, {})[partition] = first
    changes: dict[str, Any] = {
        "name": link.name + SUFFIX,
        "rename": link.rename + suffix,
        "origin": link.origin or Origin(),
        "topics": Topics(include=sorted(offsets)),
        "start": StartOffsets(offsets=offsets),
        # Nobody reads there yet: positions would only look like lag.
        "sync": link.sync.model_copy(update={"groups": link.sync.groups.model_copy(update={"enabled": False})}),
    }
    return link.model_copy(update=changes)


async def remember(target: Cluster, link: Link, ranges: Ranges) -> None:
    """That these source ranges are not expected at the destination."""
    known = memory.of_kind(await memory.recall(target, link.name), STRANDED)
    things: memory.Memory = {}
    for (topic, partition), span in ranges.items():
        name = f"{topic}/{partition}"
        before = [each for each in known.get(name, {}).get("ranges", []) if each[1] <= span[0]]
        things[STRANDED, name] = {"ranges": [*before, list(span)]}
    await memory.remember(target, link.name, things)


def past(now: Standing, ranges: Ranges) -> dict[Partition, Progress]:
    """The link's progress behind these ranges, keyed by destination partition."""
    found: dict[Partition, Progress] = {}
    for key, (_, end) in ranges.items():
        found[now.targets[key], key[1]] = replace(now.progress[key], offset=end)
    return found
