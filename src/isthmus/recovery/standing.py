"""How far a link has come, read at its destination alone; and what a disaster at its source has cost.

Invariant: what arrived is what is committed (progress and map), never what was reported. Reports only tell how far the source was *seen* to
reach, and when it was last heard: what was written there after that, nobody here can know, and the loss says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.held import by_source
from isthmus.engine.report import Reports
from isthmus.engine.state import Claim, Progress
from isthmus.errors import UnknownLink
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import LATEST, Partition, group_offsets, list_offsets
from isthmus.kafka.peek import Glimpse, peek
from isthmus.kafka.read import read_to_end

# What a link remembers of its destination: that it was ever in service in place of the source. What was written there then is its own.
SERVED = ("site", "served")


@dataclass(slots=True)
class Standing:
    """A link at its destination: progress by source partition, with the topic that it was copied to."""

    progress: dict[Partition, Progress]
    targets: dict[Partition, str]
    claim: Claim
    reports: Reports

    @property
    def heard(self) -> float:
        """When a task last heard the source."""
        return max((report.heard for report in self.reports.slots.values()), default=0.0)

    @property
    def reported(self) -> float:
        """When a task last said anything."""
        return max((report.at for report in self.reports.slots.values()), default=0.0)

    def seen_ends(self) -> dict[Partition, int]:
        """How far the source was seen to reach, of partitions that were behind."""
        found: dict[Partition, int] = {}
        for report in sorted(self.reports.slots.values(), key=lambda each: (each.lease, each.at)):
            for name, end in report.ends.items():
                topic, _, partition = name.rpartition("/")
                found[topic, int(partition)] = end
        return found


async def standing(target: Cluster, link: Link) -> Standing:
    """Read it; a link that has never run with this destination is an error."""
    map_key = (state.map_topic(link.name), 0)
    committed = await group_offsets(target, state.group(link.name), stable=True)
    claim = Claim.read(committed.get(map_key))
    if claim is None:
        raise UnknownLink(
            f"link {link.name}: site {target.site.name} holds no state of it; it has never run with this destination"
        )
    reports = Reports()
    try:
        pairs, _ = await read_to_end(target, (state.status_topic(link.name), 0))
        reports.take(pairs)
    except kerrors.UnknownTopicOrPartitionError:
        pass
    progress = by_source(committed)
    targets: dict[Partition, str] = {}
    for (topic, partition), value in committed.items():
        read = Progress.read(value)
        if read is not None and progress.get((read.source_topic, partition)) == read:
            targets[read.source_topic, partition] = topic
    return Standing(progress, targets, claim, reports)


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one partition: copied up to ``position``, seen to reach ``end``. Offsets count markers too, so ``most`` is an upper bound
    until somebody counts the records."""

    topic: str
    partition: int
    position: int
    end: int
    most: int
    copied_until: int | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def losses(standing: Standing, ends: Mapping[Partition, int]) -> list[Loss]:
    """The partitions whose source was seen to reach beyond what is here."""
    return [
        Loss(topic, partition, progress.offset, ends[topic, partition], ends[topic, partition] - progress.offset, None)
        for (topic, partition), progress in sorted(standing.progress.items())
        if ends.get((topic, partition), -1) > progress.offset
    ]


async def declare(target: Cluster, link: Link, source: Cluster | None, until: float | None = None) -> dict[str, Any]:
    """What never arrived, as far as it can be known: by partition, in records and seconds.

    A source that still answers is asked for its ends; otherwise what tasks saw last counts. ``until`` is when it was given up: what nobody
    knows is what was written there between the two.
    """
    now = await standing(target, link)
    seen, asked = now.seen_ends(), False
    if source is not None:
        try:
            # Behind an open transaction too: what others wrote there is acknowledged, and lost with the site.
            answers = await list_offsets(source, dict.fromkeys(now.progress, LATEST), committed_only=False, timeout=5)
            seen = {key: end for key, end in answers.items() if isinstance(end, int)}
            asked = len(seen) == len(now.progress)
        except (kerrors.KafkaError, OSError):
            pass
    lost = losses(now, seen)
    times = await _copied_until(target, now, [(loss.topic, loss.partition) for loss in lost])
    lost = [Loss(**{**asdict(loss), "copied_until": times.get((loss.topic, loss.partition))}) for loss in lost]
    heard = time.time() if asked else now.heard
    oldest = min((loss.copied_until for loss in lost if loss.copied_until is not None), default=None)
    return {
        "link": link.name,
        "partitions": [loss.to_json() for loss in lost],
        "records_at_most": sum(loss.most for loss in lost),
        # Until when everything had arrived; what was written later and was not heard of is not in the list.
        "heard": heard or None,
        "behind_seconds": round(max(0.0, heard - oldest / 1000), 3) if oldest is not None and heard else 0.0,
        "unknown_since_seconds": 0.0
        if asked
        else round(max(0.0, (until or time.time()) - heard), 3)
        if heard
        else None,
        "source_answers": asked,
    }


async def _copied_until(target: Cluster, now: Standing, partitions: list[Partition]) -> dict[Partition, int]:
    """The time of the last record that was copied, in milliseconds, where there is one."""
    places = {key: (now.targets[key], key[1]) for key in partitions if key in now.targets}
    ends = await list_offsets(target, dict.fromkeys(places.values(), LATEST))
    # The end of a copied log is the marker of its last transaction; the record stands right before it.
    at = {place: max(0, end - 2) for place, end in ends.items() if isinstance(end, int) and end > 0}
    seen = await peek(target, at) if at else {}
    found: dict[Partition, int] = {}
    for key, place in places.items():
        glimpse = seen.get(place)
        if isinstance(glimpse, Glimpse) and glimpse.records:
            found[key] = glimpse.records[-1].timestamp
    return found
