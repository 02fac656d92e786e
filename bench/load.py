"""Data for the benchmark: written by confluent-kafka, random enough that a codec neither wins nor loses much."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

QUIET = {"log_level": 0}


def create(bootstrap: str, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result()


def delete_all(bootstrap: str) -> None:
    """Every topic but the broker's own: the next system starts from nothing."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    names = [name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")]
    if names:
        for future in admin.delete_topics(names).values():
            future.result()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")]
        if not left:
            return
        time.sleep(0.1)


def values(size: int) -> list[bytes]:
    """Half random, half repeated: compresses to about 60%, as events with ids and fixed words do."""
    rng = random.Random(7)
    return [
        (rng.randbytes(size // 2) + b"the quick brown fox jumps over " * (size // 50 + 1))[:size] for _ in range(997)
    ]


def fill(
    bootstrap: str, topic: str, partitions: int, count: int, size: int, compression: str, headers: int = 0
) -> None:
    """``count`` records, spread evenly."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 262144,
            "batch.num.messages": 100000,
            "compression.type": compression,
            "queue.buffering.max.messages": 500000,
            "queue.buffering.max.kbytes": 262144,
            "message.max.bytes": 10_000_000,
            **QUIET,
        }
    )
    some = values(size)
    extra: Any = [(f"h{n}", b"value") for n in range(headers)] or None
    for number in range(count):
        while True:
            try:
                producer.produce(topic, some[number % 997], partition=number % partitions, headers=extra)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10000 == 0:
            producer.poll(0)
    producer.flush()


class Counter:
    """How many records of a topic a reader of committed records could see."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = ck.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench-counter", "isolation.level": "read_committed", **QUIET}
        )
        self._partitions = [ck.TopicPartition(topic, p) for p in range(partitions)]

    def ends(self) -> list[int]:
        try:
            return [self._consumer.get_watermark_offsets(p, timeout=10)[1] for p in self._partitions]
        except ck.KafkaException:
            return [0] * len(self._partitions)

    def close(self) -> None:
        self._consumer.close()


class Ticker(threading.Thread):
    """A steady trickle of records that carry the moment at which they were written."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int, size: int) -> None:
        super().__init__(daemon=True)
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUIET})
        self._topic, self._partitions, self._rate = topic, partitions, per_second
        self._fill = bytes(max(0, size - 8))
        self._over = threading.Event()

    def run(self) -> None:
        number, started = 0, time.monotonic()
        while not self._over.is_set():
            due = int((time.monotonic() - started) * self._rate)
            while number < due:
                value = time.time_ns().to_bytes(8, "big") + self._fill
                self._producer.produce(self._topic, value, partition=number % self._partitions)
                number += 1
            self._producer.poll(0)
            time.sleep(0.001)
        self._producer.flush()

    def stop(self) -> None:
        self._over.set()
        self.join()
