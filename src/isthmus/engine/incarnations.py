"""Whether both topics of a partition are still those that its progress is about; asked by runs, status, plan and verify.

Invariant: progress, and where the broker has forgotten that, the map, pin the ids of both topics. A topic with another id is another
log: positions and ends of the two mean nothing to each other, however well they fit. Sites whose topics have no ids are not judged.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.engine.held import by_source, is_newest
from isthmus.engine.offset_map import PartitionMap
from isthmus.engine.state import Progress
from isthmus.errors import (
    DestinationMissing,
    DestinationRecreated,
    PartitionFault,
    SourceDeleted,
    SourceRecreated,
    SourceUnreadable,
)
from isthmus.kafka.cluster import NO_ID, Cluster, TopicInfo
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.offsets import Committed, Partition

if TYPE_CHECKING:
    from isthmus.control.topics import Topic

Faults = dict[Partition, PartitionFault]


def source_deleted(topic: str, partition: int, target: str, offset: int = -1) -> SourceDeleted:
    return SourceDeleted(
        f"source topic {topic} was deleted; {target} keeps what was copied. Exclude {topic} from the link, or create it again "
        "and reset",
        topic,
        partition,
        offset,
    )


def source_recreated(link: str, topic: str, partition: int, target: str, offset: int) -> SourceRecreated:
    return SourceRecreated(
        f"source topic {topic} was deleted and created again: offset {offset} means another record now; run `isthmus reset "
        f"{link} {topic}:{partition} --to earliest` to append the new topic's records to {target}",
        topic,
        partition,
        offset,
    )


def source_unreadable(site: str, topic: str, partition: int, offset: int = -1) -> SourceUnreadable:
    return SourceUnreadable(
        f"not authorised to read {topic} at site {site}: grant ALLOW READ and DESCRIBE on it", topic, partition, offset
    )


def destination_missing(link: str, topic: str, partition: int, target: str) -> DestinationMissing:
    return DestinationMissing(
        f"destination topic {target} was deleted while the link was copying to it; create it again and run `isthmus reset "
        f"{link} {topic}:{partition} --to earliest` to copy all again, or exclude {topic} from the link",
        topic,
        partition,
    )


def destination_recreated(link: str, topic: str, partition: int, target: str, offset: int = -1) -> DestinationRecreated:
    return DestinationRecreated(
        f"destination topic {target} was deleted and created again: what was copied before is gone; run `isthmus reset {link} "
        f"{topic}:{partition} --to earliest` to copy all again, or `--to current` to go on after the loss",
        topic,
        partition,
        offset,
    )


def without_progress(topics: Mapping[str, Topic], committed: Mapping[Partition, Committed]) -> bool:
    """Whether some partition has no progress: only the map tells then whether it was ever copied."""
    return any((t.target, p) not in committed for t in topics.values() for p in t.source.partitions)


def pinned(
    topics: Mapping[str, Topic], committed: Mapping[Partition, Committed], maps: Mapping[Partition, PartitionMap]
) -> Iterator[tuple[Partition, Progress]]:
    """What each partition goes on from, with the ids that it holds for; as a planner would find it."""
    elsewhere = by_source(committed)
    for name, topic in topics.items():
        for partition in topic.source.partitions:
            key = (name, partition)
            own = committed.get((topic.target, partition))
            progress = Progress.read(own) if own is not None else None
            other, mapped = elsewhere.get(key), maps.get(key)
            if progress is not None:
                yield key, progress
            elif other is not None and other.source_id == topic.source.id and is_newest(other, mapped):
                continue  # the link's rename changed: it goes on in another topic, which holds nothing yet
            elif mapped is not None and mapped.next_offset >= 0:
                yield key, Progress(mapped.next_offset, name, "", mapped.source_id, mapped.target_id)


def differ(now: uuid.UUID, pinned_id: uuid.UUID) -> bool:
    return NO_ID not in (now, pinned_id) and now != pinned_id


def judge(
    link: Link,
    topics: Mapping[str, Topic],
    there: Mapping[str, TopicInfo],
    committed: Mapping[Partition, Committed],
    maps: Mapping[Partition, PartitionMap],
) -> Faults:
    """Partitions of topics that are not those that were copied, or to which was copied. ``there`` are the topics of the destination."""
    faults: Faults = {}
    for (name, partition), progress in pinned(topics, committed, maps):
        topic = topics[name]
        info = there.get(topic.target)
        if differ(topic.source.id, progress.source_id):
            faults[name, partition] = source_recreated(link.name, name, partition, topic.target, progress.offset)
        elif info is not None and info.error is kerrors.UnknownTopicOrPartitionError:
            faults[name, partition] = destination_missing(link.name, name, partition, topic.target)
        elif info is not None and info.error is None and differ(info.id, progress.target_id):
            faults[name, partition] = destination_recreated(link.name, name, partition, topic.target, progress.offset)
    for (target, partition), value in committed.items():
        held = Progress.read(value)
        now = topics.get(held.source_topic) if held is not None else None
        if held is None or now is None or partition in now.source.partitions:
            continue
        if differ(now.source.id, held.source_id):  # created again with fewer partitions
            faults[now.source.name, partition] = source_recreated(
                link.name, now.source.name, partition, target, held.offset
            )
    return faults


async def gone(
    source: Cluster, link: Link, topics: Mapping[str, Topic], committed: Mapping[Partition, Committed]
) -> Faults:
    """Partitions that were copied and whose topic is not at the source any more, or not for us to see."""
    lost: dict[Partition, tuple[str, int]] = {}
    for (target, partition), value in committed.items():
        progress = Progress.read(value)
        if progress is not None and progress.source_topic not in topics and link.topics.matches(progress.source_topic):
            lost[progress.source_topic, partition] = (target, progress.offset)
    if not lost:
        return {}
    # One broker's list may be older than the topic: all are asked before it is called gone.
    leaders = Leaders(source, {name for name, _ in lost})
    await leaders.refresh()
    faults: Faults = {}
    for (name, partition), (target, offset) in lost.items():
        if name in leaders.refused:
            faults[name, partition] = source_unreadable(link.source, name, partition, offset)
        elif name in leaders.missing:
            faults[name, partition] = source_deleted(name, partition, target, offset)
    return faults
