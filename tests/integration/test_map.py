"""The offset map is exact: what ``isthmus.client`` answers is where a consumer finds that record.

The truth comes from confluent-kafka: each record at the destination carries its source offset in a header.
"""

from __future__ import annotations

import bisect
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ResourceType
from links import (
    OFFSET_HEADER,
    Message,
    compare,
    copy_until_caught_up,
    create_topic,
    ends,
    freeze_in_transaction,
    isthmus,
    numbered,
    one_link,
    produce,
    producer_of,
    read,
    replicator_process,
    reset,
    send,
    set_config,
    status,
    wait_for,
)

from isthmus.client import Client, Place
from isthmus.engine import state
from isthmus.errors import DataError, UnknownLink, UsageError
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


class Truth:
    """Where the records of one partition are, by their headers; of several copies, the last one."""

    def __init__(self, west: KafkaSite, topic: str, partition: int = 0) -> None:
        self.place: dict[int, int] = {}
        self.after = 0
        for record in read(west, topic)[partition]:
            name, value = record.headers[-1]
            assert name == OFFSET_HEADER
            assert value is not None
            self.place[int.from_bytes(value, "big")] = record.offset
            self.after = record.offset + 1
        self._sources = sorted(self.place)

    def of(self, offset: int) -> tuple[int, bool, bool]:
        """Destination offset, whether it is that very record, whether it is copied."""
        if offset in self.place:
            return self.place[offset], True, True
        at = bisect.bisect_right(self._sources, offset)
        if at < len(self._sources):
            return self.place[self._sources[at]], False, True
        return self.after, False, False


def check(client: Client, link: str, topic: str, partition: int, truth: Truth, offsets: list[int]) -> None:
    wrong = []
    for offset in offsets:
        place = client.translate(link, topic, partition, offset)
        if (place.offset, place.exact, place.copied) != truth.of(offset):
            wrong.append((offset, place, truth.of(offset)))
    assert not wrong, f"{topic}[{partition}]: {len(wrong)} of {len(offsets)}, such as {wrong[:3]}"


def produce_with_holes(east: KafkaSite, topic: str, partitions: int, chance: random.Random, rounds: int) -> None:
    """Records, aborted transactions and committed ones in a random order: every marker and abort is a hole."""
    plain = producer_of(east, linger_ms=0)
    mixed = producer_of(east, transactional_id=f"holes-{topic}")
    mixed.init_transactions(30)
    for _ in range(rounds):
        messages = [
            Message(
                b"%d" % chance.randrange(10**6),
                b"key-%d" % chance.randrange(40),
                partition=chance.randrange(partitions),
            )
            for _ in range(chance.randrange(1, 30))
        ]
        kind = chance.random()
        if kind < 0.3:
            send(plain, topic, messages)
            continue
        mixed.begin_transaction()
        send(mixed, topic, messages)
        if kind < 0.65:
            mixed.abort_transaction(30)
        else:
            mixed.commit_transaction(30)


def fence(west: KafkaSite, link: str, slots: int) -> None:
    """Take the transactional ids away: what the tasks have open is aborted."""
    for each in [each for slot in range(slots) for each in state.transactional_ids(link, slot)]:
        # A task may be faster and fence us in turn.
        with contextlib.suppress(KafkaException):
            producer_of(west, transactional_id=each).init_transactions(30)


def chunks(west: KafkaSite, link: str) -> set[bytes | None]:
    return {record.key for record in read(west, f"_isthmus.{link}.map")[0]}


def test_exact_over_holes_retries_and_leases(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    topic = create_topic(east, unique_topic("mapped"), 2)
    setup = one_link(east, west, [topic], lease="2s")
    produce_with_holes(east, topic, 2, chance, 150)
    told: list[tuple[int, int, int]] = []
    with Client(setup.config) as early, replicator_process(setup) as process:
        for part in range(3):
            freeze_in_transaction(process, setup, topic, part * 100_000)
            fence(west, setup.link, 2)
            process.send_signal(signal.SIGCONT)  # to find out that it was fenced
            produce_with_holes(east, topic, 2, chance, 20)
            for partition in (0, 1):
                offset = chance.randrange(50)
                place = wait_for(lambda p=partition, o=offset: answer(early, setup.link, topic, p, o), "an answer")
                told.append((partition, offset, place.offset))
        wait_for(lambda: status(setup)["lease"] >= 3, "a third lease")
    copy_until_caught_up(setup)

    total = compare(east, west, topic)
    aborted = sum(len(records) for records in read(west, topic, committed=False).values()) - total
    written = len(chunks(west, setup.link))
    leases = status(setup)["lease"]
    print(f"{total} records, {aborted} aborted at the destination, {leases} leases, {written} chunks")
    assert aborted > 0
    assert written > 4
    with Client(setup.path) as client:
        for partition, end in ends(east, topic).items():
            truth = Truth(west, topic, partition)
            assert len(truth.place) < end
            check(client, setup.link, topic, partition, truth, list(range(end + 3)))
            many = client.translate_many(setup.link, topic, partition, range(end + 3))
            assert [(p.offset, p.exact, p.copied) for p in many] == [truth.of(o) for o in range(end + 3)]
            # An answer given while the link copied has stayed true.
            assert all(truth.of(offset)[0] == said for p, offset, said in told if p == partition)


def answer(client: Client, link: str, topic: str, partition: int, offset: int) -> Place | None:
    """The place of an offset, once it is copied."""
    try:
        place = client.translate(link, topic, partition, offset)
    except (DataError, UnknownLink):
        return None
    return place if place.copied else None


def test_exact_after_a_replicator_was_killed(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("killed"), 2)
    setup = one_link(east, west, [topic])
    count = 0
    for _ in range(2):
        with replicator_process(setup) as process:
            count += freeze_in_transaction(process, setup, topic, count)
            process.kill()
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 2 * count
    everything = sum(len(records) for records in read(west, topic, committed=False).values())
    print(f"{everything - 2 * count} records of transactions that were cut off")
    assert everything > 2 * count
    with Client(setup.path) as client:
        for partition in (0, 1):
            offsets = [*range(0, count, 7), count - 1, count, count + 1]
            check(client, setup.link, topic, partition, Truth(west, topic, partition), offsets)


def test_exact_over_a_compacted_topic(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    set_config(east, ResourceType.BROKER, "1", log_cleaner_backoff_ms="100")
    topic = create_topic(
        east,
        unique_topic("compacted-map"),
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="200",
    )
    producer = producer_of(east)
    send(producer, topic, [Message(b"v", b"key-%d" % chance.randrange(300)) for _ in range(1000)])

    def compacted() -> bool:
        send(producer, topic, [Message(b"roll", b"roll")])
        return len(read(east, topic)[0]) < 400

    wait_for(compacted, "compaction", 60)
    set_config(east, ResourceType.TOPIC, topic, min_compaction_lag_ms="3600000")
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    compare(east, west, topic)
    with Client(setup.config) as client:
        check(client, setup.link, topic, 0, Truth(west, topic), list(range(ends(east, topic)[0] + 2)))


def test_before_the_start_at_the_end_and_beyond(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("edges"), 2)
    setup = one_link(east, west, [topic], start={"offsets": {topic: {0: 50}}})
    produce(east, topic, numbered(100))
    copy_until_caught_up(setup)
    with Client(setup.path) as client:

        def place(offset: int, partition: int = 0) -> tuple[int, bool, bool]:
            found = client.translate(setup.link, topic, partition, offset)
            return found.offset, found.exact, found.copied

        first = read(west, topic)[0][0].offset
        last = read(west, topic)[0][-1].offset
        assert place(0) == place(49) == (first, False, True)
        assert place(50) == (first, True, True)
        assert place(99) == (last, True, True)
        # Where the next record will be is not known (a marker may come before it): it is after the last one.
        assert place(100) == place(10**9) == (last + 1, False, False)
        # A client that is open learns what was copied since, when it is asked.
        produce(east, topic, numbered(10))
        copy_until_caught_up(setup)
        assert place(100)[1:] == (True, True)
        check(client, setup.link, topic, 0, Truth(west, topic), list(range(112)))
        for mistake in (
            lambda: client.translate(setup.link, topic, 1, 0),  # empty
            lambda: client.translate(setup.link, topic, 7, 0),
            lambda: client.translate(setup.link, "no-such-topic", 0, 0),
        ):
            with pytest.raises(DataError, match="has copied nothing of"):
                mistake()
        with pytest.raises(UsageError, match="no link named"):
            client.translate("no-such-link", topic, 0, 0)
    answer = isthmus(setup, "offsets", setup.link, f"{topic}:0", "0", "50", "109", "110", "--json")
    assert [(row["target"], row["exact"], row["copied"]) for row in answer.document] == [
        Truth(west, topic).of(offset) for offset in (0, 50, 109, 110)
    ]
    never = one_link(east, west, [topic])
    with Client(never.config) as client, pytest.raises(UnknownLink, match="has it ever run"):
        client.translate(never.link, topic, 0, 0)


def test_after_a_reset_the_last_copy_is_meant(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    topic = create_topic(east, unique_topic("reset"))
    setup = one_link(east, west, [topic])
    for part in range(4):
        produce(east, topic, numbered(250, part * 250))
        copy_until_caught_up(setup)
    for _ in range(3):
        back = chance.randrange(1000)
        reset(setup, topic, to=str(back))
        if chance.random() < 0.5:
            # Between the reset and the next copy the map still means what is there.
            with Client(setup.config) as client:
                check(client, setup.link, topic, 0, Truth(west, topic), [back, 999])
        copy_until_caught_up(setup)
        with Client(setup.config) as client:
            check(client, setup.link, topic, 0, Truth(west, topic), list(range(1002)))
    # Forward over some: they were copied before, so the map still knows them.
    produce(east, topic, numbered(100, 1000))
    reset(setup, topic, to="1050")
    copy_until_caught_up(setup)
    with Client(setup.config) as client:
        truth = Truth(west, topic)
        check(client, setup.link, topic, 0, truth, list(range(1102)))
        assert truth.of(1010) == (truth.place[1050], False, True)


def test_a_map_of_many_partitions_and_many_runs(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # What thousands of partitions, and millions of holes, would do: a transaction whose map takes several batches,
    # and one that ends early because its map is long.
    monkeypatch.setattr("isthmus.kafka.produce.SMALL_BATCH_BYTES", 500)
    monkeypatch.setattr("isthmus.engine.copy.TRANSACTION_RUNS", 100)
    monkeypatch.setattr("isthmus.engine.copy.STEP_BYTES", 20_000)
    topic = create_topic(east, unique_topic("wide-map"), 30)
    setup = one_link(east, west, [topic], commit_interval="1m")
    produce_with_holes(east, topic, 30, random.Random(seed), 100)
    results = copy_until_caught_up(setup)
    print(f"{sum(result.transactions for result in results)} transactions")
    compare(east, west, topic)
    with Client(setup.config) as client:
        for partition, end in ends(east, topic).items():
            check(client, setup.link, topic, partition, Truth(west, topic, partition), list(range(end + 1)))


def test_half_a_million_look_ups(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    topic = create_topic(east, unique_topic("many"))
    setup = one_link(east, west, [topic], commit_interval="20ms")
    produce_with_holes(east, topic, 1, chance, 60)
    produce(east, topic, numbered(10_000))
    copy_until_caught_up(setup)
    truth, end = Truth(west, topic), ends(east, topic)[0]
    offsets = [chance.randrange(end) for _ in range(500_000)]
    with Client(setup.path) as client:
        started = time.monotonic()
        places = [client.translate(setup.link, topic, 0, offset) for offset in offsets]
        seconds = time.monotonic() - started
    print(f"500,000 look-ups in {seconds:.1f} s")
    assert seconds < 60
    known = {offset: truth.of(offset) for offset in set(offsets)}
    assert all((p.offset, p.exact, p.copied) == known[o] for p, o in zip(places, offsets, strict=True))


def test_the_client_needs_no_spark() -> None:
    code = (
        "import isthmus.client, sys; sys.exit(any(name.split('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
