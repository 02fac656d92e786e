"""The task: reads the ranges of some units on both sides, reduces records to digests, and has each unit judged.

Invariants:
- what is read is bounded by units: some of them are open at a time, together at most ``OPEN_STEPS`` offsets, each of some fifty bytes;
- a log that loses its beginning while it is read (retention) is read from its new start, and the unit knows of it;
- a unit that cannot be read to its end (a corrupt batch, a rule that fails) is a fault beside the others, never a wrong judgement.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Link, Site
from isthmus.config.origin import ORIGIN_HEADER
from isthmus.errors import CorruptBatch, PartitionFault, RuleFailed, UnknownSchemaIds
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched, Fetcher, FetchProblem
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.offsets import EARLIEST, Partition, list_offsets
from isthmus.records import read as batches
from isthmus.records.model import Longs, Records, read_only
from isthmus.recovery.verify_compare import Expectations, Judgement, Rows, judge
from isthmus.recovery.verify_digest import SEEDED, SOURCE, TARGET, Digested, Digester, identity_of, joined
from isthmus.recovery.verify_units import Unit
from isthmus.rules import Identities, Rule, compile_rules
from isthmus.rules.offset_header import OffsetHeader
from isthmus.rules.origin import OriginHeader
from isthmus.rules.schema_ids import SchemaIds

BUFFER_BYTES = 24 << 20
#: What is read is there already: a broker that has nothing more of some partitions must not keep the next ones waiting.
WAIT_MS = 5
#: Units of different partitions that are open at a time, and the offsets of all of them.
OPEN_UNITS, OPEN_STEPS = 64, 2_000_000
STUCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Errand:
    """What every task of a comparison needs to know. It holds secrets: it travels in the task's closure."""

    link: Link
    source: Site
    target: Site
    identities: Identities
    schema_ids: dict[int, int]


@dataclass(slots=True)
class Outcome:
    """What became of one unit."""

    number: int
    """Which pair."""
    judgement: Judgement = field(default_factory=Judgement)
    source_records: int = 0
    target_records: int = 0
    bytes: int = 0
    fault: PartitionFault | None = None


def rules_of(errand: Errand) -> tuple[Rule, ...]:
    """The rules that decide what a copy looks like, but for those that only append headers: these are judged apart."""
    rules = tuple(rule for rule in compile_rules(errand.link, errand.identities) if rule.touches_records)
    for rule in rules:
        if isinstance(rule, SchemaIds):
            rule.table.learn(errand.schema_ids)
    return tuple(rule for rule in rules if not isinstance(rule, (OriginHeader, OffsetHeader)))


def expectations(errand: Errand) -> Expectations:
    """What the link adds to records, and under which names sites are known."""
    link, ids = errand.link, errand.identities
    return Expectations(
        link.headers.offset is not None,
        link.origin is not None,
        tuple(identity_of(name) for name in (link.source, *ids.source)),
        tuple(identity_of(name) for name in (link.target, *ids.target)),
        link.loop is not None,
    )


def digester_of(link: Link) -> Digester:
    """Knows the names of the headers that links add; the usual one for origins, where this link adds none."""
    return Digester(link.headers.offset or "", link.origin.header if link.origin is not None else ORIGIN_HEADER)


def apply_rules(rules: Iterable[Rule], records: Records) -> Records:
    """What rules make of records. Raises ``PartitionFault``."""
    for rule in rules:
        try:
            records = rule.apply(records)
        except UnknownSchemaIds as unknown:
            if not isinstance(rule, SchemaIds) or rule.unknown == "stop":
                raise
            rule.table.learn(dict.fromkeys(unknown.ids))  # nowhere to be had: the rule says what becomes of them
            records = rule.apply(records)
        except PartitionFault:
            raise
        except Exception as error:
            raise RuleFailed(
                f"{records.topic}[{records.partition}]: rule {rule!r} failed: {type(error).__name__}: {error}",
                records.topic,
                records.partition,
            ) from error
    return records


class Side:
    """One side of all units of a task: fetches ranges, and reads records out of what was fetched."""

    def __init__(
        self, cluster: Cluster, topics: Iterable[str], signal: Signal, link: Link, skip_corrupt: bool = False
    ) -> None:
        self.cluster = cluster
        self._leaders = Leaders(cluster, topics)
        self.fetcher = Fetcher(cluster, self._leaders, signal, BUFFER_BYTES, WAIT_MS)
        self._reader = batches.Reader(skip_corrupt, link.max_inflated)

    async def start(self) -> None:
        await self._leaders.refresh_patiently(STUCK_SECONDS)

    def groups(self, piece: Fetched) -> Iterator[batches.Group]:
        topic, partition = piece.partition
        data = read_only(np.frombuffer(piece.data, np.uint8))
        yield from self._reader.groups(batches.Fetched(topic, partition, piece.position, data, piece.aborted))


@dataclass(slots=True)
class _Half:
    """One side of an open unit: what was read of it."""

    partition: Partition
    position: int
    end: int
    parts: list[Digested] = field(default_factory=list)
    kept: list[Rows] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)
    bytes: int = 0

    @property
    def done(self) -> bool:
        return self.position >= self.end


@dataclass(slots=True)
class _Open:
    unit: Unit
    here: _Half
    there: _Half
    fault: PartitionFault | None = None


class Comparison:
    """Compares units, in one process."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._rules = rules_of(errand)
        self._digester = digester_of(errand.link)
        self._expected = expectations(errand)

    def run(self, units: list[Unit]) -> list[Outcome]:
        """Read and judge; the outcomes come in no order."""
        loop = Loop()
        purpose = f"isthmus-{self._errand.link.name}-verify"
        clusters = [Cluster(site, loop, purpose) for site in (self._errand.source, self._errand.target)]
        try:
            return loop.run(self._run, loop, clusters, units)  # type: ignore[no-any-return]
        finally:
            for cluster in clusters:
                cluster.close()
            loop.close()

    async def _run(self, loop: Loop, clusters: list[Cluster], units: list[Unit]) -> list[Outcome]:
        signal = Signal(loop)
        skip = self._errand.link.on_corrupt == "skip"
        source = Side(clusters[0], {u.pair.topic for u in units}, signal, self._errand.link, skip)
        target = Side(clusters[1], {u.pair.target_topic for u in units}, signal, self._errand.link)
        for side in (source, target):
            await side.cluster.connect()
            try:
                await side.start()
            except (kerrors.KafkaError, OSError) as error:
                raise side.cluster.explain(error, "looking for leaders") from error
        waiting, working = list(reversed(units)), dict[Partition, _Open]()
        outcomes: list[Outcome] = []
        try:
            while waiting or working:
                self._open(waiting, working, source, target)
                took = await self._take(source, working, False)
                took |= await self._take(target, {one.there.partition: one for one in working.values()}, True)
                for one in list(working.values()):
                    if one.fault is not None or (one.here.done and one.there.done):
                        del working[one.here.partition]
                        source.fetcher.drop(one.here.partition)
                        target.fetcher.drop(one.there.partition)
                        outcomes.append(self._finish(one))
                        took = True
                if not took:
                    await signal.wait(0.5)
                    loop.check()
                    _check_stuck(working.values(), source, target)
        finally:
            source.fetcher.stop()
            target.fetcher.stop()
        return outcomes

    def _open(self, waiting: list[Unit], working: dict[Partition, _Open], source: Side, target: Side) -> None:
        steps = sum(one.unit.steps for one in working.values())
        while waiting and len(working) < OPEN_UNITS:
            unit, pair = waiting[-1], waiting[-1].pair
            if pair.source in working or (working and steps + unit.steps > OPEN_STEPS):
                return
            waiting.pop()
            steps += unit.steps
            here = _Half(pair.source, max(unit.first, pair.source_start), min(unit.end, pair.source_end))
            there = _Half(pair.target, max(unit.target_first, pair.target_start), min(unit.target_end, pair.target_end))
            working[pair.source] = _Open(unit, here, there)
            for side, half in ((source, here), (target, there)):
                if not half.done:
                    side.fetcher.seek(half.partition, half.position)

    async def _take(self, side: Side, working: dict[Partition, _Open], is_target: bool) -> bool:
        """Deal with one piece, if there is one."""
        piece = side.fetcher.take()
        if piece is None:
            return False
        one = working.get(piece.partition)
        if one is None:
            return True
        half = one.there if is_target else one.here
        half.heard = time.monotonic()
        if half.done or piece.position != half.position:
            side.fetcher.drop(piece.partition) if half.done else side.fetcher.seek(piece.partition, half.position)
            return True
        if isinstance(piece, FetchProblem):
            await self._mend(side, one, half, piece, is_target)
            return True
        half.bytes += len(piece.data)
        try:
            self._digest(side, one, half, piece, is_target)
        except PartitionFault as fault:
            one.fault = fault
        if half.done:
            side.fetcher.drop(piece.partition)
        return True

    async def _mend(self, side: Side, one: _Open, half: _Half, problem: FetchProblem, is_target: bool) -> None:
        """Retention took what we were about to read: go on where the log begins now."""
        topic, partition = half.partition
        if problem.error is kerrors.OffsetOutOfRangeError:
            try:
                start = (await list_offsets(side.cluster, {half.partition: EARLIEST}))[half.partition]
            except (kerrors.KafkaError, OSError) as error:
                raise side.cluster.explain(error, f"looking where {topic}[{partition}] begins") from error
            if isinstance(start, int) and start > half.position:
                pair = one.unit.pair
                pair = replace(pair, target_start=start) if is_target else replace(pair, source_start=start)
                one.unit = replace(one.unit, pair=pair)
                half.position = start
                if not half.done:
                    side.fetcher.seek(half.partition, start)
                return
        site = side.cluster.site.name
        words = side.cluster.explain(problem.error(f"{topic}[{partition}]"), f"reading {topic}[{partition}]").message
        one.fault = PartitionFault(f"{words}; at site {site}, from offset {half.position}", *one.unit.pair.source)

    def _digest(self, side: Side, one: _Open, half: _Half, piece: Fetched, is_target: bool) -> None:
        reached = half.position
        for group in side.groups(piece):
            if group.records is not None and len(group.records):
                within = int(np.searchsorted(group.records.offset, half.end))
                if within:
                    self._take_records(group.records, within, one.unit, half, is_target)
            reached = group.next_offset
            if reached >= half.end:
                break
            if group.fault is not None:
                raise group.fault
        if reached == half.position:
            raise CorruptBatch(
                f"{piece.partition[0]}[{piece.partition[1]}] at site {side.cluster.site.name}: no complete batch at offset "
                f"{half.position}",
                *one.unit.pair.source,
                half.position,
            )
        half.position = reached
        if reached != piece.end and not half.done:
            side.fetcher.seek(piece.partition, reached)

    def _take_records(self, records: Records, within: int, unit: Unit, half: _Half, is_target: bool) -> None:
        if is_target:
            digested = self._digester.digest(records, SEEDED if unit.seeded else TARGET)
            half.parts.append(_first(digested, within))
            return
        kept: Rows = np.ones(len(records), np.bool_)
        if unit.seeded or not self._rules:
            digested = self._digester.digest(records, SEEDED if unit.seeded else SOURCE)
        if self._rules:
            offsets = records.offset.copy()
            made = apply_rules(self._rules, records)
            if (
                unit.seeded
            ):  # what both sides got another way is compared as it is; the rules only say what need not be there
                kept = _kept(offsets, made)
            else:
                kept, digested = _spread(offsets, made, self._digester.digest(made, SOURCE))
        half.kept.append(kept[:within])
        half.parts.append(_first(digested, within))

    def _finish(self, one: _Open) -> Outcome:
        outcome = Outcome(one.unit.number, bytes=one.here.bytes + one.there.bytes, fault=one.fault)
        if one.fault is not None:
            return outcome
        here, there = joined(one.here.parts), joined(one.there.parts)
        kept: Rows = np.concatenate(one.here.kept) if one.here.kept else np.empty(0, np.bool_)
        outcome.source_records, outcome.target_records = len(here), len(there)
        outcome.judgement = judge(one.unit, here, kept, there, self._expected)
        return outcome


def _first(digested: Digested, rows: int) -> Digested:
    if rows == len(digested):
        return digested
    return Digested(
        digested.offset[:rows],
        digested.digest[:rows],
        digested.header[:rows],
        digested.origin[:rows],
        digested.identity[:rows],
    )


def _kept(offsets: Longs, made: Records) -> Rows:
    """Which of the records that rules were given they have left."""
    wanted: Rows = made.dropped == 0
    if len(made) == len(offsets):
        return wanted
    kept = np.zeros(len(offsets), np.bool_)
    kept[np.searchsorted(offsets, made.offset)] = wanted
    return kept


def _spread(offsets: Longs, made: Records, digested: Digested) -> tuple[Rows, Digested]:
    """What rules have made of records, with a row for each record that they were given."""
    kept = _kept(offsets, made)
    if len(made) == len(offsets):
        return kept, digested
    at = np.searchsorted(offsets, made.offset)
    spread = Digested(
        offsets,
        np.zeros(len(offsets), np.uint64),
        np.zeros(len(offsets), np.int64),
        *(np.zeros(len(offsets), np.uint64) for _ in range(2)),
    )
    for column in ("digest", "header", "origin", "identity"):
        getattr(spread, column)[at] = getattr(digested, column)
    return kept, spread


def _check_stuck(working: Iterable[_Open], source: Side, target: Side) -> None:
    """Give up on what should bring something and does not: trying again, elsewhere perhaps, is for Spark."""
    now = time.monotonic()
    for one in working:
        for side, half in ((source, one.here), (target, one.there)):
            if not half.done and now - half.heard > STUCK_SECONDS:
                topic, partition = half.partition
                stuck = kerrors.KafkaTimeoutError(f"{topic}[{partition}]")
                raise side.cluster.explain(stuck, f"reading {topic}[{partition}] from offset {half.position}")
