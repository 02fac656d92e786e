"""How a link stands right now, read from the two sites; needs no Spark and no running replicator.

Invariants:
- positions and lags are what is committed, not what somebody reported; only rates, faults and counts of what rules met come from
  reports;
- whether both topics are still those that were copied is judged here, by their ids, whatever was reported (incarnations.py);
- what could not be read is unknown, and is told as trouble: never as nothing.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link, Site
from isthmus.control.map_records import MapRecords
from isthmus.control.topics import Topic
from isthmus.engine import state
from isthmus.engine.incarnations import Faults, gone, judge, without_progress
from isthmus.engine.lines import committed_of
from isthmus.engine.offset_map import build_maps
from isthmus.engine.plan import discover
from isthmus.engine.report import FaultReport, PlanReport, Reports
from isthmus.engine.state import Claim, Control, Progress
from isthmus.engine.steer import read_control
from isthmus.engine.undecided import is_long, undecided
from isthmus.errors import ConnectionFailed, DestinationRefused, IsthmusError, PartitionFault, UnknownLink
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.loop import Loop
from isthmus.kafka.offsets import LATEST, Committed, Partition, list_offsets
from isthmus.kafka.read import read_to_end

# A slot that has not reported for this long is not running.
SILENT_SECONDS = 15.0
# How long the destination is asked for the link's state, before it is unknown.
STATE_SECONDS = 10.0
# How long log ends are asked for; where some stayed unknown the last time, only a moment.
ENDS_SECONDS, ENDS_AGAIN_SECONDS = 10.0, 1.0
# So many partitions are named where something is said of many.
NAMED = 5


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
    hidden: int = 0
    """Offsets behind an open transaction at the source, which nobody reads until it ends."""
    trouble: str = ""

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
    # the run that holds the newest lease, and how many partitions each of its slots has looked at under that lease
    run: str = ""
    looked: dict[int, int] = field(default_factory=dict)
    # whether topics could be compared with those that were copied
    judged: bool = True
    hands: list[dict[Partition, float]] = field(default_factory=list)
    made: PlanReport | None = None
    # what the rule schema_ids met in keys and values: as the tasks last reported, each under its newest lease; and in this
    # run, as far as this observer has watched it
    schema_ids: dict[str, int] = field(default_factory=dict)
    schema_ids_watched: dict[str, int] = field(default_factory=dict)
    discovered: float = 0.0
    """When the request was sent that told which topics there are; 0.0 if nobody answered."""

    @property
    def faults(self) -> list[PartitionState]:
        return [p for p in self.partitions if p.fault]

    @property
    def all_trouble(self) -> list[str]:
        """What troubles the link, and what troubles one of its partitions and is none of the link's doing."""
        return [*self.trouble, *(p.trouble for p in self.partitions if p.trouble)]

    @property
    def unknown(self) -> list[PartitionState]:
        """Partitions of which nobody tells where they end; those that stand still have said why."""
        return [p for p in self.partitions if p.end is None and not p.fault]

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
            "trouble": self.all_trouble,
            "partitions": [p.to_json() for p in self.partitions],
        }


class Observer:
    """Reads a link's state, again and again over the same connections. With ``run``, only faults that this run has met count: an
    earlier one's may be mended by now, which only trying again tells."""

    def __init__(self, link: Link, source: Site, target: Site, run: str | None = None) -> None:
        self._link, self._run = link, run
        self._loop = Loop()
        self.source = Cluster(source, self._loop, f"isthmus-{link.name}-status")
        self.target = Cluster(target, self._loop, f"isthmus-{link.name}-status")
        self._group = state.group(link.name)
        self._map, self._status = (state.map_topic(link.name), 0), (state.status_topic(link.name), 0)
        self._reports = Reports()
        self._reports_end: int | None = None
        self._away: dict[Cluster, IsthmusError] = {}
        self._map_records = MapRecords(link.name)
        self._ends_known = True
        self._before: dict[Partition, int] = {}
        self._at = 0.0

    def connect(self, timeout: float = 30.0) -> Observer:
        self._loop.run(self.source.connect, timeout)
        self._loop.run(self.target.connect, timeout)
        return self

    def reach(self, timeout: float, patience: float | None = None) -> list[IsthmusError]:
        """Connect to what answers, and say what does not; what there is can be looked at all the same. A site that is away is not asked
        by ``look`` until it was reached."""
        self._away = self._loop.run(self._reach, timeout, patience)
        return list(self._away.values())

    async def _reach(self, timeout: float, patience: float | None) -> dict[Cluster, IsthmusError]:
        asked = {
            cluster: self._loop.spawn(cluster.connect(timeout, patience))
            for cluster in (self.source, self.target)
            if not cluster.cluster_id
        }
        away: dict[Cluster, IsthmusError] = {}
        for cluster, answer in asked.items():
            try:
                await answer
            except ConnectionFailed as error:
                away[cluster] = error
        return away

    def _check_reached(self, cluster: Cluster) -> None:
        if cluster in self._away:
            raise self._away[cluster]

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
        result = LinkState(link.name, link.source, link.target, "unknown")
        committed: dict[Partition, Committed] | None = None
        try:
            self._check_reached(self.target)
            committed = await committed_of(self.target, self._link, stable=False, complete=False, timeout=STATE_SECONDS)
            claim = Claim.read(committed.get(self._map))
            if claim is not None:
                try:
                    pairs, self._reports_end = await read_to_end(self.target, self._status, self._reports_end, 10)
                except kerrors.OffsetOutOfRangeError:
                    pairs, self._reports_end = await read_to_end(self.target, self._status, None, 10)
                self._reports.take(pairs)
            result.state = "never ran"
            self._describe(result, claim, Control.read(committed.get(self._status)))
            if claim is not None and result.state != "running" and not self._at:
                # Nobody looks after a link that is off: single partitions may have been forgotten.
                committed = await committed_of(self.target, self._link, stable=False)
        except (kerrors.KafkaError, OSError) as error:
            result.trouble.append(self.target.explain(error, "reading the link's state").message)
        except IsthmusError as error:
            result.state = "unknown"
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
        result.lease, result.host, result.run = claim.number, claim.host, claim.run
        if self._reports.plan is not None and self._reports.plan.run == claim.run:
            result.made = self._reports.plan
        for report in self._reports.slots.values():
            for met, count in report.schema_ids.items() if report.run == claim.run else ():
                result.schema_ids[met] = result.schema_ids.get(met, 0) + count
        result.schema_ids_watched = dict(self._reports.schema_ids.get(claim.run, {}))
        now = time.time()
        current = [r for r in self._reports.slots.values() if r.run == claim.run and r.lease == claim.number]
        result.slots = {r.slot: r.at for r in current}
        result.looked = {r.slot: r.looked for r in current}
        # Between two leases the newest one has no reports yet; those of the one before tell that the run lives.
        alive = [r for r in self._reports.slots.values() if r.run == claim.run and now - r.at < SILENT_SECONDS]
        if not control.resting:
            result.state = "running" if alive and control.stop != claim.run else "stopped"
        if alive:
            result.records_per_second = sum(r.records_per_second for r in alive)
            result.bytes_per_second = sum(r.bytes_per_second for r in alive)
            result.trouble += sorted({r.trouble for r in alive if r.trouble})
            result.hands = [r.by_partition() for r in alive]

    async def _ends(self, result: LinkState, topics: dict[str, Topic]) -> dict[Partition, int]:
        """The log ends of all partitions; which of them stay unknown is trouble."""
        wanted = {(name, p): LATEST for name, t in topics.items() for p in t.source.partitions}
        seconds = ENDS_SECONDS if self._ends_known else ENDS_AGAIN_SECONDS
        if not self._ends_known:
            # A broker that was away when we connected is not known to us until somebody asks for it.
            with contextlib.suppress(kerrors.KafkaError, OSError):
                await self.source.refresh_brokers()
        answers = await list_offsets(self.source, wanted, timeout=seconds)
        missing = {key: why for key, why in answers.items() if not isinstance(why, int)}
        self._ends_known = not missing
        if missing:
            named = ", ".join(f"{topic}[{p}]" for topic, p in sorted(missing)[:NAMED])
            more = f" and {len(missing) - NAMED} more partitions" if len(missing) > NAMED else ""
            reasons = ", ".join(sorted({why.__name__.removesuffix("Error") for why in missing.values()}))
            result.trouble.append(
                f"site {self._link.source} does not tell where {named}{more} end ({reasons}): how much is waiting there is not "
                "known. Bring back the brokers that hold them"
            )
        return {key: end for key, end in answers.items() if isinstance(end, int)}

    async def _incarnations(
        self, result: LinkState, topics: dict[str, Topic], committed: dict[Partition, Committed]
    ) -> Faults:
        """Partitions whose topics are gone, or are others than those that were copied."""
        try:
            return await self._judged(topics, committed)
        except (kerrors.KafkaError, OSError) as error:
            words = self.target.explain(error, "comparing topics with those that were copied").message
            result.trouble.append(words)
        except IsthmusError as error:
            result.trouble.append(error.message)
        result.judged = False
        return {}

    async def _judged(self, found: dict[str, Topic], committed: dict[Partition, Committed]) -> Faults:
        topics = {name: topic for name, topic in found.items() if not topic.problem}
        maps = {}
        if self._map in committed and without_progress(topics, committed):
            maps = build_maps(await self._map_records.look(self.target))
        there = await self.target.metadata(sorted({t.target for t in topics.values()})) if topics else None
        faults = judge(self._link, topics, there.topics if there else {}, committed, maps)
        return {**faults, **await gone(self.source, self._link, found, committed)}

    async def _partitions(self, result: LinkState, known_progress: dict[Partition, Committed] | None) -> None:
        ends: dict[Partition, int] = {}
        topics: dict[str, Topic] = {}
        judged: Faults = {}
        committed = known_progress or {}
        try:
            self._check_reached(self.source)
            asked = time.time()
            topics = await discover(self.source, self._link)
            result.discovered = asked
            result.topics = {n: (t.source.id.hex, len(t.source.partitions)) for n, t in topics.items()}
            ends = await self._ends(result, topics)
        except (kerrors.KafkaError, OSError) as error:
            result.trouble.append(self.source.explain(error, "reading log ends").message)
        except IsthmusError as error:
            result.trouble.append(error.message)
        else:
            judged = await self._incarnations(result, topics, committed) if known_progress is not None else {}
            # A name that cannot be is seen here, too, before any run has tried it.
            for name, topic in topics.items():
                for p in topic.source.partitions if topic.problem else ():
                    judged[name, p] = DestinationRefused(topic.problem, name, p)
        targets = {name: t.target for name, t in topics.items()}
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
        reported = {
            key: fault for key, fault in self._reports.faults.items() if self._run is None or fault.run == self._run
        }
        there = {(name, p) for name, t in topics.items() for p in t.source.partitions}
        known = {*there, *positions, *reported, *judged}
        for key in sorted(key for key in known if self._link.topics.matches(key[0])):
            position, target = positions.get(key, (None, targets.get(key[0], "")))
            end_offset = ends.get(key)
            lag = max(0, end_offset - position) if end_offset is not None and position is not None else None
            fault = _newer(reported.get(key), judged.get(key))
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
                    *fault,
                )
            )
            result.lag += lag if lag is not None else end_offset or 0
        await self._undecided(result)
        self._before = {key: position for key, (position, _) in positions.items()}
        self._at = now

    async def _undecided(self, result: LinkState) -> None:
        """Tell of what stands behind transactions that have been open for long."""
        ends = {(p.topic, p.partition): p.end for p in result.partitions if p.end is not None}
        try:
            found = await undecided(self.source, ends) if ends else {}
        except (kerrors.KafkaError, OSError) as error:
            result.trouble.append(self.source.explain(error, "looking for open transactions").message)
            return
        for p in result.partitions:
            one = found.get((p.topic, p.partition))
            if one is not None:
                p.hidden = one.hidden
                if is_long(one):
                    p.trouble = one.words((p.topic, p.partition), self.source)


def _newer(reported: FaultReport | None, judged: PartitionFault | None) -> tuple[str, str]:
    """The name and the words of a fault: what is judged now is newer than what was reported, unless it is the same."""
    if judged is not None and (reported is None or reported.error != type(judged).__name__):
        return type(judged).__name__, judged.message
    return (reported.error, reported.message) if reported is not None else ("", "")
