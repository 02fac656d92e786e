"""What arrives is what was sent: every property of a record, of a partition and of a log, over real brokers.

The judge is confluent-kafka (``links.compare``).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka.admin import ResourceType
from links import (
    OFFSET_HEADER,
    Headers,
    Message,
    compare,
    copy_until_caught_up,
    create_topic,
    ends,
    faults,
    isthmus,
    numbered,
    one_link,
    partitions_of,
    produce,
    producer_of,
    read,
    reset,
    send,
    set_config,
    topic_config,
    transaction,
    wait_for,
)

from isthmus.sandbox import KafkaSite

Name = Callable[..., str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = 1_750_000_000_000


def test_the_judge_sees_what_is_wrong(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """A judge that finds nothing proves nothing, unless it finds what is there."""
    topic = create_topic(east, unique_topic("judged"))
    produce(east, topic, [Message(b"%d" % n, timestamp=NOW + n) for n in range(4)])

    def arrived(*offsets: int, value: bytes = b"", timestamp: int = NOW, headers: Headers = ()) -> str:
        target = create_topic(west, unique_topic("judged"))
        messages = [
            Message(
                value or b"%d" % n, headers=[*headers, (OFFSET_HEADER, n.to_bytes(8, "big"))], timestamp=timestamp + n
            )
            for n in offsets
        ]
        produce(west, target, messages)
        return target

    assert compare(east, west, topic, arrived(0, 1, 2, 3)) == 4
    for target, what in (
        (arrived(0, 1, 3), "lost"),
        (arrived(0, 1, 1, 2, 3), "doubled"),
        (arrived(0, 2, 1, 3), "out_of_order"),
        (arrived(0, 1, 2, 3, value=b"other"), "changed"),
        (arrived(0, 1, 2, 3, timestamp=NOW + 1), "changed"),
        (arrived(0, 1, 2, 3, headers=[("more", b"")]), "changed"),
        (arrived(0, 1, 2, 3, 4), "invented"),
    ):
        with pytest.raises(AssertionError, match=what):
            compare(east, west, topic, target)
    for target, what in (
        (arrived(0, 1, 2), "lost"),
        (arrived(0, 1, 2, 3), "changed"),
        (arrived(0, 1, 2, 3, 4), "invented"),
    ):
        with pytest.raises(AssertionError, match=what):
            compare(east, west, topic, target, header=None)


def odd_messages() -> list[Message]:
    """Every shape that a record can have: nothing, emptiness and bytes that are no text, everywhere."""
    raw = bytes(range(256))
    shapes = [
        Message(None, None),
        Message(b"", b""),
        Message(None, b"tombstone"),
        Message(b"", None),
        Message(b"value", b""),
        Message(raw, raw[::-1]),
        Message(b"h", b"k", [("one", b"1")]),
        Message(b"h", b"k", [("same", b"1"), ("same", b"2"), ("other", b"x"), ("same", b"1")]),
        Message(b"h", b"k", [("null", None), ("empty", b""), ("raw", raw)]),
        Message(b"h", b"k", [("", b"no name"), ("ключ-鍵", "wert-値".encode())]),
        Message(None, b"k", [("on a tombstone", None)]),
        Message(b"h", b"k", [("many", str(n).encode()) for n in range(200)]),
        Message(b"h", b"k", [("isthmus-offset", b"12345678")]),
        Message(b"\x00", b"\xff\xfe"),
    ]
    return [
        Message(m.value, m.key, m.headers, NOW + n, partition) for partition in (0, 1) for n, m in enumerate(shapes)
    ]


def test_every_shape_of_a_record(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("shapes"), 2)
    sent = produce(east, topic, odd_messages())
    copy_until_caught_up(one_link(east, west, [topic]))
    assert compare(east, west, topic) == sent == 28
    # Passed through with no header added, batch by batch, the destination's log is the source's log.
    through = one_link(east, west, [topic], rename="{link}.{topic}", headers="off")
    copy_until_caught_up(through)
    assert compare(east, west, topic, f"{through.link}.{topic}", header=None) == sent
    # The header's name is the user's choice.
    named = one_link(east, west, [topic], rename="{link}.{topic}", headers={"offset": "von-wo"})
    copy_until_caught_up(named)
    assert compare(east, west, topic, f"{named.link}.{topic}", header="von-wo") == sent


def test_timestamps(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    create = create_topic(east, unique_topic("create-time"), message_timestamp_after_max_ms=str(2**63 - 1))
    stamps = [NOW - n * 1000 for n in range(50)] + [1, 2**41, NOW] + [chance.randrange(1, NOW) for _ in range(100)]
    produce(east, create, [Message(str(s).encode(), timestamp=s) for s in stamps])
    unknown = create_topic(east, unique_topic("no-time"))
    produce(east, unknown, [Message(b"no time", timestamp=-1), Message(b"none either", timestamp=-1)])
    append = create_topic(east, unique_topic("append-time"), message_timestamp_type="LogAppendTime")
    produce(east, append, [Message(b"v", timestamp=1) for _ in range(20)])

    copy_until_caught_up(one_link(east, west, [create, unknown, append]))

    for topic, count in ((create, len(stamps)), (unknown, 2), (append, 20)):
        assert compare(east, west, topic) == count
    assert [r.timestamp for r in read(west, create)[0]] == stamps
    assert [r.timestamp for r in read(west, unknown)[0]] == [-1, -1]
    # The moments of appending at the source are kept: as CreateTime, since LogAppendTime would replace them.
    assert {r.timestamp_type for r in read(east, append)[0]} == {TIMESTAMP_LOG_APPEND_TIME}
    assert {r.timestamp_type for r in read(west, append)[0]} == {TIMESTAMP_CREATE_TIME}
    assert all(r.timestamp > NOW for r in read(west, append)[0])


@pytest.fixture(scope="module")
def compressed(east: KafkaSite) -> str:
    """A topic with a partition for each codec."""
    topic = create_topic(east, "compressed", len(CODECS))
    for partition, codec in enumerate(CODECS):
        messages = numbered(3000, partition=partition, size=120)
        produce(east, topic, messages, compression_type=codec, linger_ms=50)
    return topic


@pytest.mark.parametrize("codec", ["keep", *CODECS])
@pytest.mark.parametrize("headers", ["on", "off"])
def test_compression(east: KafkaSite, west: KafkaSite, compressed: str, codec: str, headers: str) -> None:
    setup = one_link(east, west, [compressed], rename="{link}.{topic}", compression=codec, headers=headers)
    copy_until_caught_up(setup)
    target = f"{setup.link}.{compressed}"
    header = "isthmus-offset" if headers == "on" else None
    assert compare(east, west, compressed, target, header=header) == 3000 * len(CODECS)
    codecs = [batch_codecs(west, target, partition) for partition in range(len(CODECS))]
    assert codecs == [{c if codec == "keep" else codec} for c in CODECS]


def batch_codecs(site: KafkaSite, topic: str, partition: int) -> set[str]:
    """Which codecs the batches in a partition's log file have: byte 22 of each batch, as Kafka documents it."""
    found = set()
    for base, attributes in batches(site, topic, partition):
        if not attributes & 0x20:  # not a transaction's marker
            found.add(CODECS[attributes & 7])
        assert base >= 0
    return found


def batches(site: KafkaSite, topic: str, partition: int) -> Iterator[tuple[int, int]]:
    """Base offset and attributes of each batch in the log files."""
    for log in sorted((site.brokers[0].data_directory / f"{topic}-{partition}").glob("*.log")):
        data, at = log.read_bytes(), 0
        while at + 61 <= len(data):
            base, length = int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 : at + 12], "big")
            if length == 0:
                break  # room that the broker has reserved
            yield base, int.from_bytes(data[at + 21 : at + 23], "big")
            at += 12 + length


def test_transactions(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("transactions"), 2)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(10))
    with transaction(east) as producer:
        send(producer, topic, numbered(20, 100) + numbered(20, 100, partition=1))
    with transaction(east, commit=False) as producer:
        send(producer, topic, [Message(b"aborted", partition=p) for p in (0, 1) for _ in range(30)])
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 50

    # Two transactions, and records of nobody's, mixed in one partition; one is still open.
    open_one = producer_of(east, transactional_id=f"open-{topic}")
    open_one.init_transactions(30)
    open_one.begin_transaction()
    send(open_one, topic, [Message(b"open 1")])
    with transaction(east, commit=False) as aborted:
        send(aborted, topic, [Message(b"aborted too")])
        send(open_one, topic, [Message(b"open 2")])
        send(aborted, topic, [Message(b"aborted too")])
        produce(east, topic, [Message(b"nobody's")])
    produce(east, topic, [Message(b"after", partition=1)])
    copy_until_caught_up(setup)
    assert [len(records) for records in read(west, topic).values()] == [30, 21]
    assert not any(b"open" in (r.value or b"") for r in read(west, topic, committed=False)[0])
    open_one.commit_transaction(30)
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 54
    assert [r.value for r in read(west, topic)[0]][-3:] == [b"open 1", b"open 2", b"nobody's"]
    # An aborted record never reached the destination, not even as an aborted one.
    everything = [r.value for records in read(west, topic, committed=False).values() for r in records]
    assert not any(value and value.startswith(b"aborted") for value in everything)
    # A transaction of the source stays whole: it is copied in one of ours, and its marker is not copied as a record.
    assert len(everything) == 54


def test_compacted_with_holes(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    set_config(east, ResourceType.BROKER, "1", log_cleaner_backoff_ms="100")
    topic = create_topic(
        east,
        unique_topic("compacted"),
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="200",
        delete_retention_ms="100",
    )
    setup = one_link(east, west, [topic])
    producer = producer_of(east)
    for _ in range(4):
        kept = [Message(b"kept", b"only-%d" % chance.randrange(10**9)) for _ in range(20)]
        again = [Message(b"replaced", b"same-%d" % (n % 7)) for n in range(200)]
        gone = [Message(None, b"same-%d" % n) for n in range(3)]
        messages = kept + again + gone
        chance.shuffle(messages)
        send(producer, topic, messages)
    with transaction(east, commit=False) as aborted:
        send(aborted, topic, numbered(50))

    def compacted() -> bool:
        # A segment is rolled by the append that comes after its time, and only rolled ones are compacted.
        send(producer, topic, [Message(b"roll", b"roll")])
        return len(read(east, topic)[0]) < 150

    wait_for(compacted, "compaction", 60)
    offsets = [r.offset for r in read(east, topic)[0]]
    holes = sum(b - a > 1 for a, b in itertools.pairwise(offsets))
    print(f"{len(offsets)} records are left of {offsets[-1] + 1} offsets, with {holes} holes")
    assert holes > 10

    set_config(east, ResourceType.TOPIC, topic, min_compaction_lag_ms="3600000")  # keep what the judge will read
    copy_until_caught_up(setup)
    assert compare(east, west, topic) >= 80
    assert "compact" in topic_config(west, topic)["cleanup.policy"]


def test_records_of_one_byte_to_ten_megabytes(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    chance = random.Random(seed)
    limit = str(11 << 20)
    topic = create_topic(east, unique_topic("sizes"), 2, max_message_bytes=limit)
    sizes = [1, 10 << 20, 2, 1000, 65_536, 1_000_000, (10 << 20) - 7, 2_500_000, 3, 100_000]
    messages = [Message(chance.randbytes(size), b"%d" % size, partition=n % 2) for n, size in enumerate(sizes)]
    produce(east, topic, messages, message_max_bytes=int(limit))
    copy_until_caught_up(one_link(east, west, [topic]))
    assert compare(east, west, topic) == len(sizes)
    assert topic_config(west, topic)["max.message.bytes"] == limit


def test_two_hundred_partitions(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("wide"), 200)
    produce(east, topic, [m for p in range(200) for m in numbered(10, partition=p)])
    copy_until_caught_up(one_link(east, west, [topic]))
    assert partitions_of(west, topic) == 200
    assert compare(east, west, topic) == 2000


def test_empty_topics(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    empty = create_topic(east, unique_topic("empty"), 3)
    only_aborted = create_topic(east, unique_topic("aborted-only"))
    with transaction(east, commit=False) as producer:
        send(producer, only_aborted, numbered(5))
    setup = one_link(east, west, [empty, only_aborted])
    copy_until_caught_up(setup)
    for topic in (empty, only_aborted):
        assert compare(east, west, topic) == 0
        assert partitions_of(west, topic) == partitions_of(east, topic)
    # What comes later is copied from its first record on.
    produce(east, empty, numbered(5, partition=2))
    produce(east, only_aborted, numbered(5))
    copy_until_caught_up(setup)
    assert compare(east, west, empty) == compare(east, west, only_aborted) == 5


def test_a_batch_too_large_for_the_destination_is_split(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("split"), 2)
    create_topic(west, topic, 2, max_message_bytes="20000")
    messages = numbered(3000, size=200)
    produce(east, topic, messages, linger_ms=200, batch_size=900_000)
    squeezed = numbered(3000, partition=1, size=200)
    produce(east, topic, squeezed, linger_ms=200, batch_size=900_000, compression_type="gzip")
    at_source = [sum(1 for _ in batches(east, topic, p)) for p in (0, 1)]
    copy_until_caught_up(one_link(east, west, [topic]))
    assert compare(east, west, topic) == 6000
    at_destination = [sum(1 for _ in batches(west, topic, p)) for p in (0, 1)]
    print(f"batches: {at_source} became {at_destination}")
    assert at_destination[0] >= 30 > at_source[0]
    # A batch that just fits without our header and does not with it.
    tight = create_topic(east, unique_topic("tight"), max_message_bytes="20000")
    produce(east, tight, numbered(500, size=200), linger_ms=200, batch_size=19_900)
    copy_until_caught_up(one_link(east, west, [tight]))
    assert compare(east, west, tight) == 500


def test_a_record_too_large_stops_its_partition_alone(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("too-large"), 2)
    create_topic(west, topic, 2, max_message_bytes="20000")
    setup = one_link(east, west, [topic])
    produce(east, topic, [*numbered(5), Message(b"x" * 30_000), *numbered(5, 5), *numbered(10, partition=1)])
    copy_until_caught_up(setup, faults_are_fine=True)

    assert faults(setup) == {(topic, 0): "RecordTooLarge"}
    stopped, going = read(west, topic).values()
    assert len(stopped) == 5  # what came before it is there
    assert len(going) == 10
    said = isthmus(setup, "status", setup.link)
    assert said.code == 6
    assert "max.message.bytes" in said.out + said.err

    # Raising the limit, as the message says, is enough: the partition goes on by itself, with nothing missing.
    set_config(west, ResourceType.TOPIC, topic, max_message_bytes="100000")
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert compare(east, west, topic) == 21


def test_skipping_a_record_too_large(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("skipped"))
    create_topic(west, topic, max_message_bytes="20000")
    setup = one_link(east, west, [topic])
    produce(east, topic, [*numbered(5), Message(b"x" * 30_000), *numbered(5, 5)])
    copy_until_caught_up(setup, faults_are_fine=True)
    assert reset(setup, f"{topic}:0", to="6") == [{"topic": topic, "partition": 0, "before": 5, "after": 6}]
    copy_until_caught_up(setup)
    assert faults(setup) == {}
    assert compare(east, west, topic, expect=lambda record: record if record.offset != 5 else None) == 10
    assert ends(west, topic)[0] >= 10
