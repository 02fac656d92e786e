"""How a link stands right now, read from the two sites; needs no Spark and no running replicator.

Invariant: positions and lags are what is committed, not what somebody reported; only rates, faults and counts of what rules met
come from reports.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link, Site
from isthmus.engine import state
from isthmus.engine.lines import committed_of
from isthmus.engine.plan import discover
from isthmus.engine.report import PlanReport, Reports
from isthmus.engine.state import Claim, Control, Progress
from isthmus.engine.steer import read_control
from isthmus.errors import ConnectionFailed, IsthmusError, UnknownLink
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.loop import Loop
from isthmus.kafka.offsets import LATEST, Partition, list_offsets
from isthmus.kafka.read import read_to_end

# A slot that has not reported for this long is not running.
SILENT_SECONDS = 15.0


@dataclass(slots=True)
class PartitionState:
    topic: str
    partition: int
    target: str
    position: int | None
    end: int | None
    lag: int | None
    bytes_per_second: float = 0.0
    records_per_second: float = 0.0
    fault: str = ""
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class LinkState:
    link: str
    source: str
    target: str
    state: str
    lease: int = 0
    host: str = ""
    rate_limit: int | None = None
    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    lag: int = 0
    partitions: list[PartitionState] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    control: Control = field(default_factory=Control)
    slots: dict[int, float] = field(default_factory=dict)
    hands: list[dict[Partition, float]] = field(default_factory=list)
    made: PlanReport | None = None
    # what the rule schema_ids met in keys and values: as the tasks last reported, each under its newest lease; and in this
    # run, as far as this observer has watched it
    schema_ids: dict[str, int] = field(default_factory=dict)
    schema_ids_watched: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> list[PartitionState]:
        return [p for p in self.partitions if p.fault]

    def to_json(self) -> dict[str, Any]:
        return {
            "link": self.link,
            "from": self.source,
            "to": self.target,
            "state": self.state,
            "lease": self.lease,
            "host": self.host,
            "rate_limit": self.rate_limit,
            "lag": self.lag,
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
            "schema_ids": self.schema_ids,
            "trouble": self.trouble,
            "partitions": [p.to_json() for p in self.partitions],
        }


class Observer:
    """Reads a link's state, again and again over the same connections."""

    def __init__(self, link: Link, source: Site, target: Site) -> None:
        self._link = link
        self._loop = Loop()
        self.source = Cluster(source, self._loop, f"isthmus-{link.name}-status")
        self.target = Cluster(target, self._loop, f"isthmus-{link.name}-status")
        self._group = state.group(link.name)
        self._map, self._status = (state.map_topic(link.name), 0), (state.status_topic(link.name), 0)
        self._reports = Reports()
        self._reports_end: int | None = None
        self._before: dict[Partition, int] = {}
        self._at = 0.0

    def connect(self, timeout: float = 30.0) -> Observer:
        self._loop.run(self.source.connect, timeout)
        self._loop.run(self.target.connect, timeout)
        return self

    def reach(self, timeout: float) -> list[ConnectionFailed]:
        """Connect to what answers, and say what does not; what there is can be looked at all the same."""
        away = []
        for cluster in (self.source, self.target):
            try:
                self._loop.run(cluster.connect, timeout)
            except ConnectionFailed as error:
                away.append(error)
        return away

    def close(self) -> None:
        self.source.close()
        self.target.close()
        self._loop.close()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self) -> LinkState:
        """The state now; a site that does not answer is trouble in it, not an exception."""
        return self._loop.run(self._look)  # type: ignore[no-any-return]

    def control(self) -> Control:
        return self._loop.run(self._read_control)  # type: ignore[no-any-return]

    async def _read_control(self) -> Control:
        try:
            return await read_control(self.target, self._link.name)
        except UnknownLink:
            return Control()

    async def _look(self) -> LinkState:
        link = self._link
        result = LinkState(link.name, link.source, link.target, "never ran")
        committed = {}
        try:
            committed = await committed_of(self.target, self._link, stable=False, complete=False)
            claim = Claim.read(committed.get(self._map))
            if claim is not None:
                try:
                    pairs, self._reports_end = await read_to_end(self.target, self._status, self._reports_end, 10)
                except kerrors.OffsetOutOfRangeError:
                    pairs, self._reports_end = await read_to_end(self.target, self._status, None, 10)
                self._reports.take(pairs)
            self._describe(result, claim, Control.read(committed.get(self._status)))
            if claim is not None and result.state != "running" and not self._at:
                # Nobody looks after a link that is off: single partitions may have been forgotten.
                committed = await committed_of(self.target, self._link, stable=False)
        except (kerrors.KafkaError, OSError) as error:
            result.trouble.append(self.target.explain(error, "reading the link's state").message)
        except IsthmusError as error:
            result.trouble.append(error.message)
        await self._partitions(result, committed)
        return result

    def _describe(self, result: LinkState, claim: Claim | None, control: Control) -> None:
        result.control = control
        result.rate_limit = control.rate_limit if control.rate_overridden else self._link.rate_limit
        if control.held:
            result.state = "held"
            result.trouble.append(f"held: {control.held}")
        elif control.resting:
            result.state = "paused"
            if control.reset:
                words = f"a reset is under way, or was killed: give it again, or `isthmus resume {self._link.name}`"
                result.trouble.append(words)
        if claim is None:
            return
        result.lease, result.host = claim.number, claim.host
        if self._reports.plan is not None and self._reports.plan.run == claim.run:
            result.made = self._reports.plan
        for report in self._reports.slots.values():
            for met, count in report.schema_ids.items() if report.run == claim.run else ():
                result.schema_ids[met] = result.schema_ids.get(met, 0) + count
        result.schema_ids_watched = dict(self._reports.schema_ids.get(claim.run, {}))
        now = time.time()
        current = [r for r in self._reports.slots.values() if r.run == claim.run and r.lease == claim.number]
        result.slots = {r.slot: r.at for r in current}
        # Between two leases the newest one has no reports yet; those of the one before tell that the run lives.
        alive = [r for r in self._reports.slots.values() if r.run == claim.run and now - r.at < SILENT_SECONDS]
        if not control.resting:
            result.state = "running" if alive and control.stop != claim.run else "stopped"
        if alive:
            result.records_per_second = sum(r.records_per_second for r in alive)
            result.bytes_per_second = sum(r.bytes_per_second for r in alive)
            result.trouble += sorted({r.trouble for r in alive if r.trouble})
            result.hands = [r.by_partition() for r in alive]

    async def _partitions(self, result: LinkState, committed: dict[Partition, Any]) -> None:
        ends: dict[Partition, int | type[Exception]] = {}
        targets: dict[str, str] = {}
        try:
            topics = await discover(self.source, self._link)
            result.topics = {n: (t.source.id.hex, len(t.source.partitions)) for n, t in topics.items()}
            targets = {name: t.target for name, t in topics.items()}
            wanted = {(name, p): LATEST for name, t in topics.items() for p in t.source.partitions}
            ends = await list_offsets(self.source, wanted, timeout=10)
        except (kerrors.KafkaError, OSError) as error:
            result.trouble.append(self.source.explain(error, "reading log ends").message)
        except IsthmusError as error:
            result.trouble.append(error.message)
        positions: dict[Partition, tuple[int, str]] = {}
        for (target, partition), value in committed.items():
            progress = Progress.read(value)
            if progress is None:
                continue
            key = (progress.source_topic, partition)
            if targets.get(key[0], target) == target or key not in positions:
                positions[key] = (progress.offset, target)
        traffic = self._reports.traffic() if result.state == "running" else {}
        now = time.monotonic()
        seconds = now - self._at
        known = {*ends, *positions, *self._reports.faults}
        for key in sorted(key for key in known if self._link.topics.matches(key[0])):
            position, target = positions.get(key, (None, targets.get(key[0], "")))
            end = ends.get(key)
            end_offset = end if isinstance(end, int) else None
            lag = max(0, end_offset - position) if end_offset is not None and position is not None else None
            fault = self._reports.faults.get(key)
            rate = 0.0
            if position is not None and key in self._before and self._at:
                rate = max(0, position - self._before[key]) / seconds
            result.partitions.append(
                PartitionState(
                    key[0],
                    key[1],
                    target or "",
                    position,
                    end_offset,
                    lag,
                    traffic.get(key, 0.0),
                    rate,
                    fault.error if fault else "",
                    fault.message if fault else "",
                )
            )
            result.lag += lag if lag is not None else end_offset or 0
        self._before = {key: position for key, (position, _) in positions.items()}
        self._at = now
