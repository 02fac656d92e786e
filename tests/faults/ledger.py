"""What goes in and what must come out: numbered load at the source, and a judge that compares both ends.

Invariant: neither uses a line of ours to read or write records. Both are confluent-kafka (librdkafka): an idempotent
producer, and consumers that see committed records only.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

import stock

if TYPE_CHECKING:
    from isthmus.sandbox import KafkaSite

QUIET = {"log_level": 0}  # librdkafka writes every lost connection to stderr
TICK_SECONDS = 0.01
OFFSET_HEADER = "isthmus-offset"
# What a reader meets while brokers come and go; anything else is a finding.
PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
}


def create_topic(site: KafkaSite, topic: str, partitions: int, copies: int = 1) -> None:
    admin = AdminClient({**site.client_config(), **QUIET})
    stock.create(admin, NewTopic(topic, partitions, copies))


class Load:
    """Numbered records to every partition of a topic, at a rate, until stopped; with ``aborts``, somebody else's aborted
    transactions in between, which nobody may ever see."""

    def __init__(
        self,
        site: KafkaSite,
        topic: str,
        partitions: int,
        rng: random.Random,
        rate: int = 1000,
        aborts: bool = False,
    ) -> None:
        self.topic = topic
        self.aborted = 0
        self._site = site
        self.rate = rate
        self.sent = [0] * partitions
        self.delivered = [0] * partitions
        self.failed: list[str] = []
        self._rng = random.Random(rng.random())
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                **site.client_config(),
                **QUIET,
                "enable.idempotence": True,
                "linger.ms": 3,
                "compression.type": self._rng.choice(["none", "lz4", "zstd", "gzip", "snappy"]),
                "delivery.timeout.ms": 240_000,
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.fast.interval.ms": 100,
            }
        )
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._run, *[self._abort] * aborts)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[int]:
        """Send no more and wait until all that was sent is written; records by partition."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        left = self._producer.flush(120)
        assert left == 0, f"{left} records of the load were not delivered"
        assert not self.failed, f"the load failed: {self.failed[0]}"
        assert self.delivered == self.sent
        return self.delivered

    def _run(self) -> None:
        due, last = 0.0, time.monotonic()
        while not self._stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            due += (now - last) * self.rate
            last = now
            while due >= 1:
                due -= 1
                self._one()
            self._producer.poll(0)

    def _abort(self) -> None:
        """Transactions that are aborted; where the source is lost in the middle of one, the next one with the same id aborts it."""
        options = {"transactional.id": f"{self.topic}-aborts", "transaction.timeout.ms": 10_000}
        rng, producer = random.Random(self._rng.random()), None
        while not self._stopping.is_set():
            try:
                if producer is None:
                    producer = Producer({**self._site.client_config(), **QUIET, **options})
                    producer.init_transactions(20)
                producer.begin_transaction()
                for _ in range(rng.randint(1, 40)):
                    producer.produce(self.topic, b"aborted", partition=rng.randrange(len(self.sent)))
                producer.flush(20)
                self._stopping.wait(rng.choice((0, 0.05, 0.2)))
                producer.abort_transaction(20)
                self.aborted += 1
            except KafkaException:
                producer = None
            self._stopping.wait(0.1)

    def _one(self) -> None:
        partition = self._rng.randrange(len(self.sent))
        number = self.sent[partition]
        # A key is sometimes missing, a value is sometimes null, sizes differ: what real topics hold.
        key = None if number % 17 == 3 else b"%d/%d" % (partition, number)
        value = None if number % 23 == 5 else b"%d:%d:" % (partition, number) + self._rng.randbytes(number % 300)
        headers = [("n", b"%d" % number), ("empty", None)] if number % 3 else None
        try:
            self._producer.produce(self.topic, value, key, partition, self._told, headers=headers)
        except BufferError:
            self._producer.poll(TICK_SECONDS)  # the source is away: the load waits for it
        else:
            self.sent[partition] += 1

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.delivered[message.partition()] += 1


Fact = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], tuple[int, int]]


@dataclass
class _End:
    """One end of the link, read from its first record on."""

    consumer: Consumer
    counts: list[int]
    at_end: set[int] = field(default_factory=set)

    def take(self, seconds: float) -> list[Message]:
        messages = []
        for message in self.consumer.consume(20_000, seconds):
            error = message.error()
            if error is None:
                self.at_end.discard(message.partition())
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.at_end.add(message.partition())
            else:
                assert error.code() in PASSING, f"reading {message.topic()}[{message.partition()}]: {error}"
        return messages


class Judge:
    """Compares the destination with the source, record by record, in order, as both grow.

    What was compared is forgotten but for its offsets, so judging again costs only what is new.
    """

    def __init__(
        self, source: KafkaSite, target: KafkaSite, topic: str, partitions: int, target_topic: str = ""
    ) -> None:
        self._sites = (source, target)
        self._topic = topic
        self._partitions = partitions
        self._target_topic = target_topic or topic
        self._source = self._open(source, topic)
        self._target = self._open(target, self._target_topic)
        self._expected: list[deque[tuple[int, Fact]]] = [deque() for _ in range(partitions)]
        # (source offset, destination offset) of each judged record
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]

    def close(self) -> None:
        self._source.consumer.close()
        self._target.consumer.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def copied(self) -> int:
        """Records of the destination that were found right so far."""
        return sum(self._target.counts)

    def _open(self, site: KafkaSite, topic: str) -> _End:
        consumer = Consumer(
            {
                **site.client_config(),
                **QUIET,
                "group.id": "judge",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.interval.ms": 1000,
                "topic.metadata.propagation.max.ms": 0,
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(self._partitions)])
        return _End(consumer, [0] * self._partitions)

    # -- judging ------------------------------------------------------------------------------------------

    def look(self, seconds: float = 0.05) -> int:
        """Judge what is there by now; how many records of the destination were looked at."""
        self._read_source(0.01)
        messages = self._target.take(seconds)
        for message in messages:
            self._judge(message)
        return len(messages)

    def follow(self, load: Load, timeout: float = 300.0) -> None:
        """Judge until all that the load has written by now has come out at the destination."""
        deadline = time.monotonic() + timeout
        while not all(load.delivered):
            assert time.monotonic() < deadline, "the load did not begin"
            time.sleep(TICK_SECONDS)
        now = list(load.delivered)
        while any(have < want for have, want in zip(self._target.counts, now, strict=True)):
            self.look(0.2)
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{self._target.counts} of {now} records came out in {timeout} s; {self._whereabouts()}"
                )

    def _whereabouts(self) -> str:
        """Where each end's log stands, and where we read it: who is late, the link or the reader."""
        told = []
        for end, site, topic in zip(
            (self._source, self._target), self._sites, (self._topic, self._target_topic), strict=True
        ):
            client = AdminClient({**site.client_config(), **QUIET})
            where = [TopicPartition(topic, p) for p in range(self._partitions)]
            try:
                ends = {
                    level.name: [
                        future.result(20).offset
                        for future in client.list_offsets(
                            dict.fromkeys(where, OffsetSpec.latest()), isolation_level=level
                        ).values()
                    ]
                    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
                }
                leaders = {
                    n: p.leader for n, p in client.list_topics(topic, timeout=20).topics[topic].partitions.items()
                }
            except KafkaException as error:
                ends, leaders = {"unknown": [str(error)]}, {}
            at = [p.offset for p in end.consumer.position(where)]
            told.append(f"{site.name}: read to {at}, ends {ends}, leaders {leaders}")
        return "; ".join(told)

    def finish(self, counts: Sequence[int], timeout: float = 120.0) -> None:
        """Both ends hold exactly these many records a partition, the same ones, and nothing comes after them."""
        deadline = time.monotonic() + timeout
        while not self._complete(counts):
            self.look(0.2)
            assert time.monotonic() < deadline, (
                f"not complete after {timeout} s: the source has {self._source.counts} of {list(counts)} records, the "
                f"destination {self._target.counts}"
            )
        assert self._source.counts == list(counts)
        assert self._target.counts == list(counts), f"{self._target.counts} instead of {list(counts)}"

    def _complete(self, counts: Sequence[int]) -> bool:
        if any(
            have < want for end in (self._source, self._target) for have, want in zip(end.counts, counts, strict=True)
        ):
            return False
        return all(len(end.at_end) == self._partitions for end in (self._source, self._target))

    def _read_source(self, seconds: float) -> None:
        for message in self._source.take(seconds):
            p = message.partition()
            self._source.counts[p] += 1
            self._expected[p].append((message.offset(), _fact(message, message.headers() or [])))

    def _judge(self, message: Message) -> None:
        p, where = message.partition(), f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        deadline = time.monotonic() + 30
        while not self._expected[p]:
            assert time.monotonic() < deadline, f"{where}: more records than the source has; key {message.key()!r}"
            self._read_source(0.1)
        offset, fact = self._expected[p].popleft()
        headers = list(message.headers() or [])
        assert headers, f"{where}: no offset header"
        name, stamp = headers.pop()
        assert name == OFFSET_HEADER, f"{where}: no offset header"
        came = struct.unpack(">q", stamp or b"")[0]
        if came != offset:
            what = "doubled or out of order" if came < offset else "records were lost"
            raise AssertionError(f"{where}: {what}: source offset {came} where {offset} is due")
        assert _fact(message, headers) == fact, f"{where}: changed: {_fact(message, headers)} instead of {fact}"
        self._target.counts[p] += 1
        self.pairs[p].append((offset, message.offset()))

    # -- what the link says of itself ---------------------------------------------------------------------

    def check_map(self, link: str) -> None:
        """The link's own offset map says of each record exactly where it is."""
        import numpy as np

        from isthmus.engine import state
        from isthmus.engine.offset_map import build_maps

        pairs = [(m.key() or b"", m.value()) for m in read_topic(self._sites[1], state.map_topic(link))]
        maps = build_maps(pairs)
        for p, known in enumerate(self.pairs):
            if not known:
                continue
            at = np.array(known, np.int64)
            answer, exact, copied = maps[self._topic, p].translate_many(at[:, 0].copy())
            assert exact.all(), f"partition {p}: source offset {at[~exact, 0][0]} is not in the map"
            assert copied.all()
            wrong = answer != at[:, 1]
            assert not wrong.any(), f"partition {p}: the map says {answer[wrong][0]} for {at[wrong][0]}"


def _fact(message: Message, headers: list[tuple[str, bytes | None]]) -> Fact:
    return (message.key(), message.value(), tuple(headers), message.timestamp())


def read_topic(site: KafkaSite, topic: str, timeout: float = 30.0) -> list[Message]:
    """Committed records of a topic's one partition."""
    consumer = Consumer(
        {
            **site.client_config(),
            **QUIET,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    end, messages, deadline = _End(consumer, []), [], time.monotonic() + timeout
    try:
        while not end.at_end:
            messages += end.take(0.2)
            assert time.monotonic() < deadline, f"{topic} has no end"
    finally:
        consumer.close()
    return messages
