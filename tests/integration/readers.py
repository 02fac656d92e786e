"""Consumer groups as tests use them: committing, reading and asking for positions by confluent-kafka, and our verb.

Invariant: a group whose position is not there fails loudly (``auto.offset.reset`` is ``error``) rather than to start elsewhere.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from links import QUIET, Setup, admin, isthmus, wait_for

from isthmus.sandbox import KafkaSite

Offsets = Mapping[tuple[str, int], int]


def consumer_of(site: KafkaSite, group: str, **options: Any) -> Consumer:
    settings = {key.replace("_", "."): value for key, value in options.items()}
    return Consumer(
        {
            "bootstrap.servers": site.admin_bootstrap,
            **QUIET,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # a position that is not there must not pass for one
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            **settings,
        }
    )


@contextlib.contextmanager
def member(site: KafkaSite, group: str, topic: str, **options: Any) -> Iterator[Consumer]:
    """A member of the group that has been assigned what it reads."""
    consumer = consumer_of(site, group, auto_offset_reset="earliest", **options)
    consumer.subscribe([topic])
    try:
        wait_for(lambda: (consumer.poll(0.1), consumer.assignment())[1], f"{group} to be assigned")
        yield consumer
    finally:
        consumer.close()


def commit(site: KafkaSite, group: str, offsets: Offsets, metadata: str = "") -> None:
    """Commit as a tool does, without joining the group."""
    consumer = consumer_of(site, group)
    places = [TopicPartition(topic, p, offset, metadata=metadata) for (topic, p), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def positions(site: KafkaSite, group: str) -> dict[tuple[str, int], TopicPartition]:
    """All that a group has committed, as an admin client sees it."""
    client = admin(site)
    (future,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(p.topic, p.partition): p for p in future.result(30).topic_partitions if p.offset >= 0}


def committed(site: KafkaSite, group: str, topic: str, partition: int = 0) -> TopicPartition:
    return positions(site, group).get((topic, partition)) or TopicPartition(topic, partition, -1)


def read_on(
    site: KafkaSite, group: str, topic: str, most: int | None = None, commit: bool = False, **options: Any
) -> dict[int, list[bytes]]:
    """What a member of the group gets to read, until the end of every partition, or at most so many records."""
    consumer = consumer_of(site, group, **options)
    consumer.subscribe([topic])
    got: dict[int, list[bytes]] = {}
    partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    done, count, deadline = set[int](), 0, time.monotonic() + 60
    try:
        while done != partitions and (most is None or count < most):
            assert time.monotonic() < deadline, f"{group} at {site.name}: no end of {topic} after {count} records"
            for message in consumer.consume(1000 if most is None else min(1000, most - count), 0.1):
                error = message.error()
                if error is None:
                    got.setdefault(message.partition(), []).append(message.value())
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    done.add(message.partition())
                else:
                    raise KafkaException(error)
        if commit and count:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return got


def sync(setup: Setup, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    answer = isthmus(setup, "groups", "sync", *arguments, "--json")
    assert answer.code == code, answer
    return {row["name"]: row for row in answer.document}
