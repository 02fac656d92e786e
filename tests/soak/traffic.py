"""Writers and a checker for hours of faults; both are confluent-kafka, no line of ours reads or writes a record.

Invariants that the checker judges while faults go on, at every site, for each partition and writer:
- numbers ascend: a record comes once, in the order in which it was written (``repeats`` allows a record to come again);
- the numbers of a plain writer have no gap: a record that is passed over is lost, whatever comes later.
At a quiet point it also judges that each site holds every acknowledged record, and nothing that was aborted.
"""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

if TYPE_CHECKING:
    from isthmus.sandbox import KafkaSite

QUIET = {"log_level": 0}
OFFSET_HEADER = "isthmus-offset"
ABORTED = b"aborted"
# An outage of a site is waited for: a writer's record is only given up when the soak itself ends.
DELIVERY_SECONDS = 600


class Violation(AssertionError):
    """What was promised does not hold."""


class Writer:
    """Numbered records to every partition of a topic until stopped. A transactional one aborts some of what it writes."""

    def __init__(
        self, site: KafkaSite, topic: str, partitions: int, name: str, rng: random.Random, *, transactional: bool
    ) -> None:
        self.site, self.topic, self.name, self.transactional = site, topic, name, transactional
        self.acked: dict[int, set[int]] = {p: set() for p in range(partitions)}
        self._next = dict.fromkeys(range(partitions), 0)
        self._rng = random.Random(rng.random())
        self._rate = self._rng.choice([100, 300, 600])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._transact if transactional else self._write, daemon=True)
        self._producer: Producer | None = None

    def start(self) -> Writer:
        self._thread.start()
        return self

    def stop(self, patience: float = 120.0) -> None:
        """Write no more. Without patience, what is not acknowledged by then is not counted on."""
        self._stop.set()
        self._thread.join(patience)
        if patience and self._thread.is_alive():
            raise Violation(f"the writer {self.name} cannot write to {self.site.name}, although the site is up")

    def _make(self, **options: Any) -> Producer:
        return Producer(
            {
                **self.site.client_config(),
                **QUIET,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": self._rng.choice(["none", "lz4", "zstd", "gzip", "snappy"]),
                "reconnect.backoff.max.ms": 300,
                **options,
            }
        )

    def _value(self, partition: int, kind: bytes) -> tuple[int, bytes]:
        number = self._next[partition]
        self._next[partition] = number + 1
        return number, b"%s:%s:%d:" % (kind, self.name.encode(), number) + self._rng.randbytes(number % 200)

    def _write(self) -> None:
        producer = self._make(**{"delivery.timeout.ms": DELIVERY_SECONDS * 1000})

        def told(error: KafkaError | None, message: Message, number: int) -> None:
            if error is None:
                self.acked[message.partition()].add(number)

        while not self._stop.wait(1 / self._rate):
            partition = self._rng.randrange(len(self._next))
            number, value = self._value(partition, b"r")
            while not self._stop.is_set():
                try:
                    producer.produce(
                        self.topic,
                        value,
                        None,
                        partition,
                        lambda e, m, n=number: told(e, m, n),
                        headers={"w": self.name},
                    )
                    break
                except BufferError:
                    producer.poll(0.05)  # the site is away: the writer waits for it
            producer.poll(0)
        producer.flush(DELIVERY_SECONDS)

    def _transact(self) -> None:
        identity = {"transactional.id": f"{self.name}-{random.randrange(1 << 30)}", "transaction.timeout.ms": 20_000}
        producer: Producer | None = None
        while not self._stop.is_set():
            try:
                if producer is None:
                    producer = self._make(**identity)
                    producer.init_transactions(60)
                self._one_transaction(producer)
            except (KafkaException, BufferError):
                producer = None  # its outcome is whatever the site says; the next one takes the id over
                time.sleep(0.2)

    def _one_transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        abort = self._rng.random() < 0.3
        written: list[tuple[int, int]] = []
        for _ in range(self._rng.randint(1, 30)):
            partition = self._rng.randrange(len(self._next))
            number, value = self._value(partition, ABORTED if abort else b"r")
            producer.produce(self.topic, value, None, partition, headers={"w": self.name})
            written.append((partition, number))
        self._stop.wait(self._rng.choice([0, 0.01, 0.2]))
        producer.flush(60)  # a transaction that the site never heard of cannot be aborted there
        if abort:
            producer.abort_transaction(60)
            return
        while True:
            try:
                producer.commit_transaction(60)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        for partition, number in written:
            self.acked[partition].add(number)


class Table:
    """A compacted topic at one site: few keys, many values. What counts is the last value of each key."""

    def __init__(self, site: KafkaSite, topic: str, rng: random.Random) -> None:
        self.topic = topic
        self._site, self._rng = site, random.Random(rng.random())
        self._stop = threading.Event()
        # While work is somewhere else nobody writes here.
        self.resting = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> Table:
        self._thread.start()
        return self

    def stop(self, patience: float = 120.0) -> None:
        self._stop.set()
        self._thread.join(patience)

    def _write(self) -> None:
        producer = Producer(
            {
                **self._site.client_config(),
                **QUIET,
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
                "reconnect.backoff.max.ms": 300,
            }
        )
        number = 0
        while not self._stop.wait(0.005):
            if self.resting.is_set():
                producer.poll(0.1)
                continue
            key, value = b"k%d" % self._rng.randrange(40), b"%d" % number
            with contextlib.suppress(BufferError):
                producer.produce(self.topic, value if self._rng.random() < 0.95 else None, key, 0)
                number += 1
            producer.poll(0)
        producer.flush(DELIVERY_SECONDS)

    def at(self, site: KafkaSite, timeout: float = 60.0) -> dict[bytes, bytes]:
        """The last value of each key, as a reader of committed records finds it."""
        options = {"group.id": "soak-table", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({**site.client_config(), **QUIET, **options, "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: dict[bytes, bytes | None] = {}
        deadline = time.monotonic() + timeout
        with contextlib.closing(consumer):
            while time.monotonic() < deadline:
                for message in consumer.consume(5000, 0.2):
                    if message.error() is None:
                        found[message.key()] = message.value()
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        return {key: value for key, value in found.items() if value is not None}
        raise Violation(f"{site.name}: {self.topic} has no end")


@dataclass
class _Seen:
    """What stood at one site, by (partition, writer)."""

    last: dict[tuple[int, str], int] = field(default_factory=dict)
    numbers: dict[tuple[int, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    repeated: int = 0
    # (source offset, destination offset) of copies, by partition
    copies: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))


class Checker:
    """Reads a topic at all sites from its first record on, judging as it goes."""

    def __init__(self, sites: Sequence[KafkaSite], topic: str, partitions: int, *, repeats: bool) -> None:
        self._sites = {site.name: site for site in sites}
        self._topic, self._partitions, self._repeats = topic, partitions, repeats
        self._plain: dict[str, bool] = {}
        self.seen: dict[str, _Seen] = {name: _Seen() for name in self._sites}
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._sites]

    def start(self) -> Checker:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def expect(self, writer: Writer) -> Writer:
        """A writer whose records are going to come."""
        self._plain[writer.name] = not writer.transactional
        return writer

    def _read(self, name: str) -> None:
        consumer = Consumer(
            {
                **self._sites[name].client_config(),
                **QUIET,
                "group.id": "soak-checker",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        consumer.assign([TopicPartition(self._topic, p, 0) for p in range(self._partitions)])
        with contextlib.closing(consumer):
            while not self._stop.is_set():
                for message in consumer.consume(5000, 0.2):
                    if message.error() is None:
                        self._judge(name, message)

    def _judge(self, site: str, message: Message) -> None:
        where = f"{site}: {self._topic}[{message.partition()}] offset {message.offset()}"
        kind, writer, digits, _ = (message.value() or b"").split(b":", 3)
        seen, key, number = self.seen[site], (message.partition(), writer.decode()), int(digits)
        last = seen.last.get(key, -1)
        if kind == ABORTED:
            self.wrong.append(f"{where}: {key[1]} {number} was aborted by its writer")
        elif number <= last and not self._repeats:
            what = "twice" if number in seen.numbers[key] else "out of order"
            self.wrong.append(f"{where}: {key[1]} {number} {what}; the last one was {last}")
        elif number > last + 1 and self._plain[key[1]]:
            self.wrong.append(f"{where}: {key[1]} {last + 1} to {number - 1} are missing before {number}")
        seen.repeated += number in seen.numbers[key]
        seen.numbers[key].add(number)
        seen.last[key] = max(last, number)
        stamp = dict(message.headers() or []).get(OFFSET_HEADER)
        if stamp is not None:
            seen.copies[message.partition()].append((struct.unpack(">q", stamp)[0], message.offset()))

    def raise_if_wrong(self) -> None:
        if self.wrong:
            raise Violation("\n".join(self.wrong[:10]))

    def missing(self, writers: Sequence[Writer]) -> list[str]:
        """Which acknowledged records are not at some site yet, and which are at one site only."""
        found = []
        for writer in writers:
            for partition, acked in writer.acked.items():
                key = (partition, writer.name)
                wanted = acked.union(*(seen.numbers[key] for seen in self.seen.values()))
                for site, seen in self.seen.items():
                    if lacking := wanted - seen.numbers[key]:
                        some = sorted(lacking)
                        found.append(
                            f"{site}: {self._topic}[{partition}] lacks {len(some)} of {writer.name}, from {some[0]} to {some[-1]}"
                        )
        return found
