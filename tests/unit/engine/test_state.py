"""What is written at the destination reads back as it was, and foreign commits are not taken for ours."""

from __future__ import annotations

import uuid

import pytest

from isthmus.config import Link, Site
from isthmus.engine import pen
from isthmus.engine.pen import Pen
from isthmus.engine.report import FaultReport, Reports, SlotReport
from isthmus.engine.state import Claim, Control, Progress
from isthmus.errors import DataError, RetentionGap
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import Committed


def test_progress_reads_back():
    progress = Progress(42, "a topic with spaces", "cluster", uuid.uuid4(), uuid.uuid4())
    assert Progress.read(progress.commit()) == progress
    assert len(progress.commit().metadata) < 200


def test_progress_of_somebody_else_is_none():
    assert Progress.read(Committed(1, "")) is None
    assert Progress.read(Committed(1, "2 a b c d")) is None


def test_claim_reads_back():
    claim = Claim(7, "run", "host:1", "a", "b", 4)
    assert Claim.read(claim.commit()) == claim
    assert Claim.read(None) is None


def test_control_reads_back():
    control = Control(True, 1000, True, 3, "run", "held", 9, "mark")
    assert Control.read(control.commit()) == control
    assert Control.read(None) == Control()


def test_reports_keep_the_newest_and_forget_cleared_faults():
    reports = Reports()
    fault = RetentionGap("gone", "a/b", 3, 17)
    reports.take([SlotReport(0, "r", 1, 1.0, 1, 2, 3, 4.0, 5.0, {"a/b/3": 10.0}).record()])
    reports.take([SlotReport(1, "r", 2, 2.0, 1, 2, 3, 4.0, 5.0, {"a/b/3": 20.0}).record()])
    reports.take([FaultReport.of(fault).record()])
    assert reports.traffic() == {("a/b", 3): 20.0}
    assert reports.faults["a/b", 3].error == "RetentionGap"
    reports.take([(FaultReport.key(("a/b", 3)), None)])
    assert not reports.faults


@pytest.mark.parametrize("line", [Claim, Control])
def test_what_a_site_has_not_kept_is_told(line):
    with pytest.raises(DataError, match="does not keep the metadata of committed offsets"):
        line.read(Committed(1, ""))
    with pytest.raises(DataError, match="somebody else commits to the link's group"):
        line.read(Committed(1, "hello"))


def test_a_site_that_drops_metadata_is_found_by_the_first_write(monkeypatch):
    kept: dict[tuple[str, int], Committed] = {}

    async def commit(cluster, group, offsets):
        kept.update({key: Committed(value.offset, "") for key, value in offsets.items()})

    async def offsets(cluster, group, partitions=None, stable=True, timeout=0.0):
        return kept

    monkeypatch.setattr(pen, "commit_group_offsets", commit)
    monkeypatch.setattr(pen, "group_offsets", offsets)
    link = Link(name="copy", source="east", target="west", topics=["a"], delivery="at-least-once")
    with Cluster(Site(name="west", bootstrap=["127.0.0.1:1"])) as cluster:
        claim = Claim(1, "run").commit()
        with pytest.raises(DataError, match="site west does not keep the metadata"):
            cluster.call(Pen(cluster, link).write, {("map", 0): claim})
