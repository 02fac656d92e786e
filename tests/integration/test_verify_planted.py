"""Damage planted on real brokers where losses like to hide: what a site wrote while it served, what was stranded, what stands before a link's start, what
applications write at the destination. ``isthmus verify`` finds it, or says that it was not judged, and where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType
from links import (
    Message,
    Record,
    Setup,
    configure,
    copy_until_caught_up,
    create_topic,
    delete_records,
    isthmus,
    new_name,
    one_link,
    produce,
    read,
    set_config,
    wait_for,
)

from isthmus.config.origin import ORIGIN_HEADER
from isthmus.recovery.failback import failback
from isthmus.recovery.failover import failover
from isthmus.recovery.operation import Telling
from isthmus.recovery.verify import in_this_process, verify
from isthmus.recovery.verify_report import Report
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def compare(setup: Setup, link: str | None = None, **options: Any) -> Report:
    return verify(setup.config, link or setup.link, workers=in_this_process, **options)


def counts(report: Report) -> dict[str, int]:
    return {kind: count for kind, count in report.totals.items() if count}


def told(report: Report, kind: str) -> list[tuple[str, str, int, int, int]]:
    """What a report says of a class that it did not judge: topic, side, first, last, records."""
    return [
        (e["topic"], e["side"], e["first"], e["last"], e["records"]) for e in report.not_judged if e["kind"] == kind
    ]


def write(site: KafkaSite, topic: str, stem: str, count: int) -> None:
    produce(site, topic, [Message(f"{stem} {n}".encode(), f"{stem} {n}".encode()) for n in range(count)])


def again(record: Record, *, value: bytes | None = None) -> Message:
    """The same record once more, headers and all; or changed."""
    return Message(record.value if value is None else value, record.key, list(record.headers), record.timestamp)


def found_at(site: KafkaSite, topic: str, value: str) -> Record:
    return next(record for record in read(site, topic)[0] if record.value == value.encode())


def quiet(_: Telling) -> None:
    pass


def test_where_a_site_has_served(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    """One way only: west served and is a standby again; what it wrote came home, and what was stranded was dealt with."""
    policy: Any = ("append", "set-aside")[seed % 2]
    plain, keyed = create_topic(east, unique_topic(policy)), unique_topic("keyed")
    compaction = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "200"}
    create_topic(east, keyed, **compaction)
    setup = one_link(east, west, [plain, keyed])
    for topic in (plain, keyed):
        write(east, topic, "common", 20)
    copy_until_caught_up(setup)
    write(east, plain, "stranded", 5)
    failover(setup.config, east.name, west.name, "emergency", quiet)
    for topic in (plain, keyed):
        write(west, topic, "later", 6)
    serving = compare(setup)
    assert serving.clean, serving.offenders
    assert serving.totals["local"] == 12
    failback(setup.config, east.name, quiet, policy=policy, fence="none", verify=False)

    # What west wrote is compared on the way home; each of its records stands at both sites for the link, too.
    report = compare(setup)
    assert report.clean, report.offenders
    stranded = {"stranded": 5} if policy == "set-aside" else {}
    compared = 40 + 12 + (5 if policy == "append" else 0)
    assert counts(report) == {"compared": compared, "returned": 24, **stranded}
    if stranded:
        first = found_at(east, plain, "stranded 0").offset
        assert told(report, "stranded") == [(plain, "source", first, first + 4, 5)]
        assert "nothing is wrong" not in report.verdict

    # Too many: at the standby by hand, a second copy of what it wrote, a changed one; a second copy of what was stranded and appended.
    own = found_at(west, plain, "later 2")
    planted = [Message(b"by hand"), again(own), again(own, value=b"changed")]
    if policy == "append":
        planted.append(again(found_at(west, plain, "stranded 1")))
    produce(west, plain, planted)
    report = compare(setup, topics=[plain])
    assert report.damage == {"unexpected": 3, **({"doubled": 1} if policy == "append" else {})}, report.offenders
    # At home a second copy of what came home, and a changed one, with all headers.
    home = found_at(east, plain, "later 3")
    produce(east, plain, [again(home), again(home, value=b"changed")])
    report = compare(setup, topics=[plain])
    assert report.totals["doubled"] == 2 + (policy == "append"), report.offenders
    assert {f.home for f in report.offenders if f.kind == "doubled" and f.source_offset == own.offset + 1} == {True}

    # Gone: the copies at home, by DeleteRecords.
    delete_records(east, plain, {0: home.offset})
    report = compare(setup, topics=[plain])
    expired = told(report, "expired")
    assert (plain, "destination", own.offset - 2, own.offset, 3) in expired, report.not_judged
    # Gone: one of two copies, by a tombstone that somebody wrote to the standby.
    for site in (east, west):
        set_config(site, ResourceType.BROKER, "1", log_cleaner_backoff_ms="100")
    produce(west, keyed, [Message(None, b"later 2")])

    def compacted() -> bool:
        produce(west, keyed, [Message(b"roll", b"roll")])
        return b"later 2" not in [record.value for record in read(west, keyed)[0]]

    wait_for(compacted, "compaction", pause=0.3)
    report = compare(setup, topics=[keyed])
    assert report.damage["unexpected"] >= 1
    place = found_at(east, keyed, "later 2").offset
    assert (keyed, "source", place, place, 1) in told(report, "compacted"), report.not_judged
    answer = isthmus(setup, "verify", setup.link, "--topics", keyed, "--json")
    assert (answer.code, answer.document["damage"]) == (6, report.damage), answer


def test_before_the_start_and_among_local_records(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Links both ways: what stands before the start, and what each site writes itself."""
    topic = unique_topic("local")
    for site in (east, west):
        create_topic(site, topic)
    there, back = new_name(), new_name()
    common = {"topics": [topic], "loop": "returning", "headers": "off"}
    setup = configure(
        {east.name: east, west.name: west},
        {
            there: {"from": east.name, "to": west.name, "start": "latest", **common},
            back: {"from": west.name, "to": east.name, **common},
        },
    )
    write(east, topic, "before", 10)
    copy_until_caught_up(setup, there)
    write(east, topic, "east", 10)
    write(west, topic, "west", 10)
    for link in (there, back, there):
        copy_until_caught_up(setup, link)
    report = compare(setup, there)
    assert counts(report) == {"compared": 10, "before_start": 10, "dropped": 10, "local": 10}
    assert told(report, "before_start") == [(topic, "source", 0, 9, 10)]
    assert counts(compare(setup, back)) == {"compared": 10, "dropped": 10, "local": 20}

    # A second copy and a changed one, among what west writes itself, of a link that adds no offsets: the origin gives them away.
    copy, mine = found_at(west, topic, "east 3"), found_at(west, topic, "west 3")
    assert dict(copy.headers)[ORIGIN_HEADER] == east.name.encode()
    produce(west, topic, [again(copy), again(copy, value=b"changed")])
    report = compare(setup, there)
    assert report.damage == {"unexpected": 2}, report.offenders
    # What west wrote, at home once more.
    produce(east, topic, [again(found_at(east, topic, "west 4"))])
    assert compare(setup, back).damage == {"unexpected": 1}
    # Gone: before the start, and of west's own records. The link of the other direction says where.
    delete_records(east, topic, {0: 4})
    delete_records(west, topic, {0: mine.offset})
    report = compare(setup, there)
    assert told(report, "before_start") == [(topic, "source", 4, 9, 6)]
    (gone,) = told(compare(setup, back), "expired")
    assert (gone[1], gone[4]) == ("destination", 3)


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_copies_that_are_all_gone(east: KafkaSite, west: KafkaSite, unique_topic: Name, cleanup: str) -> None:
    """Nothing is left to compare with: that is not called right."""
    topic = create_topic(east, unique_topic("gone"), cleanup_policy=cleanup)
    setup = one_link(east, west, [topic])
    write(east, topic, "common", 10)
    copy_until_caught_up(setup)
    if cleanup == "compact":
        set_config(west, ResourceType.TOPIC, topic, cleanup_policy="compact,delete")
    delete_records(west, topic, {0: 10})
    report = compare(setup)
    assert not report.clean
    assert told(report, "expired") == [(topic, "source", 0, 9, 10)]
    write(east, topic, "more", 5)
    copy_until_caught_up(setup)
    report = compare(setup)
    assert (report.clean, "nothing is wrong" in report.verdict) == (True, False)
    assert counts(report) == {"compared": 5, "expired": 10}
