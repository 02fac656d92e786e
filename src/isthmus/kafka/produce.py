"""Transactional producing of raw batches.

Invariants:
- a batch is sent once in a transaction. Any error but "the last transaction is still completing", which
  appended nothing, ends the transaction: its owner fences (``begin``) and copies the ranges again from what is
  committed. So sequence numbers never need repair and nothing is ever appended twice;
- batches of one partition leave in order on one connection, and several requests may be on their way;
- progress of the source is committed in the transaction, to a group of the destination.

Two protocols, chosen by what the cluster has finalised: with transaction version 2, Produce and
TxnOffsetCommit enlist partitions and group by themselves and each EndTxn brings a new epoch (sequences start
at 0); before that, both are enlisted by request and sequences run on under one epoch.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import kafka.errors as kerrors
import numpy as np
from kafka.future import Future
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from isthmus.kafka.cluster import TOO_LARGE, TRANSACTION, Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal, gather
from isthmus.kafka.offsets import Committed, Partition, by_topic, commit_in_pieces
from isthmus.kafka.window import Window
from isthmus.records import Outgoing, stamp
from isthmus.records.model import Longs

# More requests than this on one connection only fill the broker's queue.
REQUESTS_IN_FLIGHT = 8
# Far below Kafka's default limit of a batch: sites with a smaller one take it too.
SMALL_BATCH_BYTES = 48 << 10
# What a record costs beside key and value.
RECORD_BYTES = 24
# What may be on its way at most, however much the line carries.
WINDOW_BYTES = 16 << 20
_MAX_SEQUENCE = 0x7FFFFFFF
_FENCED = (
    kerrors.ProducerFencedError,
    kerrors.InvalidProducerEpochError,
    kerrors.InvalidProducerIdMappingError,
)
# What a transaction would meet again, however often it is begun anew.
_LASTING = (
    *TOO_LARGE,
    kerrors.AuthorizationError,
    kerrors.OffsetMetadataTooLargeError,
    kerrors.UnsupportedVersionError,
    kerrors.InvalidGroupIdError,
    kerrors.UnknownMemberIdError,
    kerrors.IllegalGenerationError,
)


class Fenced(Exception):
    """Another producer has taken our transactional id: nothing that we send is accepted any more."""


class Refused(Exception):
    """The destination refused a batch of one partition for a reason that retrying will not cure."""

    def __init__(self, partition: Partition, error: type[Exception], words: str, first_offset: int) -> None:
        super().__init__(f"{partition}: {error.__name__} {words}")
        self.partition, self.error, self.words, self.first_offset = partition, error, words, first_offset


class Interrupted(Exception):
    """The transaction cannot go on (a broker died, a leader moved); start again from what is committed. ``cause`` is what a request met."""

    cause: Exception | None = None


@dataclass(slots=True)
class Sent:
    """What the map needs of a batch that the destination has appended; the bytes are let go."""

    partition: Partition
    runs: Longs
    count: int
    base_offset: int


def _next_sequence(sequence: int, count: int) -> int:
    after = sequence + count
    return after if after <= _MAX_SEQUENCE else after - _MAX_SEQUENCE - 1


@dataclass(slots=True)
class _Writer:
    """A transactional id, and as whom the cluster knows its holder."""

    transactional_id: str
    id: int = -1
    epoch: int = -1
    sequences: dict[Partition, int] = field(default_factory=dict)


class Producer:
    """Writes in transactions, one at a time, with one or two transactional ids; without any, at least once.

    With two ids they take turns, so that a transaction need not wait until the brokers have written the last one's
    markers. At most one transaction is undecided at any time, and taking over takes both ids.
    """

    def __init__(
        self,
        cluster: Cluster,
        leaders: Leaders,
        signal: Signal,
        transactional_ids: Sequence[str] = (),
        transaction_timeout: float = 60.0,
    ) -> None:
        self._cluster, self._leaders, self._signal = cluster, leaders, signal
        self._loop = cluster.loop
        self._writers = deque(_Writer(each) for each in transactional_ids)
        self.transactional = bool(self._writers)
        self._transaction_timeout = transaction_timeout
        self._modern = cluster.modern_transactions
        self._enlisted: set[Partition] = set()
        self._group_enlisted = False
        self._opened = False
        self._opening: Future | None = None
        self._queue: deque[dict[Partition, Outgoing]] = deque()
        self._in_flight: dict[int, int] = defaultdict(int)
        self.bytes_in_flight = 0
        self.window = Window(WINDOW_BYTES, cluster.site.request_timeout)
        self._pending = 0
        self._problem: Exception | None = None
        # Answers to requests of a transaction that was given up must not count for the next one.
        self._generation = 0
        self.sent: list[Sent] = []
        self.requests = 0
        # From version 12 on, Produce enlists its partitions by itself, which wants the newest transactions.
        self._max_version = 13 if not self.transactional or self._modern else 11

    # -- fencing ------------------------------------------------------------------------------------------

    async def begin(self, timeout: float = 75.0) -> None:
        """Take the transactional ids: aborts what a predecessor left open and fences the predecessor."""
        self._generation += 1
        self._clear_transaction()
        self._problem = None
        await gather([self._loop.spawn(self._take(writer, timeout)) for writer in self._writers])

    async def _take(self, writer: _Writer, timeout: float) -> None:
        writer.sequences.clear()

        def request() -> Any:
            return InitProducerIdRequest(
                transactional_id=writer.transactional_id,
                transaction_timeout_ms=int(self._transaction_timeout * 1000),
                producer_id=-1,
                producer_epoch=-1,
                max_version=4,
            )

        response = await self._cluster.ask_coordinator(
            TRANSACTION, writer.transactional_id, request, lambda r: r.error_code, timeout
        )
        if response.error_code:
            raise self._cluster.refused(response, response.error_code, writer.transactional_id)
        writer.id, writer.epoch = response.producer_id, response.producer_epoch

    @property
    def _writer(self) -> _Writer:
        """Whose turn it is."""
        return self._writers[0]

    def _clear_transaction(self) -> None:
        self._enlisted.clear()
        self._group_enlisted = self._opened = False
        self._opening = None
        self._queue.clear()
        self.sent = []
        self._pending = 0
        self.bytes_in_flight = 0
        self._in_flight.clear()

    # -- records ------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether batches are still on their way."""
        return bool(self._queue) or self._pending > 0 or self._opening is not None

    @property
    def open(self) -> bool:
        """Whether this transaction has anything in it."""
        return self._opened or self.busy or bool(self.sent)

    @property
    def full(self) -> bool:
        """Whether as much is on its way as the line carries."""
        return self.bytes_in_flight > self.window.bytes

    def check(self) -> None:
        """Raise what went wrong since the last check."""
        if self._problem is not None:
            raise self._problem

    def produce(self, round_: dict[Partition, Outgoing]) -> None:
        """Queue one batch a partition."""
        self._queue.append(round_)
        self.bytes_in_flight += sum(len(b.payload) for b in round_.values())
        self._pump()

    async def drain(self) -> None:
        """Return when all that was queued is appended; raise when it can't be."""
        while self.busy:
            self.check()
            await self._signal.wait(1.0)
        self.check()

    def _pump(self) -> None:
        """Send what may be sent now."""
        if self._opening is not None or self._problem is not None:
            return
        while self._queue:
            if not self._opened and self.transactional:
                self._opening = self._loop.spawn(self._open(self._queue.popleft(), self._generation))
                return
            if not self._modern and self.transactional:
                fresh = [p for p in self._queue[0] if p not in self._enlisted]
                if fresh:
                    self._opening = self._loop.spawn(self._enlist_more(fresh, self._generation))
                    return
            nodes = {self._leaders.of(p) for p in self._queue[0]}
            if any(self._in_flight[node] >= REQUESTS_IN_FLIGHT for node in nodes):
                return
            self._send_round(self._queue.popleft())

    def _send_round(self, round_: dict[Partition, Outgoing]) -> None:
        for partition, batch in round_.items():
            self._stamp(partition, batch)
        generation, sent = self._generation, time.monotonic()
        for node, batches in self._by_leader(round_).items():
            future = self._send(node, batches)
            future.add_callback(partial(self._on_answer, generation, sent, node, batches))
            future.add_errback(partial(self._on_error, generation, sent, node))

    def _stamp(self, partition: Partition, batch: Outgoing) -> None:
        if not self.transactional:
            stamp(batch.payload, -1, -1, -1, False)
            return
        writer = self._writer
        sequence = writer.sequences.get(partition, 0)
        stamp(batch.payload, writer.id, writer.epoch, sequence, True)
        writer.sequences[partition] = _next_sequence(sequence, batch.count)

    def _by_leader(self, round_: dict[Partition, Outgoing]) -> dict[int, dict[Partition, Outgoing]]:
        grouped: dict[int, dict[Partition, Outgoing]] = defaultdict(dict)
        for partition, batch in round_.items():
            grouped[self._leaders.of(partition)][partition] = batch
        return grouped

    def _send(self, node: int, batches: Mapping[Partition, Outgoing]) -> Future:
        self._pending += 1
        self._in_flight[node] += 1
        self.requests += 1
        if node < 0:
            return Future().failure(kerrors.LeaderNotAvailableError())
        topic_type = ProduceRequest.TopicProduceData
        by_id = self._max_version >= 13 and self._leaders.all_have_ids and self._cluster.supports(ProduceRequest, 13)
        topics: dict[str, list[Any]] = defaultdict(list)
        for (topic, index), batch in batches.items():
            topics[topic].append(topic_type.PartitionProduceData(index=index, records=batch.payload.data))
        return self._cluster.send(
            ProduceRequest(
                transactional_id=self._writer.transactional_id if self.transactional else None,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[
                    topic_type(partition_data=parts, **({"topic_id": self._leaders.ids[t]} if by_id else {"name": t}))
                    for t, parts in topics.items()
                ],
                min_version=13 if by_id else 3,
                max_version=self._max_version if by_id else min(12, self._max_version),
            ),
            node,
        )

    def _answers(self, response: Any) -> list[tuple[Partition, Any]]:
        by_id = response.API_VERSION >= 13
        return [
            ((self._leaders.names.get(t.topic_id, "") if by_id else t.name, p.index), p)
            for t in response.responses
            for p in t.partition_responses
        ]

    def _on_answer(
        self, generation: int, sent: float, node: int, batches: Mapping[Partition, Outgoing], response: Any
    ) -> None:
        if generation != self._generation:
            return
        try:
            self._settle(sent, node, batches)
            for partition, answer in self._answers(response):
                batch = batches[partition]
                if answer.error_code:
                    self._fail(self._problem_of(partition, answer, batch))
                else:
                    self.sent.append(Sent(partition, batch.runs, batch.count, answer.base_offset))
            self._pump()
        except Exception as error:  # a future swallows what its callbacks raise
            self._fail(error)
        self._signal.set()

    def _settle(self, sent: float, node: int, batches: Mapping[Partition, Outgoing]) -> None:
        self._pending -= 1
        self._in_flight[node] -= 1
        size = sum(len(b.payload) for b in batches.values())
        self.window.answered(size, sent, in_use=self.bytes_in_flight > self.window.bytes // 2)
        self.bytes_in_flight -= size

    def _on_error(self, generation: int, sent: float, node: int, error: Exception) -> None:
        if generation != self._generation:
            return
        self.window.shrink(sent)
        self._pending -= 1
        self._in_flight[node] -= 1
        self._fail(Interrupted(f"produce to broker {node}: {error}"))
        self._signal.set()

    def _fail(self, problem: Exception) -> None:
        # The gravest wins: being fenced ends the task, a refusal ends a partition, the rest is tried again.
        rank = {Interrupted: 0, Refused: 1, Fenced: 2}
        if self._problem is None or rank.get(type(problem), 3) > rank.get(type(self._problem), 3):
            self._problem = problem

    def _problem_of(self, partition: Partition, answer: Any, batch: Outgoing) -> Exception:
        error = kerrors.for_code(answer.error_code)
        if error in _FENCED:
            return Fenced(error.__name__)
        words = getattr(answer, "error_message", None) or ""
        for bad in getattr(answer, "record_errors", None) or []:
            words = f"{words} record {bad.batch_index} of the batch: {bad.batch_index_error_message or ''}".strip()
            break
        refusals = (
            kerrors.MessageSizeTooLargeError,
            kerrors.InvalidTimestampError,
            kerrors.InvalidRecordError,
            kerrors.CorruptRecordError,
            kerrors.RecordListTooLargeError,
            kerrors.UnsupportedForMessageFormatError,
            kerrors.UnsupportedCompressionTypeError,
            kerrors.PolicyViolationError,
        )
        if issubclass(error, (*refusals, kerrors.AuthorizationError)):
            first = int(batch.runs[0, 0]) if len(batch.runs) else -1
            return Refused(partition, error, words, first)
        place = f"{partition[0]}[{partition[1]}]"
        problem = Interrupted(f"{place}: {error.__name__} {words}")
        problem.cause = self._cluster.refused("Produce", answer.error_code, f"{place} {words}".strip())
        return problem

    # -- opening a transaction ----------------------------------------------------------------------------

    async def _open(self, round_: dict[Partition, Outgoing], generation: int) -> None:
        """Send the first round alone: only it may meet a predecessor that is still completing."""
        try:
            if not self._modern:
                await self._enlist(list(round_), generation)
            if generation != self._generation:
                return
            for partition, batch in round_.items():
                self._stamp(partition, batch)
            left, deadline, pause = dict(round_), time.monotonic() + 60, 0.002
            # Each wait may outlast the transaction: what another one has replaced must neither send nor count.
            while left and self._problem is None and generation == self._generation:
                left = await self._send_first(left, generation)
                if left:
                    if time.monotonic() > deadline and generation == self._generation:
                        self._fail(Interrupted("the last transaction does not complete"))
                    await self._loop.sleep(pause)
                    pause = min(0.1, pause * 1.6)
            if generation == self._generation:
                self._opened = True
        except Exception as error:
            if generation == self._generation:
                self._fail(self._problem_while("opening a transaction", error))
        finally:
            self._opening_done(generation)

    async def _send_first(self, round_: dict[Partition, Outgoing], generation: int) -> dict[Partition, Outgoing]:
        """Send and await; what met a completing predecessor, and so was not appended, is returned."""
        sent = time.monotonic()
        waiting = [(node, b, self._send(node, b)) for node, b in self._by_leader(round_).items()]
        again: dict[Partition, Outgoing] = {}
        for node, batches, future in waiting:
            try:
                response = await future
            except (kerrors.KafkaError, OSError) as error:
                self._on_error(generation, sent, node, error)
                continue
            if generation != self._generation:
                return {}
            self._settle(sent, node, batches)
            for partition, answer in self._answers(response):
                batch = batches[partition]
                if not answer.error_code:
                    self.sent.append(Sent(partition, batch.runs, batch.count, answer.base_offset))
                elif kerrors.for_code(answer.error_code) is kerrors.ConcurrentTransactionsError:
                    again[partition] = batch
                    self.bytes_in_flight += len(batch.payload)
                else:
                    self._fail(self._problem_of(partition, answer, batch))
        return again

    async def _enlist_more(self, partitions: list[Partition], generation: int) -> None:
        try:
            await self._enlist(partitions, generation)
        except Exception as error:
            if generation == self._generation:
                self._fail(self._problem_while("enlisting partitions", error))
        finally:
            self._opening_done(generation)

    def _opening_done(self, generation: int) -> None:
        if generation == self._generation:
            self._opening = None
            self._signal.set()
            self._pump()

    @staticmethod
    def _problem_while(doing: str, error: Exception) -> Exception:
        """What an error met outside of a batch means for the transaction."""
        if isinstance(error, _FENCED):
            return Fenced(type(error).__name__)
        passing = isinstance(error, (kerrors.KafkaError, OSError)) and not isinstance(error, _LASTING)
        if not passing:
            return error
        problem = Interrupted(f"{doing}: {error}")
        problem.cause = error
        return problem

    async def _enlist(self, partitions: list[Partition], generation: int) -> None:
        await self._add_partitions(self._writer, partitions)
        if generation == self._generation:
            self._enlisted.update(partitions)

    async def _add_partitions(self, writer: _Writer, partitions: Sequence[Partition]) -> None:
        """AddPartitionsToTxn, for brokers before transaction version 2."""

        def request() -> Any:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=writer.transactional_id,
                v3_and_below_producer_id=writer.id,
                v3_and_below_producer_epoch=writer.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=t, partitions=ids)
                    for t, ids in by_topic(partitions).items()
                ],
                max_version=3,
            )

        def error_of(response: Any) -> int:
            codes = [
                p.partition_error_code
                for t in response.results_by_topic_v3_and_below
                for p in t.results_by_partition
                if p.partition_error_code
            ]
            attempted_only = kerrors.OperationNotAttemptedError.errno
            return next((c for c in codes if c != attempted_only), codes[0] if codes else 0)

        response = await self._cluster.ask_coordinator(
            TRANSACTION, writer.transactional_id, request, error_of, timeout=60
        )
        code = error_of(response)
        if code:
            raise self._cluster.refused(response, code, writer.transactional_id)

    async def _add_group(self, writer: _Writer, group: str) -> None:
        """AddOffsetsToTxn, likewise."""
        response = await self._cluster.ask_coordinator(
            TRANSACTION,
            writer.transactional_id,
            lambda: AddOffsetsToTxnRequest(
                transactional_id=writer.transactional_id,
                producer_id=writer.id,
                producer_epoch=writer.epoch,
                group_id=group,
                max_version=3,
            ),
            lambda r: r.error_code,
        )
        if response.error_code:
            raise self._cluster.refused(response, response.error_code, group)

    # -- orphans ------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> dict[int, int]:
        """As whom the cluster knows us: producer ids, and the epoch of each."""
        return {writer.id: writer.epoch for writer in self._writers}

    async def end_orphans(self, partitions: Sequence[Partition], group: str, commit: Collection[int] = ()) -> None:
        """Right after ``begin``: have markers written that end what these partitions and this group hold open of our ids: by aborting, but
        for the producer ids in ``commit``.

        By the older protocol, which newer brokers understand too: it can enlist a partition without writing to it. That leaves the epoch as
        it is, and no sequence was used.
        """
        try:
            await self._end_orphans(partitions, group, commit)
        except (kerrors.KafkaError, OSError) as error:
            raise self._problem_while("ending what was forgotten", error) from None

    async def _end_orphans(self, partitions: Sequence[Partition], group: str, commit: Collection[int]) -> None:
        for writer in self._writers:
            await self._add_partitions(writer, partitions)
            await self._add_group(writer, group)
            request = partial(
                EndTxnRequest,
                transactional_id=writer.transactional_id,
                producer_id=writer.id,
                producer_epoch=writer.epoch,
                committed=writer.id in commit,
                max_version=4,
            )
            response = await self._cluster.ask_coordinator(
                TRANSACTION, writer.transactional_id, request, lambda r: r.error_code, timeout=60
            )
            if response.error_code:
                raise self._cluster.refused(response, response.error_code, writer.transactional_id)

    # -- committing ---------------------------------------------------------------------------------------

    async def commit(self, group: str, progress: Mapping[Partition, Committed]) -> None:
        """Commit records and progress together; batches still on their way are waited for."""
        try:
            await self._commit_progress(group, progress)
            await self.drain()
            await self._end()
        except (kerrors.KafkaError, OSError) as error:
            raise self._problem_while("committing", error) from None
        self._clear_transaction()

    async def _commit_progress(self, group: str, progress: Mapping[Partition, Committed]) -> None:
        if not progress:
            return
        writer = self._writer
        if not self._modern and not self._group_enlisted:
            await self._add_group(writer, group)
            self._group_enlisted = True
        topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic

        def request(some: Mapping[Partition, Committed]) -> Any:
            return TxnOffsetCommitRequest(
                transactional_id=writer.transactional_id,
                group_id=group,
                producer_id=writer.id,
                producer_epoch=writer.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    topic_type(
                        name=topic,
                        partitions=[
                            topic_type.TxnOffsetCommitRequestPartition(
                                partition_index=p,
                                committed_offset=some[topic, p].offset,
                                committed_leader_epoch=-1,
                                committed_metadata=some[topic, p].metadata,
                            )
                            for p in ids
                        ],
                    )
                    for topic, ids in by_topic(some).items()
                ],
                max_version=5 if self._modern else 4,
            )

        # Sent once, too: a broker that was slow to carry out the first one would, under the older protocol, take it for a part of the transaction
        # that is open by then, and move progress back.
        await commit_in_pieces(self._cluster, group, progress, request, resend=False)

    async def _end(self) -> None:
        writer = self._writer
        # Sent once: when the answer is lost, only what is committed can tell how it ended.
        node = await self._cluster.coordinator(TRANSACTION, writer.transactional_id)
        response = await self._cluster.request(
            EndTxnRequest(
                transactional_id=writer.transactional_id,
                producer_id=writer.id,
                producer_epoch=writer.epoch,
                committed=True,
                max_version=5 if self._modern else 4,
            ),
            node,
        )
        if response.error_code:
            error = kerrors.for_code(response.error_code)
            if error in (kerrors.NotCoordinatorError, kerrors.CoordinatorNotAvailableError):
                self._cluster.forget_coordinator(TRANSACTION, writer.transactional_id)
            raise self._cluster.refused(response, response.error_code, writer.transactional_id)
        if self._modern and response.producer_id >= 0:
            writer.id, writer.epoch = response.producer_id, response.producer_epoch
            writer.sequences.clear()
        self._writers.rotate(-1)


def small_batches(records: list[tuple[bytes, bytes | None]]) -> Iterator[Outgoing]:
    """The same for as many records as there are, each batch below what any topic takes."""
    some: list[tuple[bytes, bytes | None]] = []
    size = 0
    for key, value in records:
        cost = RECORD_BYTES + len(key) + len(value or b"")
        if some and size + cost > SMALL_BATCH_BYTES:
            yield small_batch(some)
            some, size = [], 0
        some.append((key, value))
        size += cost
    if some:
        yield small_batch(some)


def small_batch(records: list[tuple[bytes, bytes | None]]) -> Outgoing:
    """A batch of our own records (state, reports): key and value pairs, stamped with the present time."""
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    now = int(time.time() * 1000)
    for index, (key, value) in enumerate(records):
        builder.append(index, now, key, value, [])
    payload = np.frombuffer(bytes(builder.build()), np.uint8).copy()
    return Outgoing(payload=payload, count=len(records), runs=np.empty((0, 2), np.int64), next_offset=0)
