"""The copy task: fetch, apply the rules, produce, commit; until its lease ends.

States of a task, and what is committed when:

    establish ──> copying ──> committing ──┐
        ^  ^         │            │        │   the transaction holds records, map and progress
        │  └─────────┴── trouble ─┘        │
        │            (abort: nothing of it is visible; positions are read anew)
        └──────────── next transaction <───┘ ──> end of lease (only between transactions)

Invariants:
- *establish* follows state.py: fence, then look at the claim, then read progress;
- a transaction holds, for each partition it touches, records of one gapless range of source offsets that
  begins at the committed progress, their runs in the map, and the progress after them;
- a partition that cannot go on is left out with a fault; its progress up to the fault is committed like any
  other, and the other partitions never wait for it;
- being fenced ends the task at once. Only a new attempt, which looks at the claim, may start again; it is asked for
  (``Fenced`` is raised) when the claim still names this lease.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import kafka.errors as kerrors
import numpy as np

from isthmus.engine import state
from isthmus.engine.incarnations import (
    destination_missing,
    destination_recreated,
    source_deleted,
    source_recreated,
    source_unreadable,
)
from isthmus.engine.lease import Assignment, Lease, LeaseResult
from isthmus.engine.limit import ByteBudget
from isthmus.engine.lines import lines
from isthmus.engine.offset_map import ChunkWriter, Runs
from isthmus.engine.orphans import open_transactions
from isthmus.engine.report import FaultReport, Seen, Sight, SlotReport
from isthmus.engine.schema_table import SchemaTable, table_of
from isthmus.engine.state import Progress
from isthmus.engine.steer import steer
from isthmus.errors import (
    AuthorisationFailed,
    ClusterChanged,
    CorruptBatch,
    DataError,
    DestinationMissing,
    DestinationRefused,
    IsthmusError,
    PartitionFault,
    RecordTooLarge,
    RetentionGap,
    SourceRecreated,
    SourceTruncated,
    TakenOver,
    UnknownSchemaIds,
)
from isthmus.kafka.cluster import STATE_PREFIX, Cluster, whose
from isthmus.kafka.fetch import Fetched, Fetcher, FetchProblem
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.offsets import (
    EARLIEST,
    LATEST,
    Committed,
    Partition,
    commit_group_offsets,
    group_offsets,
    list_offsets,
)
from isthmus.kafka.produce import Fenced, Interrupted, Producer, Refused, Sent, small_batches
from isthmus.records import Outgoing, Transcoder
from isthmus.rules import compile_rules

# A transaction under load: large enough that its fixed cost vanishes, small enough that losing one is cheap.
TRANSACTION_BYTES = 64 << 20
# The first transaction of a lease is this long at most, and each may be twice as long as the one before, up to the link's
# commit interval: what was waiting is visible at once, and a long backlog soon pays for few commits.
FIRST_SECONDS = 0.05
# A partition's runs of one transaction become records of the map, a byte or so each: bounds what they cost.
TRANSACTION_RUNS = 200_000
# A transaction that its owner forgot is aborted by the broker after this long; until then it hides what comes after
# it from readers of committed records. Long enough for a slow WAN and a busy broker.
TRANSACTION_SECONDS = 60.0
# What may wait between fetch and rewrite.
BUFFER_BYTES = 32 << 20
# One step rewrites this much at most before it lets the loop move bytes again.
STEP_BYTES = 4 << 20
CONTROL_SECONDS = 1.0
REPORT_SECONDS = 2.0
# Ends of partitions that are not being fetched are asked for as often as reports are made; seldom enough that asking takes one part in so many.
LOOK_REST = 20
# As long as partitions are not looked at yet, they are counted this often.
COUNT_SECONDS = 0.1
# A report is one record, and must stay one that any topic takes, with names as long as names can be.
REPORTED_PARTITIONS = 2000
# Offsets that stay undecided for so long were forgotten; a broker that stood still for a while is given the time to go on.
UNDECIDED_SECONDS = 20.0
# Half-life-like horizon of the smoothed rates that partitions are dealt out by.
SMOOTH_SECONDS = 30.0


@dataclass(slots=True)
class _Copying:
    """One partition under this lease."""

    assignment: Assignment
    position: int = -1
    chunk: ChunkWriter | None = None
    fault: PartitionFault | None = None
    # of the open transaction:
    start: int = -1
    next_offset: int = -1
    # whether the registries are being asked for schema ids that it met:
    asking: bool = False
    # its end as the source told it apart from fetching, when the request was sent, and whether it was that of another incarnation:
    end: int = -1
    asked: float = 0.0
    anew: bool = False
    # since the last report, and smoothed:
    records: int = 0
    bytes: int = 0
    rate: float = 0.0


@dataclass(slots=True)
class _Totals:
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    dropped: int = 0
    skipped: int = 0
    retries: int = 0
    started: float = field(default_factory=time.monotonic)


class Copier:
    """Carries out one lease. ``should_stop`` lets the host (Spark, a test) end it early, at a commit."""

    def __init__(self, lease: Lease, should_stop: Callable[[], bool] = lambda: False) -> None:
        self.lease = lease
        self._link = lease.link
        self._should_stop = should_stop
        self._exactly_once = lease.link.delivery == "exactly-once"
        rules = compile_rules(lease.link, lease.identities)
        self._transcoder = Transcoder(rules, lease.link.compression, lease.link.on_corrupt, lease.link.max_inflated)
        self._loop = Loop()
        self._signal = Signal(self._loop)
        self._source = Cluster(lease.source, self._loop, f"isthmus-{lease.link.name}-{lease.slot}")
        self._target = Cluster(lease.target, self._loop, f"isthmus-{lease.link.name}-{lease.slot}")
        table = table_of(rules)
        self._schemas = SchemaTable(lease, self._target, table) if table is not None else None
        self._by_source = {a.source: _Copying(a) for a in lease.assignments}
        self._by_target = {a.target: self._by_source[a.source] for a in lease.assignments}
        self._map = (state.map_topic(lease.link.name), 0)
        self._status = (state.status_topic(lease.link.name), 0)
        self._group = state.group(lease.link.name)
        self._control = state.Control()
        self._deal: int | None = None
        self._ending = False
        self._taken_over: Exception | None = None
        self._budget = ByteBudget(None)
        self._set_limit(lease.link.rate_limit)
        self._totals = _Totals()
        self._reported = (time.monotonic(), 0, 0)
        self._next_control = 0.0
        self._next_report = 0.0
        self._next_look = 0.0
        self._looking = False
        self._fetch_failures = 0
        self._polling_control = False
        self._longest = FIRST_SECONDS
        self._touched: dict[Partition, _Copying] = {}
        self._runs = 0
        self._deadline = time.monotonic() + lease.seconds
        self._trouble = ""
        self._untold: list[tuple[bytes, bytes | None]] = []
        self._cleared: set[Partition] = set()
        self._looked, self._next_count = 0, 0.0

    # -- the lease ----------------------------------------------------------------------------------------

    def run(self) -> LeaseResult:
        """Copy until the lease ends. Raises TakenOver when another lease or replicator has the slot, Fenced when
        nobody has: then another attempt should be made."""
        try:
            self._loop.run(self._run)
        finally:
            with contextlib.suppress(Exception):
                self._source.close()
                self._target.close()
            self._loop.close()
        totals = self._totals
        return LeaseResult(
            self.lease.slot,
            totals.records,
            totals.bytes,
            totals.transactions,
            time.monotonic() - totals.started,
            {p: c.fault.message for p, c in self._by_source.items() if c.fault is not None},
        )

    async def _run(self) -> None:
        await self._connect()
        self._source_leaders = Leaders(self._source, {a.topic for a in self.lease.assignments})
        self._target_leaders = Leaders(
            self._target, {a.target_topic for a in self.lease.assignments} | {self._map[0], self._status[0]}
        )
        for assignment in self.lease.assignments:
            # Pin the incarnations that the planner saw: a topic created again since then is another topic.
            self._source_leaders.ids[assignment.topic] = assignment.source_id
            self._target_leaders.ids[assignment.target_topic] = assignment.target_id
        ids = state.transactional_ids(self._link.name, self.lease.slot) if self._exactly_once else ()
        timeout = max(TRANSACTION_SECONDS, 2 * self._link.commit_interval + TRANSACTION_SECONDS / 2)
        self._producer = Producer(self._target, self._target_leaders, self._signal, ids, timeout)
        self._fetcher = Fetcher(self._source, self._source_leaders, self._signal, BUFFER_BYTES)
        try:
            await self._source_leaders.refresh_patiently(60)
            if self._schemas is not None:
                await self._schemas.load()
            established = False
            failures = 0
            while not self._over():
                try:
                    if not established:
                        await self._establish()
                        established = True
                    copied = self._totals.transactions
                    await self._transaction()
                    if self._totals.transactions > copied:
                        failures = 0
                except Refused as refusal:
                    self._refuse(refusal)
                    established = False
                except (Interrupted, kerrors.RetriableError, kerrors.UnknownBrokerIdError, OSError) as trouble:
                    # Nothing of the transaction is visible; begin again from what is committed.
                    self._trouble = str(trouble)
                    self._totals.retries += 1
                    established = False
                    failures += 1
                    await self._loop.sleep(min(1.0, 0.02 * 1.6 ** min(failures, 12)))
                    with contextlib.suppress(kerrors.KafkaError, OSError):
                        await self._target_leaders.refresh()
                except kerrors.KafkaError as refusal:
                    raise whose(refusal, self._source, self._target).explain(
                        refusal, "writing to the destination"
                    ) from None
        except Fenced:
            # By whom? Whoever has taken the lease over stands in the claim. If that is still us, it was an older task
            # that looked too late, another attempt, or the broker after a long silence: our host may try again.
            with contextlib.suppress(kerrors.KafkaError, OSError):
                await self._look_at_claim(stable=False)
            if self._taken_over is None and not self._ending:
                raise
            raise TakenOver(
                f"link {self._link.name}: slot {self.lease.slot} was fenced: another task or replicator has taken it "
                "over; nothing was written after that"
            ) from None
        finally:
            self._fetcher.stop()
        if self._taken_over is not None:
            raise self._taken_over
        self._report(final=True)
        await self._loop.sleep(0)
        with contextlib.suppress(kerrors.KafkaError, OSError):
            await self._flush_reports()

    async def _connect(self) -> None:
        for cluster, known in ((self._source, self.lease.source_cluster), (self._target, self.lease.target_cluster)):
            await cluster.connect()
            if known and cluster.cluster_id and cluster.cluster_id != known:
                raise ClusterChanged(
                    f"site {cluster.site.name} was cluster {known} when this lease was dealt and is "
                    f"{cluster.cluster_id} now",
                    cluster.site.name,
                    known,
                    cluster.cluster_id,
                )

    def _over(self) -> bool:
        if self._taken_over is not None or self._ending:
            return True
        if time.monotonic() >= self._deadline or self._should_stop():
            self._ending = True
        return self._ending

    # -- establish: fence, look, read ---------------------------------------------------------------------

    async def _establish(self) -> None:
        # What was on its way counts no more, whatever is found here: committing its progress would pass over its records.
        self._touched.clear()
        self._runs = 0
        # Looking before as well spares the new owner of a lost link the disturbance of being fenced by us.
        await self._look_at_claim(stable=False)
        if self._taken_over is not None or self._ending:
            return
        await self._producer.begin()
        await self._look_at_claim(stable=False)
        if self._taken_over is not None or self._ending:
            return
        # A topic that was gone under the last lease already is not waited for.
        await self._target_leaders.refresh_until_known({a.target_topic for a in self.lease.assignments if a.faulted})
        committed = await self._committed()
        if committed is None:
            return
        gone = {*self._target_leaders.missing, *self._target_leaders.recreated, *self._target_leaders.refused}
        if any(
            target[0] not in gone and target not in committed and c.fault is None
            for target, c in self._by_target.items()
        ):
            # Brokers have forgotten progress that this lease was dealt with. Only a planner, whom nobody disturbs, can tell from the map what it was.
            await steer(self._target, self._link, deal_again=True)
            self._ending = True
            return
        for target, copying in self._by_target.items():
            if copying.chunk is not None:
                copying.chunk.forget()
            if copying.fault is not None:
                continue
            try:
                copying.position = self._position(copying.assignment, committed.get(target))
            except PartitionFault as fault:
                self._fault(copying, fault)
                continue
            a = copying.assignment
            copying.chunk = ChunkWriter(a.topic, a.partition, a.source_id, a.target_id)
            copying.start, copying.next_offset = -1, copying.position
            self._fetcher.seek(a.source, copying.position)

    async def _committed(self) -> dict[Partition, Committed] | None:
        """Progress, when nothing of ours is undecided any more. Where brokers have forgotten to end a transaction of ours, None: then the lease
        ends, and the next one is dealt by a planner that puts it right for all slots."""
        places = list(self._by_target)
        if not self._exactly_once:
            return await group_offsets(self._target, self._group, places, stable=False)
        everywhere = [*places, self._map]
        if not await open_transactions(self._target, self._target_leaders, everywhere, self._producer.epochs):
            try:
                return await group_offsets(self._target, self._group, places, timeout=UNDECIDED_SECONDS)
            except kerrors.UnstableOffsetCommitError:
                pass
        self._trouble = "the destination has forgotten to end a transaction of this link; dealing anew"
        await steer(self._target, self._link, deal_again=True)
        self._ending = True
        return None

    def _position(self, a: Assignment, committed: Committed | None) -> int:
        """Where to go on, or why not."""
        reset = f"isthmus reset {self._link.name} {a.topic}:{a.partition}"
        if a.target_topic in self._target_leaders.missing:
            raise destination_missing(self._link.name, a.topic, a.partition, a.target_topic)
        if a.target_topic in self._target_leaders.recreated:
            raise destination_recreated(self._link.name, a.topic, a.partition, a.target_topic)
        if a.target_topic in self._target_leaders.refused:
            raise DestinationRefused(
                f"not authorised for destination topic {a.target_topic}: grant ALLOW DESCRIBE and WRITE on it",
                a.topic,
                a.partition,
            )
        progress = Progress.read(committed) if committed else None
        if progress is None:
            raise DestinationMissing(
                f"the destination has no progress for {a.topic}[{a.partition}] although this lease was dealt with it; "
                f"was the group {self._group} deleted? `{reset} --to earliest|latest|OFFSET` sets it",
                a.topic,
                a.partition,
            )
        if progress.source_id != a.source_id:
            raise source_recreated(self._link.name, a.topic, a.partition, a.target_topic, progress.offset)
        if progress.target_id != a.target_id:
            raise destination_recreated(self._link.name, a.topic, a.partition, a.target_topic, progress.offset)
        return progress.offset

    async def _look_at_claim(self, stable: bool) -> None:
        committed = await group_offsets(self._target, self._group, [self._map, self._status], stable=stable)
        claim, control = await lines(self._target, self._link.name, committed)
        if claim is None:
            self._taken_over = TakenOver(f"link {self._link.name}: its state at the destination was deleted")
        elif claim.run != self.lease.run:
            self._taken_over = TakenOver(
                f"link {self._link.name}: another replicator (on {claim.host or 'an unknown host'}) runs this link now; "
                "this one stops"
            )
        elif claim.number != self.lease.number:
            self._ending = True
        self._apply(control)
        ours = claim is not None and (claim.run, claim.number) == (self.lease.run, self.lease.number)
        if ours and (self._map not in committed or self._status not in committed):
            # Brokers have forgotten what they are asked every second. Dealing anew writes all of it again.
            await steer(self._target, self._link, deal_again=self._map not in committed)

    def _apply(self, control: state.Control) -> None:
        if self._deal is None:
            self._deal = control.deal
        if control.deal != self._deal or control.stop == self.lease.run:
            self._ending = True
        if control.rate_overridden:
            self._set_limit(control.rate_limit)
        else:
            self._set_limit(self._link.rate_limit)
        self._control = control
        if self._ending or self._taken_over is not None:
            self._signal.set()

    def _set_limit(self, limit: int | None) -> None:
        self._budget.change(limit / self.lease.slots if limit else None)

    # -- one transaction ----------------------------------------------------------------------------------

    async def _transaction(self) -> None:
        """Copy what is there and commit it; returns after the commit, or when there was nothing to do."""
        opened = 0.0
        size = 0
        while True:
            await self._housekeeping()
            self._loop.check()
            self._producer.check()
            if self._taken_over is not None:
                raise Interrupted("taken over")
            stopping = self._over()
            moved = 0 if stopping else self._step()
            if moved:
                opened = opened or time.monotonic()
                size += moved
                while self._producer.full:
                    await self._signal.wait(1.0)
                    self._producer.check()
                full = size >= TRANSACTION_BYTES or self._runs >= TRANSACTION_RUNS
                if not full and time.monotonic() - opened < min(self._longest, self._link.commit_interval):
                    # Let the loop send what was queued and read what has come.
                    await self._loop.sleep(0)
                    continue
            elif not self._touched:
                if stopping:
                    return
                await self._signal.wait(self._idle_seconds())
                if self._touched or self._fetcher.waiting:
                    continue
                return
            elif not stopping and not self._caught_up() and time.monotonic() - opened < self._link.commit_interval:
                await self._signal.wait(0.05)
                continue
            await self._commit()
            self._longest = min(self._link.commit_interval, self._longest * 2)
            return

    def _idle_seconds(self) -> float:
        now = time.monotonic()
        # A look at the claim that is under way may take as long as the destination does not answer.
        due = [self._next_report, self._deadline] + ([] if self._polling_control else [self._next_control])
        due += [] if self._looking else [self._next_look]
        if self._looked < len(self._by_source):
            due.append(self._next_count)
        until = max(0.0, min(due) - now)
        debt = self._budget.debt_seconds()
        return min(until, debt) if debt else until

    def _caught_up(self) -> bool:
        """Nothing more to come right now: what is open should be committed at once."""
        if self._fetcher.waiting:
            return False
        if self._fetcher.held:
            return True
        for source in self._touched:
            cursor = self._fetcher.cursor(source)
            if cursor.active and cursor.position < cursor.last_stable:
                return False
        return True

    def _step(self) -> int:
        """Rewrite some of what was fetched and queue it for the destination; bytes taken."""
        if self._control.resting or self._budget.debt_seconds() > 0:
            self._fetcher.hold(True)
            return 0
        self._fetcher.hold(False)
        taken = 0
        rounds: list[dict[Partition, Outgoing]] = []
        depth: dict[Partition, int] = {}
        most = min(STEP_BYTES, self._producer.window.bytes)
        while taken < most:
            piece = self._fetcher.take()
            if piece is None:
                break
            copying = self._by_source[piece.partition]
            if copying.fault is not None:
                continue
            if isinstance(piece, FetchProblem):
                self._loop.background(self._diagnose(copying, piece))
                continue
            taken += max(1, len(piece.data))
            self._rewrite(copying, piece, rounds, depth)
        for round_ in rounds:
            self._producer.produce(round_)
        self._budget.spend(taken)
        return taken

    def _rewrite(
        self, copying: _Copying, piece: Fetched, rounds: list[dict[Partition, Outgoing]], depth: dict[Partition, int]
    ) -> None:
        a = copying.assignment
        if copying.asking:
            self._fetcher.drop(a.source)
            return
        if piece.position != copying.next_offset:
            # Pieces must join. One that does not was fetched on the word of a damaged batch, and is fetched again.
            self._fetcher.seek(a.source, copying.next_offset)
            return
        copied = self._transcoder.feed(
            piece.data,
            topic=a.topic,
            partition=a.partition,
            position=copying.next_offset,
            aborted=piece.aborted,
            max_bytes=a.max_bytes,
        )
        level = depth.get(a.target, 0)
        for batch in copied.batches:
            self._runs += len(batch.runs)
            if level == len(rounds):
                rounds.append({})
            rounds[level][a.target] = batch
            level += 1
        depth[a.target] = level
        if copied.next_offset > copying.next_offset:
            if copying.start < 0:
                copying.start = copying.next_offset
            copying.next_offset = copied.next_offset
            self._touched[a.source] = copying
        copying.records += copied.records
        copying.bytes += len(piece.data)
        self._totals.dropped += copied.dropped
        self._totals.skipped += copied.skipped
        if isinstance(copied.fault, UnknownSchemaIds) and self._worth_asking(copied.fault):
            copying.asking = True
            self._fetcher.drop(a.source)
            self._loop.background(self._ask_for_schemas(copying, copied.fault))
        elif copied.fault is not None:
            self._fault(copying, copied.fault)
        elif copied.next_offset != piece.end:
            self._fetcher.seek(a.source, copied.next_offset)
        elif copied.next_offset == piece.position:
            self._fault(
                copying,
                CorruptBatch(
                    f"{a.topic}[{a.partition}]: the source sent {len(piece.data)} bytes for offset {piece.position} that "
                    f"hold no complete batch; repair the source or `isthmus reset {self._link.name} "
                    f"{a.topic}:{a.partition} --to OFFSET` past it",
                    a.topic,
                    a.partition,
                    piece.position,
                ),
            )

    def _worth_asking(self, fault: UnknownSchemaIds) -> bool:
        return self._schemas is not None and bool(self._schemas.table.not_asked(fault.ids))

    async def _ask_for_schemas(self, copying: _Copying, fault: UnknownSchemaIds) -> None:
        """Let one partition wait until the registries have been asked; then it goes on, one way or the other."""
        assert self._schemas is not None
        pause = 0.5
        while not self._over() and copying.fault is None:
            try:
                await self._schemas.ask(fault.ids)
                break
            except (IsthmusError, kerrors.KafkaError, OSError) as error:
                self._trouble = error.message if isinstance(error, IsthmusError) else str(error)
                await self._loop.sleep(pause)
                pause = min(10.0, pause * 2)
        copying.asking = False
        if copying.fault is None:
            self._fetcher.seek(copying.assignment.source, copying.next_offset)

    async def _commit(self) -> None:
        """Records are queued: write the map and the progress, and end the transaction."""
        await self._producer.drain()
        sent: dict[Partition, list[Sent]] = {}
        for one in self._producer.sent:
            sent.setdefault(one.partition, []).append(one)
        progress: dict[Partition, Committed] = {}
        chunks: list[tuple[bytes, bytes | None]] = []
        records = 0
        for copying in self._touched.values():
            a = copying.assignment
            runs = [_runs(one) for one in sent.get(a.target, [])]
            if runs:
                assert copying.chunk is not None
                chunks += copying.chunk.stage(runs, copying.start, copying.next_offset)
            progress[a.target] = self._progress(a, copying.next_offset).commit()
            records += sum(one.count for one in sent.get(a.target, []))
        for batch in small_batches(chunks):
            self._producer.produce({self._map: batch})
        if self._exactly_once:
            await self._producer.commit(self._group, progress)
        else:
            await self._producer.drain()
            self._producer.sent = []
            await commit_group_offsets(self._target, self._group, progress)
        for copying in self._touched.values():
            if copying.chunk is not None:
                copying.chunk.committed()
            copying.position, copying.start = copying.next_offset, -1
        self._touched.clear()
        self._runs = 0
        self._trouble = ""
        self._totals.transactions += 1
        self._totals.records += records

    def _progress(self, a: Assignment, offset: int) -> Progress:
        return Progress(offset, a.topic, self.lease.source_cluster, a.source_id, a.target_id)

    # -- faults -------------------------------------------------------------------------------------------

    def _fault(self, copying: _Copying, fault: PartitionFault) -> None:
        copying.fault = fault
        self._fetcher.drop(copying.assignment.source)
        self._untold.append(FaultReport.of(fault, self.lease.run).record())
        self._next_report = 0.0
        self._signal.set()

    def _refuse(self, refusal: Refused) -> None:
        copying = self._by_target.get(refusal.partition)
        if copying is None and not issubclass(refusal.error, kerrors.AuthorizationError):
            raise DataError(
                f"site {self._target.site.name}: {refusal.partition[0]} refused the link's own records: "
                f"{refusal.error.__name__.removesuffix('Error')} {refusal.words}".strip()
            )
        if copying is None:
            raise AuthorisationFailed(
                f"site {self._target.site.name}: cannot write {refusal.partition[0]}: {refusal.error.__name__}; grant "
                f"ALLOW WRITE on the topics that begin with {STATE_PREFIX!r}",
                self._target.site.name,
                "ALLOW WRITE on the link's own topics",
            )
        a = copying.assignment
        where = f"{a.topic}[{a.partition}] from offset {refusal.first_offset}"
        if issubclass(refusal.error, kerrors.AuthorizationError):
            text = f"not authorised to write {a.target_topic}: grant ALLOW WRITE on it"
        elif issubclass(refusal.error, (kerrors.MessageSizeTooLargeError, kerrors.RecordListTooLargeError)):
            self._fault(
                copying,
                RecordTooLarge(
                    f"{where}: the destination says that the batch is too large for {a.target_topic}; raise its "
                    "max.message.bytes",
                    a.topic,
                    a.partition,
                    refusal.first_offset,
                ),
            )
            return
        else:
            text = (
                f"{a.target_topic} refused it: {refusal.error.__name__.removesuffix('Error')} {refusal.words}".strip()
            )
        self._fault(copying, DestinationRefused(f"{where}: {text}", a.topic, a.partition, refusal.first_offset))

    async def _diagnose(self, copying: _Copying, problem: FetchProblem) -> None:
        """Turn a broker's refusal to read into the fault that it means."""
        try:
            fault = await self._fault_of(copying.assignment, problem)
        except (kerrors.KafkaError, OSError):
            await self._loop.sleep(0.5)
            self._fetcher.seek(copying.assignment.source, problem.position)
            return
        except IsthmusError as error:  # the site is another cluster now
            self._taken_over = error
            self._signal.set()
            return
        if fault is None:
            self._fetcher.seek(copying.assignment.source, problem.position)
        elif copying.fault is None:
            self._fault(copying, fault)

    async def _fault_of(self, a: Assignment, problem: FetchProblem) -> PartitionFault | None:
        at = (a.topic, a.partition, problem.position)
        reset = f"isthmus reset {self._link.name} {a.topic}:{a.partition}"
        if issubclass(problem.error, kerrors.AuthorizationError) or a.topic in self._source_leaders.refused:
            return source_unreadable(self._source.site.name, *at)
        if a.topic in self._source_leaders.recreated:
            return source_recreated(self._link.name, a.topic, a.partition, a.target_topic, problem.position)
        if a.topic in self._source_leaders.missing:
            return source_deleted(a.topic, a.partition, a.target_topic, problem.position)
        if issubclass(problem.error, kerrors.OffsetOutOfRangeError):
            ends = await list_offsets(self._source, {a.source: EARLIEST}, timeout=10)
            first = ends[a.source]
            ends = await list_offsets(self._source, {a.source: LATEST}, committed_only=False, timeout=10)
            last = ends[a.source]
            if isinstance(first, int) and problem.position < first:
                return RetentionGap(
                    f"{a.topic}[{a.partition}]: the source deleted offsets {problem.position} to {first - 1} "
                    f"({first - problem.position} at most) before they were copied; run `{reset} --to earliest` to go on "
                    f"after the gap, and raise the topic's retention",
                    *at,
                )
            if isinstance(last, int) and problem.position > last:
                return SourceTruncated(
                    f"{a.topic}[{a.partition}]: copied up to offset {problem.position}, but the source ends at {last}: it "
                    f"lost records (unclean leader election, restored backup?); run `{reset} --to latest` to go on from "
                    "its end",
                    *at,
                )
            return None
        return CorruptBatch(
            f"{a.topic}[{a.partition}]: the source broker cannot read offset {problem.position}: "
            f"{problem.error.__name__.removesuffix('Error')}; repair the source or `{reset} --to OFFSET` past it",
            *at,
        )

    # -- control and reports ------------------------------------------------------------------------------

    async def _housekeeping(self) -> None:
        now = time.monotonic()
        if now >= self._next_control and not self._polling_control:
            self._next_control = now + CONTROL_SECONDS
            self._polling_control = True
            self._loop.background(self._poll_control())
        if now >= self._next_look and not self._looking:
            if not self._next_look:
                self._next_report = max(self._next_report, now + REPORT_SECONDS)  # until it is known what is to be told
            self._looking = True
            self._loop.background(self._look_at_ends())
        if self._fetcher.failures > self._fetch_failures:
            # What was known of the source must be told now: it may never answer again.
            self._fetch_failures = self._fetcher.failures
            self._next_report = now
        if self._looked < len(self._by_source) and now >= self._next_count:
            self._next_count = now + COUNT_SECONDS
            self._count_looked()
        if now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            self._report()

    def _count_looked(self) -> None:
        """How many partitions were judged under this lease: progress fits both topics and the source has answered, or a fault."""
        self._looked = sum(
            copying.fault is not None or (copying.position >= 0 and self._fetcher.cursor(source).high_watermark >= 0)
            for source, copying in self._by_source.items()
        )
        if self._looked == len(self._by_source):
            self._next_report = 0.0  # somebody may wait for just that

    async def _poll_control(self) -> None:
        try:
            await self._look_at_claim(stable=False)
        except (kerrors.KafkaError, OSError):
            pass  # the destination cannot be asked now; copying has the same trouble and deals with it
        except (
            IsthmusError
        ) as error:  # what is asked of us can be found nowhere, or not be kept: nobody copies without knowing it
            self._taken_over = error
            self._signal.set()
        finally:
            self._polling_control = False

    async def _look_at_ends(self) -> None:
        """Ask where partitions end of which fetching does not tell: those that stand still, and all while copying rests or is throttled."""
        began, first = time.monotonic(), not self._next_look
        try:
            asked = time.time()
            stale = [p for p, seen in self._seen().items() if seen.asked < asked - REPORT_SECONDS / 2]
            if stale:
                # One round: who does not answer now is asked again at the next look, and is late until then.
                wanted = dict.fromkeys(stale, LATEST)
                ends = await list_offsets(self._source, wanted, committed_only=False, timeout=0)
                # Afterwards: what was asked by name is of the topic that we copy if that is still there now.
                topics = (await self._source.metadata(sorted({topic for topic, _ in stale}))).topics
                for partition in stale:
                    end, topic, copying = ends[partition], topics.get(partition[0]), self._by_source[partition]
                    if isinstance(end, int) and topic is not None and topic.error is None:
                        copying.end, copying.asked = end, asked
                        copying.anew = topic.id != copying.assignment.source_id
        except (kerrors.KafkaError, OSError, IsthmusError):
            pass  # it stays unknown, and fetching has the same trouble and deals with it
        finally:
            self._looking = False
            self._next_look = time.monotonic() + max(REPORT_SECONDS, LOOK_REST * (time.monotonic() - began))
            if first:
                self._next_report = 0.0
                self._signal.set()

    def _seen(self) -> dict[Partition, Seen]:
        """How far each partition is committed, how far its source was seen to reach, and when that was asked; behind an open transaction
        too, where nobody can read yet and others may have written what would be lost with the source."""
        fetched = self._fetcher.asked()
        found = {}
        for source, copying in self._by_source.items():
            end, asked = copying.end, copying.asked
            anew = copying.anew or isinstance(copying.fault, SourceRecreated)
            if source in fetched and not anew:
                # The higher end is true at both times.
                end = max(end, self._fetcher.cursor(source).high_watermark)
                asked = max(asked, fetched[source])
            found[source] = Seen(copying.position, end, asked, anew)
        return found

    def _report(self, final: bool = False) -> None:
        now = time.monotonic()
        then, records, bytes_ = self._reported
        seconds = max(1e-3, now - then)
        total_bytes = self._totals.bytes + sum(c.bytes for c in self._by_source.values())
        fade = float(np.exp(-seconds / SMOOTH_SECONDS))
        for source, copying in self._by_source.items():
            copying.rate = copying.rate * fade + (copying.bytes / seconds) * (1 - fade)
            self._totals.bytes += copying.bytes
            copying.bytes = copying.records = 0
            if copying.assignment.faulted and copying.fault is None and source not in self._cleared:
                cursor = self._fetcher.cursor(source) if copying.position >= 0 else None
                if cursor is not None and cursor.high_watermark >= 0:
                    self._cleared.add(source)
                    self._untold.append((FaultReport.key(source), None))
        busiest = heapq.nlargest(REPORTED_PARTITIONS, self._by_source.items(), key=lambda item: item[1].rate)
        report = SlotReport(
            self.lease.slot,
            self.lease.run,
            self.lease.number,
            time.time(),
            self._totals.records,
            total_bytes,
            self._totals.transactions,
            (self._totals.records - records) / seconds,
            (total_bytes - bytes_) / seconds,
            {f"{p[0]}/{p[1]}": round(c.rate) for p, c in busiest if c.rate >= 1},
            self._trouble,
            self._schemas.table.counted() if self._schemas is not None else {},
            heard=self._fetcher.heard,
            seen=Sight.of(self._seen()),
            shares=self.lease.shares,
            looked=self._looked,
        )
        self._reported = (now, self._totals.records, total_bytes)
        self._untold.append(report.record())
        if not final:
            self._loop.background(self._flush_reports())

    async def _flush_reports(self) -> None:
        """Write what is untold; kept for the next time when the destination cannot take it now."""
        if not self._untold:
            return
        telling, self._untold = self._untold, []
        teller = Producer(self._target, self._target_leaders, Signal(self._loop))
        try:
            for batch in small_batches(telling):
                teller.produce({self._status: batch})
            await teller.drain()
        except (Interrupted, Refused, kerrors.KafkaError, OSError):
            latest: dict[bytes, bytes | None] = dict(telling + self._untold)
            self._untold = list(latest.items())
        except Exception as error:  # a report must never end a copy
            self._trouble = f"report: {error}"


def _runs(sent: Sent) -> Runs:
    """(source, target, length) of one appended batch: its records stand one after another from its base offset."""
    runs = np.empty((len(sent.runs), 3), np.int64)
    runs[:, 0] = sent.runs[:, 0]
    runs[:, 2] = sent.runs[:, 1]
    runs[:, 1] = sent.base_offset + np.concatenate(([0], np.cumsum(sent.runs[:-1, 1])))
    return runs
