"""What tests of disasters share: two sites that can die, traffic and consumers of a stock client, and a judge of both sites.

Invariant: what was written, what was read and what is where is told by confluent-kafka; the product is only driven.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from links import QUIET, Answer, Record, Run, Setup, isthmus, read

from isthmus.sandbox import KafkaSite

PARTITIONS = 3


class Traffic:
    """Writes numbered records to all partitions of a topic until stopped; ``acked`` is what the site took, by partition and in order, ``at`` is when
    that was heard: never before the site said it."""

    def __init__(self, site: KafkaSite, topic: str, stem: str, rate: float = 300.0) -> None:
        self.stem, self.acked = stem, {p: [] for p in range(PARTITIONS)}  # type: dict[int, list[bytes]]
        self.at: dict[bytes, float] = {}
        self._topic, self._rate = topic, rate
        self._producer = Producer(
            {
                "bootstrap.servers": site.bootstrap,
                **QUIET,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 5000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._told: dict[int, set[bytes]] = {p: set() for p in range(PARTITIONS)}

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acked[message.partition()].append(message.value())
            self.at[message.value()] = time.time()

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = f"{self.stem} {number:07d}".encode()
            headers = [("trace", uuid.uuid4().bytes)]
            with contextlib.suppress(BufferError):
                self._producer.produce(
                    self._topic,
                    value,
                    f"k{number % 50}",
                    number % PARTITIONS,
                    headers=headers,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0)
            time.sleep(1 / self._rate)
        self._producer.flush(6)


class Reader:
    """A consumer group of one stock client that commits what it has read; ``values`` is what it committed, ``seen`` all it saw."""

    def __init__(self, site: KafkaSite, topic: str, group: str) -> None:
        self.committed: list[bytes] = []
        self.seen: list[bytes] = []
        self._stop = threading.Event()
        self._pending: deque[list[bytes]] = deque()
        self._consumer = Consumer(
            {
                "bootstrap.servers": site.bootstrap,
                **QUIET,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "session.timeout.ms": 6000,
                "socket.timeout.ms": 2000,
                "on_commit": self._told,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, dead: bool = False) -> None:
        """Leave the group. A client of a dead site takes until the site is back, and is not waited for."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(30)
            closing = threading.Thread(target=self._consumer.close, daemon=True)
            closing.start()
            if not dead:
                closing.join(30)

    def _told(self, error: KafkaError | None, _: Any) -> None:
        """Commits are answered in the order in which they were sent."""
        values = self._pending.popleft()
        if error is None:
            self.committed += values

    def _read(self) -> None:
        while not self._stop.is_set():
            messages = [m for m in self._consumer.consume(200, 0.2) if m.error() is None]
            self.seen += [m.value() for m in messages]
            if not messages:
                continue
            ends = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
            self._pending.append([m.value() for m in messages])
            self._consumer.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in ends.items()], asynchronous=True)


@dataclass
class World:
    """Two sites, a topic on both, links both ways (or one), and ``isthmus run`` for all of them."""

    east: KafkaSite
    west: KafkaSite
    topic: str
    setup: Setup
    run: Run | None = None
    lost: set[bytes] = field(default_factory=set)

    def start(self) -> None:
        self.stop()
        self.run = Run(self.setup)

    def stop(self) -> None:
        if self.run is not None:
            self.run.__exit__()
            self.run = None

    def command(self, *arguments: str) -> Answer:
        return isthmus(self.setup, *arguments, "--json")

    def done(self, *arguments: str) -> dict[str, Any]:
        """A command that must succeed; its report."""
        answer = self.command(*arguments)
        assert answer.code == 0, f"{arguments}: {answer.code}\n{answer.out}\n{answer.err}"
        document: dict[str, Any] = answer.document
        return document

    def kill(self, site: KafkaSite) -> None:
        for broker in site.brokers:
            broker.kill()

    def both(self) -> tuple[dict[int, list[Record]], dict[int, list[Record]]]:
        return read(self.east, self.topic), read(self.west, self.topic)


def values(records: Mapping[int, list[Record]]) -> dict[int, list[bytes]]:
    return {p: [record.value or b"" for record in found] for p, found in records.items()}


def judge(world: World, *written: Traffic, but: set[bytes] | None = None) -> int:
    """Every acknowledged record is at both sites exactly once, and nothing else; how many. ``but`` may be missing."""
    east, west = (values(records) for records in world.both())
    for name, site in (("east", east), ("west", west)):
        for partition, found in site.items():
            twice = [value for value, count in Counter(found).items() if count > 1]
            assert not twice, f"{name}[{partition}]: {len(twice)} records twice, such as {twice[:3]}"
    total = 0
    for partition in range(PARTITIONS):
        here, there = set(east[partition]), set(west[partition])
        assert here == there, (
            f"[{partition}]: only at east {sorted(here - there)[:3]} ({len(here - there)}), only at west {sorted(there - here)[:3]} "
            f"({len(there - here)})"
        )
        for traffic in written:
            missing = set(traffic.acked[partition]) - here - (but or set())
            assert not missing, (
                f"[{partition}]: {len(missing)} of {traffic.stem} are gone, such as {sorted(missing)[:3]}"
            )
        total += len(here)
    return total


def within_declared(setup: Setup, report: dict[str, Any], lost: Mapping[tuple[str, int], Sequence[float]]) -> None:
    """Each record that was lost, by when its acknowledgement was heard, is one that was declared as seen, or came after what its partition was known
    until."""
    (links,) = (step["found"]["links"] for step in report["steps"] if step["step"] == "declare")
    for (topic, partition), times in lost.items():
        seen, known = 0, 0.0
        for link in links:
            if not setup.config.links[link["link"]].topics.matches(topic):
                continue
            mine = [each for each in link["partitions"] if (each["topic"], each["partition"]) == (topic, partition)]
            since = [e["since"] or 0.0 for e in link["unknown"] if (e["topic"], e["partition"]) == (topic, partition)]
            seen += sum(each["most"] for each in mine) + link["left_out"]["records"]
            known = max(known, *since) if since else max(known, link["known_until"] or 0.0)
        sooner = [at for at in times if at < known]
        assert len(sooner) <= seen, (
            f"{topic}[{partition}]: {len(sooner)} records were lost that were acknowledged before {known}, and {seen} declared: "
            f"the first {known - min(sooner):.3f} s before; {links}"
        )


def in_order(records: Mapping[int, list[bytes]], stem: str) -> None:
    """The records of one writer stand in the order in which they were written."""
    for partition, found in records.items():
        mine = [value for value in found if value.startswith(stem.encode() + b" ")]
        assert mine == sorted(mine), f"{stem}[{partition}] is out of order"


@contextlib.contextmanager
def dying(monkeypatch: Any) -> Iterator[list[int]]:
    """Operations die around each step: at one attempt before its outcome is written, at the next one after; counts the deaths."""
    from isthmus.recovery.journal import Journal

    original, deaths = Journal.write, [0]

    async def write(self: Journal) -> None:
        if not self.entry.unfinished:
            await original(self)
            return
        calls = getattr(self, "_calls", 0) + 1
        object.__setattr__(self, "_calls", calls)
        if calls == 1 and self.entry.attempts > 1:  # the opening of an attempt
            await original(self)
            return
        deaths[0] += 1
        if deaths[0] % 2 == 0:
            await original(self)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", write)
        yield deaths


class Killed(BaseException):
    """Not an error: the process is gone."""
