"""What tasks tell the world: reports of traffic and faults of partitions, in the link's status topic.

Keys:  ``slot/N``               the newest report of a slot (traffic since the last one, smoothed rates)
       ``fault/TOPIC/PARTITION``  why a partition stands still; deleted when it moves again
       ``plan``                 what the planner of the newest run has created

Reports are for eyes and for dealing partitions out by traffic; nothing exact depends on them.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from isthmus.errors import PartitionFault
from isthmus.kafka.offsets import Partition

Record = tuple[bytes, bytes]


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
    # "topic/partition" -> the source's last stable offset as last seen, of partitions that are behind it; and when the
    # source last answered. What a disaster has cost is told from these.
    ends: dict[str, int] = field(default_factory=dict)
    heard: float = 0.0
    # how many partitions of the lease were looked at: both topics are those of their progress and the source has answered for them,
    # or they stand still with a fault
    looked: int = 0

    def by_partition(self) -> dict[Partition, float]:
        """Bytes a second of the partitions that this slot has traffic for."""
        names = ((name.rpartition("/"), rate) for name, rate in self.traffic.items())
        return {(topic, int(partition)): rate for (topic, _, partition), rate in names}

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
class Reports:
    """The status topic, read."""

    slots: dict[int, SlotReport] = field(default_factory=dict)
    faults: dict[Partition, FaultReport] = field(default_factory=dict)
    plan: PlanReport | None = None
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
