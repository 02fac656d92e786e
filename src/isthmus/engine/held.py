"""Which source partitions have copies at the destination, and where, from progress and map."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from isthmus.engine.offset_map import PartitionMap
from isthmus.engine.state import Progress
from isthmus.kafka.offsets import Committed, Partition


def by_source(committed: Mapping[Partition, Committed]) -> dict[Partition, Progress]:
    """The furthest progress of each source partition, under whatever name it was copied."""
    found: dict[Partition, Progress] = {}
    for (_, partition), value in committed.items():
        progress = Progress.read(value)
        if progress is not None:
            key = (progress.source_topic, partition)
            if key not in found or found[key].offset < progress.offset:
                found[key] = progress
    return found


def is_newest(progress: Progress, mapped: PartitionMap | None) -> bool:
    """Whether nothing was copied to another topic since: what the map saw last is what this progress is about."""
    return mapped is None or mapped.target_id == progress.target_id


def held(
    partitions: Iterable[tuple[str, int, str]],
    committed: Mapping[Partition, Committed],
    maps: Mapping[Partition, PartitionMap],
) -> dict[Partition, uuid.UUID]:
    """Source partitions that were copied to the topic that they are copied to now, and which topic that was;
    ``partitions`` are source topic, partition, and the name of the destination topic.

    The broker forgets the progress of a topic that is deleted; the map does not, but it knows no names. So copies that the
    map knows went there unless there is progress, under another name, of the very topic that holds them.
    """
    progresses = by_source(committed)
    found: dict[Partition, uuid.UUID] = {}
    for name, partition, target in partitions:
        key, own = (name, partition), committed.get((target, partition))
        progress = Progress.read(own) if own is not None else None
        elsewhere = progresses.get(key)
        if progress is not None:
            found[key] = progress.target_id
        elif key in maps and len(maps[key].runs) and (elsewhere is None or not is_newest(elsewhere, maps[key])):
            found[key] = maps[key].target_id
    return found
