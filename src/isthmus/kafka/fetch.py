"""Raw fetching: one long poll in flight to each leader, all its partitions in one incremental session.

Invariants:
- each piece handed out begins at its partition's position, pieces of one partition come in order and join
  without a gap, and a piece asked for before a ``seek`` is never handed out after it (generations);
- the next request of a leader leaves as soon as its last answer is in, before anybody has looked at the
  records: fetching overlaps rewriting;
- no more than ``buffer_bytes`` (plus one answer a leader) wait to be taken.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.consumer import FetchRequest

from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.offsets import Partition

# Large enough to fill the pipe between sites, small enough that a task's memory stays in the tens of MiB.
ANSWER_BYTES = 16 << 20
PARTITION_BYTES = 2 << 20
# How long an idle broker holds the poll. Longer saves idle CPU and delays nothing: data ends the wait.
WAIT_MS = 500

_SPAN = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")

_LEADER_MOVED = (
    kerrors.NotLeaderForPartitionError,
    kerrors.FencedLeaderEpochError,
    kerrors.UnknownLeaderEpochError,
    kerrors.LeaderNotAvailableError,
    kerrors.ReplicaNotAvailableError,
    kerrors.KafkaStorageError,
    kerrors.OffsetNotAvailableError,
)
_SESSION_LOST = (
    kerrors.FetchSessionIdNotFoundError,
    kerrors.InvalidFetchSessionEpochError,
    kerrors.FetchSessionTopicIdError,
)
_TOPIC_GONE = (
    kerrors.UnknownTopicOrPartitionError,
    kerrors.UnknownTopicIdError,
    kerrors.InconsistentTopicIdError,
)


@dataclass(slots=True)
class Fetched:
    """Raw batches of one partition, from ``position`` on."""

    partition: Partition
    position: int
    data: Any
    aborted: list[tuple[int, int]]


@dataclass(slots=True)
class FetchProblem:
    """A partition that cannot be read, and what the broker said."""

    partition: Partition
    position: int
    error: type[Exception]


def end_of(data: Any, position: int) -> int:
    """The offset after the last complete batch in ``data``, or ``position`` when there is none."""
    at, size = 0, len(data)
    while at + 61 <= size:
        base, length = _SPAN.unpack_from(data, at)
        if length < 49 or at + 12 + length > size:
            break
        position = base + _LAST_DELTA.unpack_from(data, at + 23)[0] + 1
        at += 12 + length
    return position


@dataclass(slots=True)
class _Cursor:
    position: int
    generation: int = 0
    active: bool = True
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1


class _Session:
    """What a broker remembers of our fetch (KIP-227), so that idle partitions cost nothing a request."""

    def __init__(self) -> None:
        self.id, self.epoch = 0, 0
        self.known: dict[Partition, int] = {}

    def reset(self) -> None:
        self.id, self.epoch = 0, 0
        self.known = {}

    def changes(self, wanted: dict[Partition, int]) -> tuple[list[Partition], list[Partition]]:
        if not self.id:
            return list(wanted), []
        changed = [p for p, position in wanted.items() if self.known.get(p) != position]
        forgotten = [p for p in self.known if p not in wanted] if len(self.known) != len(wanted) or changed else []
        return changed, forgotten


class Fetcher:
    """Fetches a set of partitions from wherever their leaders are."""

    def __init__(
        self, cluster: Cluster, leaders: Leaders, signal: Signal, buffer_bytes: int, wait_ms: int = WAIT_MS
    ) -> None:
        self._cluster, self._leaders, self._signal = cluster, leaders, signal
        self._loop: Loop = cluster.loop
        self._buffer_bytes = buffer_bytes
        self._wait_ms = wait_ms
        self._cursors: dict[Partition, _Cursor] = {}
        self._inbox: deque[tuple[int, Fetched | FetchProblem]] = deque()
        self.buffered = 0
        self._nodes: dict[int, Signal] = {}
        self._polling: set[int] = set()
        self._stopped = False
        self.held = False
        self.requests = 0
        self._leaderless = Signal(self._loop)
        self._watching = False

    # -- what the owner says ------------------------------------------------------------------------------

    def seek(self, partition: Partition, position: int) -> None:
        """Fetch this partition from here on; what was fetched for it before is forgotten."""
        cursor = self._cursors.get(partition)
        if cursor is None:
            self._cursors[partition] = _Cursor(position)
        else:
            cursor.position, cursor.active = position, True
            cursor.generation += 1
        self._start_nodes()

    def drop(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        cursor = self._cursors.get(partition)
        if cursor is not None:
            cursor.active = False
            cursor.generation += 1

    def hold(self, held: bool) -> None:
        """Send no further requests (rate limit, pause) until told otherwise."""
        if self.held != held:
            self.held = held
            self._wake()

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def take(self) -> Fetched | FetchProblem | None:
        """The next piece, if any."""
        while self._inbox:
            generation, piece = self._inbox.popleft()
            if isinstance(piece, Fetched):
                self.buffered -= len(piece.data)
            if self._cursors[piece.partition].generation == generation:
                self._wake()
                return piece
        self._wake()
        return None

    @property
    def waiting(self) -> bool:
        """Whether something can be taken right now."""
        return bool(self._inbox)

    def cursor(self, partition: Partition) -> _Cursor:
        return self._cursors[partition]

    # -- the polls ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        for signal in self._nodes.values():
            signal.set()
        self._leaderless.set()

    def _start_nodes(self) -> None:
        for partition, cursor in self._cursors.items():
            if not cursor.active:
                continue
            node = self._leaders.of(partition)
            if node < 0:
                if not self._watching:
                    self._watching = True
                    self._loop.spawn(self._watch_leaderless())
            elif node not in self._polling:
                self._polling.add(node)
                self._nodes[node] = Signal(self._loop)
                self._loop.spawn(self._poll_forever(node))
        self._wake()

    async def _watch_leaderless(self) -> None:
        """Ask for leaders until each active partition has one."""
        pause = 0.1
        while not self._stopped:
            await self._refresh()
            if all(self._leaders.of(p) >= 0 for p, c in self._cursors.items() if c.active):
                break
            await self._loop.sleep(pause)
            pause = min(1.0, pause * 1.6)
        self._watching = False
        self._start_nodes()

    async def _refresh(self) -> None:
        try:
            await self._leaders.refresh()
        except (kerrors.KafkaError, OSError):
            await self._loop.sleep(0.1)

    def _led_by(self, node: int) -> dict[Partition, int]:
        return {p: c.position for p, c in self._cursors.items() if c.active and self._leaders.of(p) == node}

    async def _poll_forever(self, node: int) -> None:
        session = _Session()
        signal = self._nodes[node]
        failures = 0
        while not self._stopped:
            wanted = self._led_by(node)
            if not wanted:
                break
            if self.held or self.buffered >= self._buffer_bytes:
                await signal.wait(1.0)
                continue
            generations = {p: self._cursors[p].generation for p in wanted}
            try:
                response = await self._cluster.request(self._request(session, wanted), node)
                if response.error_code:
                    error = kerrors.for_code(response.error_code)
                    session.reset()
                    if error not in _SESSION_LOST:
                        raise error()
                    continue
                failures = 0
            except (kerrors.KafkaError, OSError):
                # Nothing was lost: positions move only with answers. The next answer may come from elsewhere.
                session.reset()
                failures += 1
                if self._stopped:
                    break
                await self._loop.sleep(min(1.0, 0.05 * 1.6**failures))
                await self._refresh()
                self._start_nodes()
                continue
            session.id = response.session_id
            session.epoch = session.epoch + 1 if session.id else 0
            session.known = wanted if session.id else {}
            if await self._accept(response, wanted, generations):
                await self._refresh()
                self._start_nodes()
        self._polling.discard(node)
        self._nodes.pop(node, None)
        if not self._stopped:
            self._start_nodes()

    def _request(self, session: _Session, wanted: dict[Partition, int]) -> Any:
        self.requests += 1
        by_id = self._leaders.all_have_ids and self._cluster.supports(FetchRequest, 13)
        changed, forgotten = session.changes(wanted)
        topic_type = FetchRequest.FetchTopic
        topics: dict[str, list[Any]] = {}
        for topic, index in changed:
            topics.setdefault(topic, []).append(
                topic_type.FetchPartition(
                    partition=index,
                    current_leader_epoch=-1,
                    fetch_offset=wanted[topic, index],
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        gone: dict[str, list[int]] = {}
        for topic, index in forgotten:
            gone.setdefault(topic, []).append(index)
        ids = self._leaders.ids
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=ANSWER_BYTES,
            isolation_level=1,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=[
                topic_type(partitions=parts, **({"topic_id": ids[t]} if by_id else {"topic": t}))
                for t, parts in topics.items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(partitions=parts, **({"topic_id": ids[t]} if by_id else {"topic": t}))
                for t, parts in gone.items()
            ],
            rack_id="",
            min_version=13 if by_id else 4,
            max_version=16 if by_id else 12,
        )

    async def _accept(self, response: Any, wanted: dict[Partition, int], generations: dict[Partition, int]) -> bool:
        """Put what came into the inbox; True when leaders should be asked for again."""
        stale_leaders = False
        for topic in response.responses:
            name = self._leaders.names.get(topic.topic_id, "") if response.API_VERSION >= 13 else topic.topic
            for answer in topic.partitions:
                key = (name, answer.partition_index)
                cursor = self._cursors.get(key)
                if cursor is None or key not in wanted or cursor.generation != generations[key]:
                    continue
                if answer.error_code:
                    error = kerrors.for_code(answer.error_code)
                    passing = error in _LEADER_MOVED or (
                        not await self._is_gone(key)
                        if error in _TOPIC_GONE
                        else issubclass(error, kerrors.RetriableError)
                    )
                    if passing:
                        stale_leaders = True
                    else:
                        cursor.active = False
                        self._inbox.append((cursor.generation, FetchProblem(key, cursor.position, error)))
                        self._signal.set()
                    continue
                cursor.high_watermark = answer.high_watermark
                cursor.last_stable = answer.last_stable_offset
                cursor.log_start = answer.log_start_offset
                data = answer.records
                if not data:
                    continue
                end = end_of(data, cursor.position)
                aborted = [(a.producer_id, a.first_offset) for a in (answer.aborted_transactions or [])]
                self._inbox.append((cursor.generation, Fetched(key, cursor.position, data, aborted)))
                if end > cursor.position:
                    cursor.position = end
                else:
                    # Not one complete batch: only damage does this. The reader of the piece will say what.
                    cursor.active = False
                self.buffered += len(data)
                self._signal.set()
        return stale_leaders

    async def _is_gone(self, partition: Partition) -> bool:
        """Whether the topic was deleted or created again, as opposed to a broker that has not heard of it yet."""
        topic = partition[0]
        for _ in range(20):
            await self._refresh()
            if topic in self._leaders.recreated or topic in self._leaders.refused:
                return True
            if topic not in self._leaders.missing:
                return False
            await self._loop.sleep(0.1)
        return True
