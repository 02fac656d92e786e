"""Topics that are not those that were copied, told by what progress and map pin."""

from __future__ import annotations

import json
import uuid

import kafka.errors as kerrors

from isthmus.config import loads
from isthmus.control.topics import Topic
from isthmus.engine.incarnations import judge
from isthmus.engine.offset_map import PartitionMap
from isthmus.engine.report import FaultReport, Reports
from isthmus.engine.state import Progress
from isthmus.kafka.cluster import NO_ID, PartitionInfo, TopicInfo

LINK = loads(
    "sites: {east: {bootstrap: 'a:1'}, west: {bootstrap: 'b:1'}}\nlinks: {l: {from: east, to: west, topics: [t]}}"
).links["l"]
OLD, NEW, THERE = (uuid.UUID(int=n) for n in (1, 2, 3))


def info(topic_id: uuid.UUID, partitions: int = 1, error: type[Exception] | None = None) -> TopicInfo:
    return TopicInfo("t", topic_id, {p: PartitionInfo(1, 0, 1) for p in range(partitions)}, error)


def judged(
    source: TopicInfo, target: TopicInfo | None, *progress: Progress, kept: PartitionMap | None = None
) -> dict[int, str]:
    committed = {("t", p): each.commit() for p, each in enumerate(progress)}
    found = judge(
        LINK,
        {"t": Topic(source, "t")},
        {"t": target} if target else {},
        committed,
        {("t", 0): kept} if kept else {},
    )
    return {partition: type(fault).__name__ for (_, partition), fault in found.items()}


def test_both_ids_are_compared() -> None:
    progress = Progress(10, "t", "c", OLD, THERE)
    assert judged(info(OLD), info(THERE), progress) == {}
    assert judged(info(NEW), info(THERE), progress) == {0: "SourceRecreated"}
    assert judged(info(OLD), info(NEW), progress) == {0: "DestinationRecreated"}
    gone = info(NO_ID, 0, kerrors.UnknownTopicOrPartitionError)
    assert judged(info(OLD), gone, progress) == {0: "DestinationMissing"}


def test_sites_without_ids_and_answers_that_are_missing_are_not_judged() -> None:
    progress = Progress(10, "t", "c", OLD, THERE)
    assert judged(info(NO_ID), info(NO_ID), progress) == {}
    assert judged(info(OLD), None, progress) == {}
    assert judged(info(OLD), info(NO_ID, 0, kerrors.LeaderNotAvailableError), progress) == {}


def test_fewer_partitions_than_before() -> None:
    held = [Progress(10, "t", "c", OLD, THERE)] * 2
    assert judged(info(NEW), info(THERE, 2), *held) == {0: "SourceRecreated", 1: "SourceRecreated"}


def test_the_map_remembers_what_the_broker_has_forgotten() -> None:
    kept = PartitionMap("t", 0, OLD, THERE, next_offset=10)
    assert judged(info(OLD), info(THERE), kept=kept) == {}
    assert judged(info(OLD), info(NEW), kept=kept) == {0: "DestinationRecreated"}


def test_a_fault_that_an_earlier_version_wrote_is_read() -> None:
    body = {"topic": "t", "partition": 0, "offset": 1, "error": "RuleFailed", "message": "m", "since": 1.0}
    reports = Reports()
    reports.take([(b"fault/t/0", json.dumps(body).encode())])
    assert reports.faults["t", 0] == FaultReport("t", 0, 1, "RuleFailed", "m", 1.0, "")
