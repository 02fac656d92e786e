"""How far a link has come, read at its destination alone.

Invariant: what arrived is what is committed (progress and map), never what was reported. Reports only tell how far the source was *seen* to
reach, and when it was last heard.
"""

from __future__ import annotations

from dataclasses import dataclass

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.held import by_source
from isthmus.engine.lines import committed_of
from isthmus.engine.report import Reports
from isthmus.engine.state import Claim, Progress
from isthmus.errors import UnknownLink
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import Partition
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
    committed = await committed_of(target, link)
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
