"""Traffic of a drill, and who reads it: numbered records, each of which is accounted for.

Invariants:
- a record's name (who wrote it, and its number) is in a header of its own, so that rules which change keys or values do not
  hide it; a writer's numbers ascend in each partition;
- only what a site has acknowledged counts as written; a reader counts a record whenever it is given one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from isthmus.config import Site
from isthmus.kafka.cluster import connection_settings

HEADER = "isthmus-drill"
# A client of a dead site is not waited for longer than this.
PATIENCE_SECONDS = 5.0

Partition = tuple[str, int]


def _client(site: Site) -> dict[str, Any]:
    return {"bootstrap_servers": list(site.bootstrap), "client_id": "isthmus-drill", **connection_settings(site)}


class Writer:
    """Writes to all partitions of some topics at a steady rate, until stopped."""

    def __init__(self, name: str, site: Site, topics: Mapping[str, int], rate: float) -> None:
        self.name, self.site = name, site.name
        self.acknowledged: dict[str, float] = {}
        """Names of records, with the time at which the site took them."""
        self.places: dict[str, Partition] = {}
        self.refused = 0
        self.sent = 0
        self._partitions = [(topic, p) for topic, count in topics.items() for p in range(count)]
        self._rate = rate
        self._producer = KafkaProducer(
            **_client(site),
            acks="all",
            linger_ms=5,
            request_timeout_ms=3000,
            delivery_timeout_ms=int(PATIENCE_SECONDS * 1000),
            max_block_ms=10_000,
            reconnect_backoff_max_ms=500,
            allow_auto_create_topics=False,
        )
        self._ending = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._write, name=f"drill-writer-{name}", daemon=True)
        self._thread.start()

    def wait(self, count: int, seconds: float) -> None:
        """Until so many more are acknowledged, or the time is up."""
        goal, deadline = len(self.acknowledged) + count, time.monotonic() + seconds
        while len(self.acknowledged) < goal and time.monotonic() < deadline:
            time.sleep(0.05)

    def ask_to_stop(self) -> None:
        """Write no more; ``stop`` waits for the end of it."""
        self._ending.set()

    def stop(self, dead: bool = False) -> None:
        """Write no more, and wait for the answers that may still come; from a ``dead`` site there are none."""
        if self._ended:
            return
        self._ended = True
        self.ask_to_stop()
        self._thread.join(2 * PATIENCE_SECONDS)
        with contextlib.suppress(kerrors.KafkaError):
            if not dead:
                self._producer.flush(timeout=PATIENCE_SECONDS)
        with contextlib.suppress(kerrors.KafkaError):
            self._producer.close(timeout=0 if dead else 1)

    def _write(self) -> None:
        began = time.monotonic()
        while not self._ending.is_set():
            due = int((time.monotonic() - began) * self._rate)
            while self.sent < due and not self._ending.is_set():
                self._send(self.sent)
                self.sent += 1
            self._ending.wait(0.01)

    def _send(self, number: int) -> None:
        topic, partition = self._partitions[number % len(self._partitions)]
        name = f"{self.name}/{number:08d}"
        try:
            future = self._producer.send(
                topic,
                value=f'{{"drill": "{self.name}", "number": {number}}}'.encode(),
                key=f"key-{number % 97}".encode(),
                headers=[(HEADER, name.encode())],
                partition=partition,
            )
        except kerrors.KafkaError:
            self.refused += 1
            return
        future.add_callback(self._taken, name, (topic, partition))
        future.add_errback(self._not_taken)

    def _taken(self, name: str, place: Partition, _: Any) -> None:
        self.places[name] = place
        self.acknowledged[name] = time.time()

    def _not_taken(self, _: Any) -> None:
        self.refused += 1


class Reader:
    """A consumer group of one member that commits what it has read. ``seen`` counts each record by its name."""

    def __init__(self, group: str, site: Site, topics: Mapping[str, int], seen: Counter[str]) -> None:
        self.seen = seen
        self.read = 0
        self.trouble = ""
        """What the site said the last time that it refused."""
        self._dead = False
        self._ending = threading.Event()
        self._consumer = KafkaConsumer(
            **_client(site),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1500,
            max_poll_interval_ms=10_000,
            fetch_max_wait_ms=100,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=500,
            allow_auto_create_topics=False,
        )
        self._consumer.subscribe(topics=sorted(topics))
        self._thread = threading.Thread(target=self._read, name="drill-reader", daemon=True)
        self._thread.start()

    def ask_to_stop(self, dead: bool = False) -> None:
        """Commit and leave the group; ``stop`` waits for the end of it."""
        self._dead = dead
        self._ending.set()

    def stop(self, dead: bool = False) -> None:
        """Commit and leave the group. With ``dead``, the site is gone: nothing is committed, and nobody is told."""
        self.ask_to_stop(dead)
        self._thread.join(3 * PATIENCE_SECONDS)

    def begin(self, seconds: float = 30.0) -> None:
        """Wait until it has read something: a group takes a moment to come together."""
        deadline = time.monotonic() + seconds
        while not self.read and time.monotonic() < deadline:
            time.sleep(0.05)

    def wait(self, wanted: set[str], seconds: float) -> set[str]:
        """Until all of these were read, or the time is up; what was not."""
        deadline = time.monotonic() + seconds
        while (left := wanted - self.seen.keys()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _read(self) -> None:
        # The client is not for several threads: who polls it also ends it, late as that may be at a dead site.
        try:
            while not self._ending.is_set():
                self._poll()
            with contextlib.suppress(kerrors.KafkaError):
                if not self._dead:
                    self._consumer.commit(timeout_ms=int(PATIENCE_SECONDS * 1000))
        finally:
            with contextlib.suppress(kerrors.KafkaError):
                self._consumer.close(autocommit=False, timeout_ms=1000)

    def _poll(self) -> None:
        try:
            # A group comes together over several requests, which a short poll would cut off.
            found = self._consumer.poll(timeout_ms=300 if self._consumer.assignment() else 5000)
        except kerrors.KafkaError as error:
            self.trouble = f"{type(error).__name__}: {error}"
            self._ending.wait(0.2)
            return
        names = [_name(record) for records in found.values() for record in records]
        if not names:
            return
        self.trouble = ""
        self.seen.update(name for name in names if name)
        self.read += len(names)
        with contextlib.suppress(kerrors.KafkaError):
            self._consumer.commit_async()


def _name(record: Any) -> str:
    return next((value.decode(errors="replace") for key, value in record.headers if key == HEADER and value), "")


def contents(site: Site, topics: Mapping[str, int], seconds: float = 60.0) -> dict[Partition, list[str]]:
    """The names of all records that a site holds, by partition and in order, as a reader of committed records sees them."""
    partitions = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
    found: dict[Partition, list[str]] = {(tp.topic, tp.partition): [] for tp in partitions}
    consumer = KafkaConsumer(
        **_client(site),
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
        allow_auto_create_topics=False,
    )
    try:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(*partitions)
        deadline = time.monotonic() + seconds
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for tp, records in consumer.poll(timeout_ms=500).items():
                found[tp.topic, tp.partition] += filter(None, map(_name, records))
            if time.monotonic() > deadline:
                raise kerrors.KafkaTimeoutError(f"{site.name} was not read to its end within {seconds:.0f} s")
    finally:
        consumer.close(autocommit=False, timeout_ms=1000)
    return found


@dataclass(slots=True)
class Judgement:
    """What one site holds, against what was acknowledged."""

    site: str
    held: int = 0
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.missing or self.doubled or self.out_of_order)

    def to_json(self) -> dict[str, Any]:
        return {
            "site": self.site,
            "held": self.held,
            "missing": len(self.missing),
            "doubled": len(self.doubled),
            "out_of_order": len(self.out_of_order),
            "first": {"missing": self.missing[:3], "doubled": self.doubled[:3], "out_of_order": self.out_of_order[:3]},
        }


def judge(site: str, held: Mapping[Partition, list[str]], wanted: set[str]) -> Judgement:
    """Each record of ``wanted`` is there once, and each writer's records stand in the order in which they were written."""
    found = Judgement(site)
    everywhere: Counter[str] = Counter()
    for names in held.values():
        everywhere.update(names)
        last: dict[str, str] = {}
        for name in names:
            writer = name.partition("/")[0]
            if name < last.get(writer, ""):
                found.out_of_order.append(name)
            last[writer] = max(name, last.get(writer, ""))
    found.held = sum(everywhere.values())
    found.missing = sorted(wanted - everywhere.keys())
    found.doubled = sorted(name for name, count in everywhere.items() if count > 1)
    return found
