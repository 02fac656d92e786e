"""What tasks tell the world: reports of traffic and faults of partitions, in the link's status topic.

Keys:  ``slot/N``               the newest report of a slot (traffic since the last one, smoothed rates)
       ``fault/TOPIC/PARTITION``  why a partition stands still; deleted when it moves again
       ``plan``                 what the planner of the newest run has created
       ``deal``                 what the planner saw at the source when it dealt the newest lease
       ``look``                 what the driver saw there since: that topics were looked for, and what no task copies yet

Reports are for eyes and for dealing partitions out by traffic; nothing exact depends on them. But what they say of the source's ends (``Sight``)
is all that is left of it after a disaster, so it is true, however old: each end was told in answer to a request that was *sent* at its time or
later. So what the source had acknowledged (to all in-sync replicas) before that time stands before that end.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from isthmus.errors import PartitionFault
from isthmus.kafka.offsets import Partition

Record = tuple[bytes, bytes]
# A report is one record, and must stay one that any topic takes, with names as long as names can be.
NAMED_PARTITIONS = 500
# Partitions whose ends were asked for this much earlier than others' are named.
LATE_SECONDS = 1.0


def name_of(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


def partition_of(name: str) -> Partition:
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)


@dataclass(slots=True)
class Seen:
    """Of one partition: copied up to ``position``, seen to reach ``end`` (-1: never) by a request sent at ``asked`` (0.0: never). ``anew``: the
    topic was created again, and nothing of the new one is copied."""

    position: int
    end: int
    asked: float
    anew: bool = False

    @property
    def behind(self) -> int:
        return max(0, self.end - (0 if self.anew else max(0, self.position)))


@dataclass(slots=True)
class Sight:
    """How far the source was seen to reach, of all partitions that the report is about; names are ``TOPIC/PARTITION``.

    Every partition was asked for at ``asked`` or later, but for those in ``late``. Those that reach beyond what is committed are in ``ends``. Where
    names had no room, ``left_out`` partitions hold ``rest`` offsets beyond what is committed, and ``asked`` is as early as it must be.
    """

    asked: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    anew: list[str] = field(default_factory=list)
    left_out: int = 0
    rest: int = 0

    @classmethod
    def of(cls, partitions: Mapping[Partition, Seen]) -> Sight:
        newest = max((seen.asked for seen in partitions.values()), default=0.0)
        early = [key for key, seen in partitions.items() if seen.asked < newest - LATE_SECONDS]
        late = heapq.nsmallest(NAMED_PARTITIONS, early, key=lambda key: partitions[key].asked)
        named = set(late)
        behind = [key for key, seen in partitions.items() if seen.behind]
        # Those of a topic that was created again first: without their names, they would be taken for copied.
        first = heapq.nlargest(NAMED_PARTITIONS, behind, key=lambda k: (partitions[k].anew, partitions[k].behind))
        told = set(first)
        left = [partitions[key].behind for key in behind if key not in told]
        return cls(
            min((seen.asked for key, seen in partitions.items() if key not in named), default=0.0),
            {name_of(key): partitions[key].end for key in first},
            {name_of(key): partitions[key].asked for key in late},
            [name_of(key) for key in first if partitions[key].anew],
            len(left),
            sum(left),
        )

    def until(self, name: str) -> float:
        return self.late.get(name, self.asked)


@dataclass(slots=True)
class SlotReport:
    slot: int
    run: str
    lease: int
    at: float
    records: int
    copied_bytes: int
    transactions: int
    records_per_second: float
    bytes_per_second: float
    # "topic/partition" -> bytes a second, smoothed over about half a minute; only those with traffic
    traffic: dict[str, float] = field(default_factory=dict)
    trouble: str = ""
    # of the rule schema_ids, under this lease: keys and values by what became of them
    schema_ids: dict[str, int] = field(default_factory=dict)
    # of the version before, "topic/partition" -> its end as last seen; and when any leader of the source last answered
    ends: dict[str, int] = field(default_factory=dict)
    heard: float = 0.0
    # what its partitions were seen to reach, and how many tasks have partitions under this lease; reports of the version before have neither
    seen: Sight | None = None
    shares: int = 0
    # how many partitions of the lease were looked at: both topics are those of their progress and the source has answered for them,
    # or they stand still with a fault
    looked: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.seen, dict):
            self.seen = Sight(**self.seen)

    def by_partition(self) -> dict[Partition, float]:
        """Bytes a second of the partitions that this slot has traffic for."""
        return {partition_of(name): rate for name, rate in self.traffic.items()}

    def record(self) -> Record:
        return f"slot/{self.slot}".encode(), json.dumps(asdict(self), separators=(",", ":")).encode()


@dataclass(slots=True)
class FaultReport:
    topic: str
    partition: int
    offset: int
    error: str
    message: str
    since: float
    # the run that met it; empty in what earlier versions wrote
    run: str = ""

    @staticmethod
    def key(partition: Partition) -> bytes:
        return f"fault/{partition[0]}/{partition[1]}".encode()

    @classmethod
    def of(cls, fault: PartitionFault, run: str = "") -> FaultReport:
        return cls(fault.topic, fault.partition, fault.offset, type(fault).__name__, fault.message, time.time(), run)

    def record(self) -> Record:
        body = json.dumps(asdict(self), separators=(",", ":")).encode()
        return self.key((self.topic, self.partition)), body


@dataclass(slots=True)
class PlanReport:
    """Topics that a run's planner has created and grown, what was refused, how often it tried, and how long that took."""

    run: str
    created: int = 0
    grown: int = 0
    refused: int = 0
    times: int = 0
    seconds: float = 0.0

    def record(self) -> Record:
        return b"plan", json.dumps(asdict(self), separators=(",", ":")).encode()


@dataclass(slots=True)
class SourceReport:
    """What the driver saw at the source: all topics by a request sent at ``discovered``; and the ends of partitions, of the planner (``deal``) those
    of all, of the observer (``look``) those of partitions that no task copies yet. ``idle`` partitions are in nobody's lease (``idle_more``: so many
    more had no room)."""

    run: str
    lease: int
    discovered: float
    seen: Sight = field(default_factory=Sight)
    idle: list[str] = field(default_factory=list)
    idle_more: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.seen, dict):
            self.seen = Sight(**self.seen)

    def record(self, kind: Literal["deal", "look"]) -> Record:
        return kind.encode(), json.dumps(asdict(self), separators=(",", ":")).encode()


@dataclass(slots=True)
class Reports:
    """The status topic, read."""

    slots: dict[int, SlotReport] = field(default_factory=dict)
    faults: dict[Partition, FaultReport] = field(default_factory=dict)
    plan: PlanReport | None = None
    deal: SourceReport | None = None
    look: SourceReport | None = None
    # by run: what the rule schema_ids met in all reports that were read here, so it only grows
    schema_ids: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def take(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Apply records in their order; calling again with what came since is enough."""
        for key, value in records:
            kind, _, rest = (key or b"").decode().partition("/")
            body: dict[str, Any] | None = json.loads(value) if value else None
            if kind == "slot":
                if body is None:
                    self.slots.pop(int(rest), None)
                else:
                    report = SlotReport(**body)
                    self._count(report, self.slots.get(report.slot))
                    self.slots[report.slot] = report
            elif kind == "fault":
                topic, _, partition = rest.rpartition("/")
                if body is None:
                    self.faults.pop((topic, int(partition)), None)
                else:
                    self.faults[topic, int(partition)] = FaultReport(**body)
            elif kind == "plan":
                self.plan = PlanReport(**body) if body else None
            elif kind == "deal":
                self.deal = SourceReport(**body) if body else None
            elif kind == "look":
                self.look = SourceReport(**body) if body else None

    def _count(self, report: SlotReport, before: SlotReport | None) -> None:
        """Tasks count from nothing under each lease, and again when one is repeated."""
        if not report.schema_ids:
            return
        counted = Counter(report.schema_ids)
        if before is not None and (before.run, before.lease) == (report.run, report.lease):
            known = Counter(before.schema_ids)
            if known <= counted:
                counted.subtract(known)
        self.schema_ids[report.run].update(counted)

    def traffic(self) -> dict[Partition, float]:
        """Bytes a second by partition, from the newest lease that reported each."""
        rates: dict[Partition, float] = {}
        for report in sorted(self.slots.values(), key=lambda r: (r.lease, r.at)):
            rates.update(report.by_partition())
        return rates
