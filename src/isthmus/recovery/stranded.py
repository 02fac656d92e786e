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

import time
from collections.abc import Mapping
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
from isthmus.kafka.fetch import Fetcher, FetchProblem
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import Partition
from isthmus.records import Transcoder
from isthmus.recovery.settled import settled_ends
from isthmus.recovery.standing import Standing
from isthmus.rules import Identities, compile_rules

Policy = Literal["append", "set-aside"]
STRANDED = "stranded"
BUFFER_BYTES = 16 << 20
STUCK_SECONDS = 60.0

Ranges = dict[Partition, tuple[int, int]]


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


async def count(
    home: Cluster, link: Link, ranges: Mapping[Partition, tuple[int, int]], identities: Identities
) -> dict[Partition, int]:
    """How many records of these ranges the link would copy."""
    counts = dict.fromkeys(ranges, 0)
    if not ranges:
        return counts
    leaders = Leaders(home, sorted({topic for topic, _ in ranges}))
    await leaders.refresh()
    signal = Signal(home.loop)
    fetcher = Fetcher(home, leaders, signal, BUFFER_BYTES, wait_ms=100)
    transcoder = Transcoder(compile_rules(link, identities), link.compression, link.on_corrupt)
    at = {key: first for key, (first, _) in ranges.items()}
    for key, first in at.items():
        fetcher.seek(key, first)
    deadline = time.monotonic() + STUCK_SECONDS
    try:
        while any(at[key] < end for key, (_, end) in ranges.items()):
            piece = fetcher.take()
            if piece is None:
                if time.monotonic() > deadline:
                    raise kerrors.KafkaTimeoutError("reading what was not copied: stuck")
                await signal.wait(0.5)
                continue
            if isinstance(piece, FetchProblem):
                raise piece.error(f"{piece.partition[0]}[{piece.partition[1]}] at offset {piece.position}")
            topic, partition = piece.partition
            copied = transcoder.feed(
                piece.data,
                topic=topic,
                partition=partition,
                position=at[piece.partition],
                aborted=piece.aborted,
                max_bytes=1 << 30,
            )
            if copied.fault is not None:
                raise copied.fault
            counts[piece.partition] += copied.records
            at[piece.partition] = max(copied.next_offset, piece.end)
            deadline = time.monotonic() + STUCK_SECONDS
    finally:
        fetcher.stop()
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
        old = now.progress[key]
        moved = Progress(end, old.source_topic, old.source_cluster, old.source_id, old.target_id)
        found[now.targets[key], key[1]] = moved
    return found
