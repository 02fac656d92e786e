"""``isthmus verify`` finds planted damage, all of it, by its right name and offset; and nothing where nothing is wrong.

Damage is planted where the product cannot see it: in the last rule before records are written, which a comparison does not
run, and by a stock producer at the destination.
"""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import ResourceType
from links import (
    OFFSET_HEADER,
    Message,
    Replicator,
    Setup,
    changed,
    configure,
    copy_until_caught_up,
    create_topic,
    delete_records,
    delete_topic,
    isthmus,
    new_name,
    numbered,
    one_link,
    produce,
    producer_of,
    read,
    send,
    set_config,
    transaction,
    wait_for,
)

from isthmus.config.origin import ORIGIN_HEADER
from isthmus.control.memory import remember
from isthmus.errors import UnknownLink, UsageError
from isthmus.kafka.cluster import Cluster
from isthmus.records.model import Records
from isthmus.recovery.verify import in_this_process, verify
from isthmus.recovery.verify_report import Report
from isthmus.rules.offset_header import OffsetHeader
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]
Plant = Callable[[Records], Records]


def compare(setup: Setup, link: str | None = None, **options: Any) -> Report:
    """A comparison without Spark."""
    return verify(setup.config, link or setup.link, workers=in_this_process, **options)


def counts(report: Report) -> dict[str, int]:
    return {kind: count for kind, count in report.totals.items() if count}


def at(report: Report, kind: str) -> list[tuple[int, int, int]]:
    """Partition, source offset and destination offset of the offenders of a class."""
    return [(f.partition, f.source_offset, f.target_offset) for f in report.offenders if f.kind == kind]


# -- planting ----------------------------------------------------------------------------------------------


def row_of(records: Records, offset: int) -> int | None:
    """The row of an offset of partition 0, if it is here."""
    row = int(np.searchsorted(records.offset, offset))
    if records.partition or row == len(records) or records.offset[row] != offset:
        return None
    return row


def drop(offset: int) -> Plant:
    def plant(records: Records) -> Records:
        row = row_of(records, offset)
        if row is None:
            return records
        dropped = records.dropped.copy()
        dropped[row] = 1
        return records.with_columns(dropped=dropped)

    return plant


def flip(offset: int, column: str) -> Plant:
    """Change the last byte of what begins at a column's place."""

    def plant(records: Records) -> Records:
        row = row_of(records, offset)
        if row is None:
            return records
        if column == "timestamp":
            later = records.timestamp.copy()
            later[row] += 1
            return records.with_columns(timestamp=later)
        data = records.data.copy()
        last = records.headers_end[row] if column == "headers" else 0
        if not last:
            last = getattr(records, f"{column}_start")[row] + getattr(records, f"{column}_length")[row]
        data[last - 1] ^= 1
        return records.with_columns(data=data)

    return plant


def swap(offset: int) -> Plant:
    """Let two neighbours change places, with all that they have."""

    def plant(records: Records) -> Records:
        row = row_of(records, offset)
        if row is None or row_of(records, offset + 1) is None:
            return records
        order = np.arange(len(records))
        order[[row, row + 1]] = row + 1, row
        names = ("timestamp", "key_start", "key_length", "value_start", "value_length")
        moved = {name: getattr(records, name)[order] for name in names}
        moved |= {name: getattr(records, name)[order] for name in ("headers_start", "headers_end", "headers_count")}
        tail, (first, second, third) = records.tail.copy(), records.tail_start[row : row + 3].tolist()
        tail[first:third] = np.concatenate([tail[second:third], tail[first:second]])
        return records.with_columns(tail=tail, **moved)

    return plant


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch, before: list[Plant], after: list[Plant] | None = None) -> Iterator[None]:
    """What is written is damaged like this, before and after the offset header is added."""
    honest = OffsetHeader.apply

    def damaged(self: OffsetHeader, records: Records) -> Records:
        for plant in before:
            records = plant(records)
        records = honest(self, records)
        for plant in after or []:
            records = plant(records)
        return records

    with monkeypatch.context() as patch:
        patch.setattr(OffsetHeader, "apply", damaged)
        yield


def offset_of(site: KafkaSite, topic: str, value: bytes, partition: int = 0) -> int:
    (found,) = [record.offset for record in read(site, topic)[partition] if record.value == value]
    return found


# -- tests -------------------------------------------------------------------------------------------------


def test_each_class_of_damage_is_found(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = create_topic(east, unique_topic("damaged"), 2)
    setup = one_link(east, west, [topic])
    head = [("h", b"own")]
    messages = [Message(b"value %d" % n, b"key-%d" % n, head, 1_700_000_000_000 + n, n % 2) for n in range(400)]
    produce(east, topic, messages)
    plants = [drop(10), flip(20, "key"), flip(30, "value"), flip(40, "headers"), flip(50, "timestamp")]
    with planted(monkeypatch, plants, [swap(60)]):
        copy_until_caught_up(setup)
    repeated = read(west, topic)[1][5]
    produce(
        west,
        topic,
        [
            Message(b"by hand", b"k"),
            Message(repeated.value, repeated.key, list(repeated.headers), repeated.timestamp, 1),
            Message(b"forged", b"k", [(OFFSET_HEADER, (10**6).to_bytes(8, "big"))]),
            Message(b"home", b"k", [(ORIGIN_HEADER, west.name.encode()), (OFFSET_HEADER, (3).to_bytes(8, "big"))]),
        ],
    )
    report = compare(setup)
    assert counts(report) == {
        "compared": 400 - 1 - 4 - 2,
        "missing": 1,
        "altered": 4,
        "out_of_order": 2,
        "unexpected": 2,
        "doubled": 1,
        "looped": 1,
    }
    by_hand, forged, home = (offset_of(west, topic, value) for value in (b"by hand", b"forged", b"home"))
    again = [record.offset for record in read(west, topic)[1] if record.value == repeated.value][1]
    assert at(report, "missing") == [(0, 10, -1)]
    # One record less stands before them.
    assert at(report, "altered") == [(0, offset, offset - 1) for offset in (20, 30, 40, 50)]
    assert at(report, "out_of_order") == [(0, 60, 59), (0, 61, 60)]
    assert at(report, "unexpected") == [(0, -1, by_hand), (0, -1, forged)]
    assert at(report, "doubled") == [(1, 5, again)]
    assert at(report, "looped") == [(0, -1, home)]
    altered = [found for found in report.offenders if found.kind == "altered"]
    assert [found.differs for found in altered] == [["key"], ["value"], ["headers"], ["timestamp"]]
    assert altered[1].expected["value"] == "value 60"
    assert altered[1].found["value"] == "value 61"

    # The same through the command, with Spark.
    page, file = tmp_path / "report.html", tmp_path / "report.json"
    answer = isthmus(setup, "verify", setup.link, "--json", "--report", str(page), "--report", str(file))
    assert answer.code == 6, answer
    assert answer.document == json.loads(file.read_text())
    assert answer.document["totals"] == report.totals
    assert answer.document["offenders"] == report.to_json()["offenders"]
    assert "out of order" in page.read_text()
    assert "value 61" in page.read_text()


class Traffic(threading.Thread):
    """Writes to a site until stopped: plain records, and transactions of which some are aborted."""

    def __init__(self, site: KafkaSite, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._site, self._topic, self._chance = site, topic, random.Random(seed)
        self._over = threading.Event()
        self.written = 0

    def run(self) -> None:
        plain = producer_of(self._site, linger_ms=0)
        mixed = producer_of(self._site, transactional_id=f"traffic-{uuid.uuid4().hex}")
        mixed.init_transactions(30)
        while not self._over.wait(0.01):
            count, kind = self._chance.randrange(1, 40), self._chance.random()
            messages = [
                Message(self._chance.randbytes(20), b"k", partition=self._chance.randrange(2)) for _ in range(count)
            ]
            if kind < 0.4:
                self.written += send(plain, self._topic, messages)
                continue
            mixed.begin_transaction()
            send(mixed, self._topic, messages)
            if kind < 0.7:
                mixed.abort_transaction(30)
            else:
                mixed.commit_transaction(30)
                self.written += count

    def __enter__(self) -> Traffic:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(60)


def test_clean_while_both_sites_write_and_copy(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    topic = unique_topic("flowing")
    for site in (east, west):
        create_topic(site, topic, 2)
    there, back = new_name(), new_name()
    setup = configure(
        {east.name: east, west.name: west},
        {
            there: {"from": east.name, "to": west.name, "topics": [topic], "loop": "returning"},
            back: {"from": west.name, "to": east.name, "topics": [topic], "loop": "returning"},
        },
    )
    with (
        Traffic(east, topic, seed) as in_the_east,
        Traffic(west, topic, seed + 1) as in_the_west,
        Replicator(setup, there, slots=1),
        Replicator(setup, back, slots=1),
    ):
        for number in range(1, 4):
            wait_for(lambda n=number: in_the_east.written > 300 * n, "traffic")
            for link in (there, back):
                wait_for(lambda x=link: _copied(setup, x), "a first copy")
                report = compare(setup, link)
                assert report.clean, (report.verdict, report.offenders)
                assert report.totals["compared"] > 0
    for link in (there, back, there):  # the first one's position is to be behind what the second one has brought
        copy_until_caught_up(setup, link, slots=1)
    for link, born, elsewhere in (
        (there, in_the_east.written, in_the_west.written),
        (back, in_the_west.written, in_the_east.written),
    ):
        report = compare(setup, link)
        # What has come from the other side is left out by the loop rule, and what the other side wrote is its own.
        assert counts(report) == {"compared": born, "dropped": elsewhere, "local": elsewhere}, report.offenders


def _copied(setup: Setup, link: str) -> bool:
    try:
        return compare(setup, link).totals["compared"] > 0
    except UnknownLink:
        return False


def test_retention_and_compaction_on_both_sides(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    for site in (east, west):
        set_config(site, ResourceType.BROKER, "1", log_cleaner_backoff_ms="100")
    compacted = create_topic(
        east,
        unique_topic("compacted"),
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="200",
    )
    expiring = create_topic(east, unique_topic("expiring"), 2)
    setup = one_link(east, west, [compacted, expiring])
    produce(east, compacted, [Message(b"v%d" % n, b"key-%d" % (n % 50)) for n in range(500)])
    produce(east, expiring, [Message(b"v%d" % n, b"k", partition=n % 2) for n in range(200)])
    copy_until_caught_up(setup)
    delete_records(east, expiring, {0: 30})
    delete_records(west, expiring, {0: 10, 1: 40})
    producer = producer_of(east)

    def smaller() -> bool:
        send(producer, compacted, [Message(b"roll", b"roll")])
        copy_until_caught_up(setup)
        return all(len(read(site, compacted)[0]) < 300 for site in (east, west))

    wait_for(smaller, "compaction of both", pause=0.3)
    report = compare(setup)
    assert report.clean, report.offenders
    by_topic = {row["topic"]: row for row in report.topics()}
    # Of partition 0: 0-9 are gone on both sides, 10-29 at the source. Of partition 1: 0-39 at the destination.
    assert by_topic[expiring]["expired"] == 20 + 40
    assert by_topic[expiring]["compared"] == 70 + 60
    here, there = ({r.offset for r in read(site, compacted)[0]} for site in (east, west))
    assert by_topic[compacted]["compared"] <= len(here)
    assert by_topic[compacted]["compared"] + by_topic[compacted]["compacted"] <= len(here) + len(there)


def test_rules_names_and_starts(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename, a user's rule that drops and changes, no headers, a late start: what is expected follows the configuration."""
    module = f"rules_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\n\n"
        "def mask(batch):\n"
        "    kept = batch.filter(pc.not_equal(batch['key'], pa.scalar(b'drop', pa.binary())))\n"
        "    return kept.set_column(kept.schema.get_field_index('value'), kept.schema.field('value'),\n"
        "                           pa.array([b'***'] * len(kept), pa.binary()))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    topic = create_topic(east, unique_topic("named"), 1)
    other = create_topic(east, unique_topic("plain"), 1)
    produce(east, topic, numbered(50))
    produce(east, other, numbered(50))
    setup = one_link(
        east,
        west,
        [topic, other],
        rename="copy.{topic}",
        start="latest",
        headers="off",
        rules=[f"{module}:mask"],
    )
    with pytest.raises(UnknownLink, match="has it ever run"):
        compare(setup)
    copy_until_caught_up(setup)
    middle = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    with transaction(east, commit=False) as producer:
        send(producer, topic, numbered(20))
    stamp = int(middle.timestamp() * 1000)
    messages = [Message(b"%d" % n, b"drop" if n % 5 == 0 else b"key", timestamp=stamp + n - 50) for n in range(100)]
    produce(east, topic, messages)
    produce(east, other, messages)
    copy_until_caught_up(setup)
    report = compare(setup)
    assert counts(report) == {"compared": 160, "dropped": 40, "before_start": 100}
    assert {(each["kind"], each["records"]) for each in report.not_judged} == {("before_start", 50)}
    assert counts(compare(setup, topics=[topic])) == {"compared": 80, "dropped": 20, "before_start": 50}
    assert counts(compare(setup, topics=["/named.*/"], since=middle)) == {"compared": 40, "dropped": 10}
    with pytest.raises(UsageError, match="copies no topic"):
        compare(setup, topics=["elsewhere"])
    some = compare(setup, sample=0.5)
    assert some.clean
    assert some.units == 1
    # What was copied with another rule, or under no rule at all, is not what this one would make of it.
    report = compare(changed(setup, rules=None))
    assert report.damage == {"altered": 160, "missing": 40}
    produce(west, f"copy.{topic}", [Message(b"by hand")])
    report = compare(setup, topics=[topic])
    assert report.damage == {"unexpected": 1}
    delete_topic(west, f"copy.{other}")
    report = compare(setup, topics=[other])
    assert not report.clean
    assert [fault["error"] for fault in report.faults] == ["DestinationMissing"]


def test_links_that_write_one_topic_together(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    one, two, both = unique_topic("one"), unique_topic("two"), unique_topic("both")
    first, second = new_name(), new_name()
    setup = configure(
        {east.name: east, west.name: west},
        {
            link: {"from": east.name, "to": west.name, "topics": [topic], "rename": both, "loop": "returning"}
            for link, topic in ((first, one), (second, two))
        },
    )
    for topic in (one, two):
        create_topic(east, topic, 1)
        produce(east, topic, numbered(30))
    for link in (first, second):
        copy_until_caught_up(setup, link)
    produce(west, both, [Message(b"at home")])
    for link in (first, second):
        report = compare(setup, link)
        assert counts(report) == {"compared": 30, "others": 30, "local": 1}
        (left,) = report.not_judged
        assert (left["topic"], left["kind"], left["records"]) == (both, "local", 1)
        assert "nothing is wrong" not in report.verdict


def test_ranges_with_a_story(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(east, unique_topic("told"), 1)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(40))
    with planted(monkeypatch, [drop(n) for n in range(10, 14)]):
        copy_until_caught_up(setup)
    assert counts(compare(setup)) == {"compared": 36, "missing": 4}
    with Cluster(setup.config.sites[west.name]) as cluster:
        cluster.call(cluster.connect)

        def tell(kind: str, value: dict[str, Any] | None) -> None:
            cluster.call(remember, cluster, setup.link, {(kind, f"{topic}/0"): value})

        tell("stranded", {"ranges": [[10, 13]]})
        report = compare(setup)
        assert counts(report) == {"compared": 36, "missing": 1, "stranded": 3}
        assert at(report, "missing") == [(0, 13, -1)]
        (left,) = report.not_judged
        assert (left["kind"], left["first"], left["last"], left["records"]) == ("stranded", 10, 12, 3)
        tell("stranded", None)
        tell("seeded", {"ranges": [[0, 12]]})
        report = compare(setup)
        assert counts(report) == {"compared": 36, "missing": 2, "unexpected": 2}
        assert at(report, "unexpected") == [(0, 10, -1), (0, 11, -1)]


def test_a_copy_that_was_made_again_is_doubled(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("again"), 1)
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(25))
    copy_until_caught_up(setup)
    answer = isthmus(setup, "reset", setup.link, "--to", "5", f"{topic}:0", "--json")
    assert answer.code == 0, answer
    copy_until_caught_up(setup)
    report = compare(setup)
    assert counts(report) == {"compared": 25, "doubled": 20}
    # The map names the last copy; the first ones are those too many.
    assert at(report, "doubled")[:2] == [(0, 5, 5), (0, 6, 6)]
    # Another incarnation of the source: its copies stay where they are, and are explained.
    delete_topic(east, topic)
    create_topic(east, topic, 1)
    produce(east, topic, numbered(10))
    # Nothing of the new topic was compared with anything: that is no "nothing is wrong".
    unproven = compare(setup)
    assert ("created again" in unproven.faults[0]["message"], unproven.clean) == (True, False)
    answer = isthmus(setup, "reset", setup.link, "--to", "earliest", f"{topic}:0", "--json")
    assert answer.code == 0, answer
    copy_until_caught_up(setup)
    assert counts(compare(setup)) == {"compared": 10, "others": 45}


def test_at_least_once_may_repeat_records(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("repeated"), 1)
    setup = one_link(east, west, [topic], delivery="at-least-once")
    produce(east, topic, numbered(20))
    copy_until_caught_up(setup)
    first = read(west, topic)[0][0]
    produce(west, topic, [Message(first.value, first.key, list(first.headers), first.timestamp)])
    # Behind the last line of the map may be what a task has written and not yet noted down.
    assert counts(compare(setup)) == {"compared": 20}
    produce(east, topic, numbered(5))
    copy_until_caught_up(setup)
    report = compare(setup)
    assert counts(report) == {"compared": 25, "doubled": 1}
    assert report.clean
    assert at(report, "doubled") == [(0, 0, 20)]
