"""How far a link has come, read at its destination alone.

Invariant: what arrived is what is committed (progress and map), never what was reported. Reports only tell how far the source was *seen* to
reach, and when it was last heard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.held import by_source
from isthmus.engine.lines import committed_of
from isthmus.engine.report import Reports, partition_of
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
        """When any leader of the source last answered a task; it bounds nothing."""
        return max((report.heard for report in self.reports.slots.values()), default=0.0)

    @property
    def reported(self) -> float:
        """When a task last said anything."""
        return max((report.at for report in self.reports.slots.values()), default=0.0)

    def known(self) -> Known:
        """What the reports of the newest lease say of the source. Older ones say nothing: partitions have moved between slots since."""
        reports = self.reports
        slots = [report for report in reports.slots.values() if report.seen is not None]
        leases = [report.lease for report in slots] + ([reports.deal.lease] if reports.deal is not None else [])
        lease = max(leases, default=0)
        deal = reports.deal if reports.deal is not None and reports.deal.lease == lease else None
        seen = [report.seen for report in slots if report.lease == lease and report.seen is not None]
        # A slot that has not reported yet may hold any partition: until then only the planner's word is about all of them.
        complete = bool(seen) and len(seen) >= max(report.shares for report in slots if report.lease == lease)
        told = min((each.asked for each in seen), default=0.0) if complete else 0.0
        dealt = deal.seen.asked if deal is not None else 0.0
        idle = set(deal.idle) if deal is not None else set()
        found = Known(max(told, dealt), discovered=deal.discovered if deal is not None else 0.0)
        for each in (*seen, *([deal.seen] if deal is not None else [])):
            for name, end in each.ends.items():
                key = partition_of(name)
                found.ends[key] = max(end, found.ends.get(key, -1))
            found.anew |= set(map(partition_of, each.anew))
        late = {name for each in seen for name in each.late} | (set(deal.seen.late) if deal is not None else set())
        for name in late | idle:
            times = [each.late.get(name, told) for each in seen] if complete and name not in idle else []
            since = max(min(times, default=0.0), deal.seen.until(name) if deal is not None else 0.0)
            if since < found.until:
                found.late[partition_of(name)] = since
        # Cut lists: the planner's are older than those of all tasks, and about the same partitions.
        cut = seen if complete else [*seen, *([deal.seen] if deal is not None else [])]
        found.left_out, found.rest = sum(each.left_out for each in cut), sum(each.rest for each in cut)
        if deal is not None and deal.idle_more:
            found.idle_more, found.idle_since = deal.idle_more, deal.seen.asked
        look = reports.look
        if look is not None and look.discovered > found.discovered:
            # What appeared after the deal was empty when that was made.
            for name, end in look.seen.ends.items():
                if (key := partition_of(name)) not in found.ends and name not in idle:
                    found.ends[key] = end
                    found.late[key] = found.discovered
            found.discovered = look.discovered
        return found


@dataclass(slots=True)
class Known:
    """How far a link's source was seen to reach, by partition; and until when that is all there was.

    What the source acknowledged before ``until`` (of partitions in ``late``: before the time there, 0.0 for never) stands before the end in ``ends``, or
    is committed. Where names had no room, ``left_out`` partitions held ``rest`` offsets that were not committed. ``idle_more`` partitions are in no
    lease, and were last asked for at ``idle_since``. Topics and partitions that were made after ``discovered`` nobody knows of.
    """

    until: float = 0.0
    late: dict[Partition, float] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    anew: set[Partition] = field(default_factory=set)
    left_out: int = 0
    rest: int = 0
    idle_more: int = 0
    idle_since: float = 0.0
    discovered: float = 0.0

    def since(self, partition: Partition) -> float:
        return self.late.get(partition, self.until)


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
