"""Raw fetching: one long poll in flight to each leader, all its partitions in one incremental session.

Invariants:
- each piece handed out begins at its partition's position, pieces of one partition come in order and join
  without a gap, and a piece asked for before a ``seek`` is never handed out after it (generations). To that end an
  answer counts only if it was asked for from exactly where its partition stands when it comes;
- the next request of a leader leaves as soon as its last answer is in, before anybody has looked at the
  records: fetching overlaps rewriting;
- no more than ``buffer_bytes`` (plus one answer a leader) wait to be taken;
- ``asked`` never flatters: a partition's time is when a request was *sent* whose answer told its high watermark. An answer of a session tells of
  every partition that it has told of before and is silent about now: silence means that nothing has changed.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.consumer import FetchRequest

from isthmus.errors import IsthmusError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import UNKNOWN_SECONDS, Leaders
from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.offsets import Partition
from isthmus.kafka.window import Window

# Large enough to fill the pipe between sites, small enough that a task's memory stays in the tens of MiB.
ANSWER_BYTES = 16 << 20
PARTITION_BYTES = 2 << 20
# How long an idle broker holds the poll. Longer saves idle CPU and delays nothing: data ends the wait.
WAIT_MS = 500

_SPAN = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")

# The broker cannot answer now, which says nothing of the data.
_PASSING = (
    kerrors.NotLeaderForPartitionError,
    kerrors.FencedLeaderEpochError,
    kerrors.UnknownLeaderEpochError,
    kerrors.LeaderNotAvailableError,
    kerrors.ReplicaNotAvailableError,
    kerrors.KafkaStorageError,
    kerrors.OffsetNotAvailableError,
)
# "Unexpected server error" may be a broker that starts, or one that will never read this offset: it gets this long.
_UNEXPECTED_SECONDS = 30.0
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
    """Raw batches of one partition, from ``position`` on; by what they say of themselves they end at ``end``."""

    partition: Partition
    position: int
    end: int
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


def size_before(data: Any, end: int) -> int:
    """How many bytes of ``data`` are batches that begin before the offset ``end``."""
    at, size = 0, len(data)
    while at + 61 <= size:
        base, length = _SPAN.unpack_from(data, at)
        if base >= end or length < 49 or at + 12 + length > size:
            break
        at += 12 + length
    return at


@dataclass(slots=True)
class _Cursor:
    position: int
    generation: int = 0
    active: bool = True
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    unexpected: float = 0.0
    asked: float = 0.0
    """When the last answered request was sent that told its end, by the clock on the wall, of sessions that are over."""

    def excused(self, error: type[Exception]) -> bool:
        """Whether an error that says nothing may pass by itself."""
        if error is not kerrors.UnknownError:
            return False
        self.unexpected = self.unexpected or time.monotonic()
        return time.monotonic() - self.unexpected < _UNEXPECTED_SECONDS


class _Session:
    """One leader's long poll, and what that broker remembers of it (KIP-227): only changes are sent again.

    ``led`` are the partitions to fetch there, ``members`` those the broker knows of and from which position it reads
    them, ``dirty`` those whose position it does not know yet, ``gone`` those it should forget. So a poll costs what has
    changed, not what there is. ``told`` are those of whose ends its answers tell, ``asked`` is when the last answered request was sent.
    """

    def __init__(self, loop: Loop, timeout: float) -> None:
        self.id, self.epoch = 0, 0
        self.answer = Window(ANSWER_BYTES, timeout)
        self.led: set[Partition] = set()
        self.members: dict[Partition, int] = {}
        self.dirty: set[Partition] = set()
        self.gone: set[Partition] = set()
        self.told: set[Partition] = set()
        self.asked = 0.0
        self.signal = Signal(loop)

    def lead(self, led: set[Partition]) -> None:
        self.led = led
        self.dirty = (self.dirty & led) | (led - self.members.keys())
        self.gone = self.members.keys() - led

    def reset(self) -> None:
        """The broker has forgotten: the next request names everything."""
        self.id, self.epoch = 0, 0
        self.members, self.gone, self.dirty = {}, set(), set(self.led)

    def changes(self) -> tuple[set[Partition], set[Partition]]:
        """What the next request has to say; taken as said, but for the positions."""
        changed, gone = (self.dirty & self.led if self.id else set(self.led)), self.gone
        for partition in gone:
            del self.members[partition]
        self.dirty, self.gone = set(), set()
        return changed, gone


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
        self._sessions: dict[int, _Session] = {}
        self._moved: set[Partition] = set()
        self._doubted: dict[str, list[tuple[Partition, int, type[Exception]]]] = {}
        self._assigning = False
        self._stamp = 0
        self._stopped = False
        self._failure: IsthmusError | None = None
        self.held = False
        self.requests = 0
        self.heard = 0.0
        """When a leader last answered, by the clock on the wall."""
        self.failures = 0
        """How often a leader that had answered stopped to do so."""
        self._watching = False

    # -- what the owner says ------------------------------------------------------------------------------

    def seek(self, partition: Partition, position: int) -> None:
        """Fetch this partition from here on; what was fetched for it before is forgotten."""
        self._stamp += 1
        cursor = self._cursors.setdefault(partition, _Cursor(position))
        cursor.position, cursor.active, cursor.generation = position, True, self._stamp
        self._moved.add(partition)
        self._assign_soon()

    def drop(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        cursor = self._cursors.get(partition)
        if cursor is not None:
            self._stamp += 1
            cursor.active, cursor.generation = False, self._stamp
            self._assign_soon()

    def hold(self, held: bool) -> None:
        """Send no further requests (rate limit, pause) until told otherwise."""
        if self.held != held:
            self.held = held
            self._wake()

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def take(self) -> Fetched | FetchProblem | None:
        """The next piece, if any. Raises what ended the fetching."""
        if self._failure is not None:
            raise self._failure
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

    def asked(self) -> dict[Partition, float]:
        """By partition, when the last answered request was sent that told its high watermark; 0.0 if there was none."""
        found = {partition: cursor.asked for partition, cursor in self._cursors.items()}
        for session in self._sessions.values():
            for partition in session.told:
                found[partition] = max(found[partition], session.asked)
        return found

    def _untold(self, session: _Session, *partitions: Partition) -> None:
        """From here on this session tells nothing of these partitions (without any: of none); what it told stays true."""
        for partition in partitions or tuple(session.told):
            if partition in session.told:
                session.told.discard(partition)
                cursor = self._cursors[partition]
                cursor.asked = max(cursor.asked, session.asked)

    def _reset(self, session: _Session) -> None:
        self._untold(session)
        session.reset()

    # -- the polls ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        for session in self._sessions.values():
            session.signal.set()

    def _assign_soon(self) -> None:
        """Sort partitions to their leaders once, however many were moved at a time."""
        if not self._assigning and not self._stopped:
            self._assigning = True
            self._loop.later(0, self._assign)

    def _assign(self) -> None:
        self._assigning = False
        led: dict[int, set[Partition]] = {node: set() for node in self._sessions}
        for partition, cursor in self._cursors.items():
            if cursor.active:
                led.setdefault(self._leaders.of(partition), set()).add(partition)
        if led.pop(-1, None) and not self._watching:
            self._watching = True
            self._loop.background(self._watch_leaderless())
        for node, partitions in led.items():
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = _Session(self._loop, self._cluster.site.request_timeout)
                self._loop.background(self._poll_forever(node, session))
            session.lead(partitions)
            session.dirty |= self._moved & partitions
        self._moved.clear()
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
        self._assign_soon()

    async def _refresh(self) -> None:
        try:
            await self._leaders.refresh()
        except (kerrors.KafkaError, OSError):
            await self._loop.sleep(0.1)
        except IsthmusError as error:
            self._failure = error
            self._stopped = True
            self._signal.set()

    async def _poll_forever(self, node: int, session: _Session) -> None:
        await self._loop.sleep(0)  # the partitions are sorted to it right after it is made
        failures = 0
        while session.led and not self._stopped:
            if self.held or self.buffered >= self._buffer_bytes:
                await session.signal.wait(1.0)
                continue
            stamp, sent, asked = self._stamp, time.monotonic(), time.time()
            try:
                response = await self._cluster.request(self._request(session), node)
                if response.error_code:
                    error = kerrors.for_code(response.error_code)
                    self._reset(session)
                    if error not in _SESSION_LOST:
                        raise error()
                    continue
                failures = 0
                self.heard = time.time()
            except (kerrors.KafkaError, OSError):
                # Nothing was lost: positions move only with answers. The next answer may come from elsewhere.
                self._reset(session)
                session.answer.shrink(sent)
                failures += 1
                if failures == 1:
                    self.failures += 1
                    self._signal.set()
                if self._stopped:
                    break
                await self._loop.sleep(min(1.0, 0.05 * 1.6**failures))
                await self._refresh()
                self._assign_soon()
                await self._loop.sleep(0)
                continue
            session.id = response.session_id
            session.epoch = session.epoch + 1 if session.id else 0
            before = self.buffered
            stale_leaders = self._accept(response, session, stamp)
            session.asked = asked
            if (size := self.buffered - before) > session.answer.bytes // 2:  # a smaller one may have been waited for
                session.answer.answered(size, sent, in_use=True)
            if stale_leaders:
                await self._refresh()
                self._assign_soon()
                await self._loop.sleep(0)
        self._untold(session)
        self._sessions.pop(node, None)
        self._assign_soon()

    def _request(self, session: _Session) -> Any:
        self.requests += 1
        by_id = self._leaders.all_have_ids and self._cluster.supports(FetchRequest, 13)
        # What was sought since the last sorting is said now: the broker would go on where it was before.
        session.dirty |= self._moved & session.led
        changed, forgotten = session.changes()
        topic_type = FetchRequest.FetchTopic
        topics: dict[str, list[Any]] = {}
        for topic, index in changed:
            session.members[topic, index] = position = self._cursors[topic, index].position
            topics.setdefault(topic, []).append(
                topic_type.FetchPartition(
                    partition=index,
                    current_leader_epoch=-1,
                    fetch_offset=position,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=min(PARTITION_BYTES, session.answer.bytes),
                )
            )
        gone: dict[str, list[int]] = {}
        for topic, index in forgotten:
            gone.setdefault(topic, []).append(index)
            self._untold(session, (topic, index))
        ids = self._leaders.ids
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=session.answer.bytes,
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

    def _accept(self, response: Any, session: _Session, stamp: int) -> bool:
        """Put what came into the inbox; True when leaders should be asked for again."""
        stale_leaders = False
        for topic in response.responses:
            name = self._leaders.names.get(topic.topic_id, "") if response.API_VERSION >= 13 else topic.topic
            for answer in topic.partitions:
                key = (name, answer.partition_index)
                cursor = self._cursors.get(key)
                if cursor is None or key not in session.members:
                    continue
                if answer.error_code:
                    self._untold(session, key)
                else:
                    # Whatever becomes of the records: where the log ends is true.
                    cursor.high_watermark = answer.high_watermark
                    session.told.add(key)
                if cursor.generation > stamp:
                    continue
                if session.members[key] != cursor.position:
                    # While a partition moves from leader to leader, both may answer; the other one was first.
                    session.dirty.add(key)
                    continue
                if answer.error_code:
                    error = kerrors.for_code(answer.error_code)
                    if error in _TOPIC_GONE:
                        self._doubt(key, error)
                    elif error in _PASSING or issubclass(error, kerrors.RetriableError) or cursor.excused(error):
                        stale_leaders = True
                    else:
                        self._report(cursor, FetchProblem(key, cursor.position, error))
                    continue
                cursor.unexpected = 0.0
                cursor.last_stable = answer.last_stable_offset
                cursor.log_start = answer.log_start_offset
                data = answer.records
                if not data:
                    continue
                end = end_of(data, cursor.position)
                aborted = [(a.producer_id, a.first_offset) for a in (answer.aborted_transactions or [])]
                self._inbox.append((cursor.generation, Fetched(key, cursor.position, end, data, aborted)))
                if end > cursor.position:
                    cursor.position = end
                    session.dirty.add(key)
                else:
                    # Not one complete batch: only damage does this. The reader of the piece will say what.
                    cursor.active = False
                    self._assign_soon()
                self.buffered += len(data)
                self._signal.set()
        return stale_leaders

    def _doubt(self, partition: Partition, error: type[Exception]) -> None:
        """Leave a partition out until it is known whether its topic is gone; the others don't wait for that."""
        cursor = self._cursors[partition]
        cursor.active = False
        self._assign_soon()
        doubted = self._doubted.setdefault(partition[0], [])
        doubted.append((partition, cursor.generation, error))
        if len(doubted) == 1:
            self._loop.background(self._find_out(partition[0]))

    async def _find_out(self, topic: str) -> None:
        """Was the topic deleted or created again, or has a broker only not heard of it yet?"""
        gone = False
        while not self._stopped:
            await self._refresh()
            since = self._leaders.missing.get(topic)
            gone = topic in self._leaders.recreated or topic in self._leaders.refused
            if gone or since is None:
                break
            gone = time.monotonic() - since >= UNKNOWN_SECONDS
            if gone:
                break
        for partition, generation, error in self._doubted.pop(topic):
            cursor = self._cursors[partition]
            if cursor.generation != generation:
                continue  # it was sought or dropped meanwhile
            if gone:
                self._report(cursor, FetchProblem(partition, cursor.position, error))
            else:
                cursor.active = True
                self._moved.add(partition)
        self._assign_soon()

    def _report(self, cursor: _Cursor, problem: FetchProblem) -> None:
        cursor.active = False
        self._assign_soon()
        self._inbox.append((cursor.generation, problem))
        self._signal.set()
