"""What one request may hold: commits are cut by bytes, new topics by what the controller writes for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kafka.errors as kerrors
import pytest
from kafka.protocol.consumer import OffsetCommitResponse

from isthmus.config import Site
from isthmus.errors import SiteRefused
from isthmus.kafka.admin import NewTopic, create_partitions, create_topics
from isthmus.kafka.cluster import COMMIT_BYTES, Cluster
from isthmus.kafka.offsets import Committed, commit_group_offsets, pieces

OFFSETS = {
    (f"{'t' * 70}.{number:08}", partition): Committed(7, "m" * 160) for number in range(100) for partition in range(100)
}


class Stage(Cluster):
    """A site whose coordinator takes so many bytes at once; ``answered`` are the sizes of what it was asked to commit."""

    def __init__(self, limit: int = 1 << 20, code: int = kerrors.InvalidCommitOffsetSizeError.errno) -> None:
        super().__init__(Site(name="west", bootstrap=["127.0.0.1:1"]))
        self.limit, self.code = limit, code
        self.taken: dict[Any, int] = {}
        self.requests = 0
        self.weights: list[int] = []

    async def ask_coordinator(self, kind: int, key: str, request: Any, *_: Any, **__: Any) -> Any:
        asked = request()
        self.requests += 1
        code = self.code if len(asked.encode(version=8)) > self.limit else 0
        kind_ = OffsetCommitResponse.OffsetCommitResponseTopic
        topics = []
        for topic in asked.topics:
            parts = [
                kind_.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                for p in topic.partitions
            ]
            topics.append(kind_(name=topic.name, partitions=parts))
            if not code:
                self.taken.update({(topic.name, p.partition_index): p.committed_offset for p in topic.partitions})
        return OffsetCommitResponse(topics=topics)

    async def request(self, request: Any, node: int | None = None, timeout: float | None = None) -> Any:
        answers = [SimpleNamespace(name=t.name, error_code=0, error_message=None) for t in request.topics]
        self.weights.append(sum(getattr(t, "num_partitions", None) or getattr(t, "count", 0) for t in request.topics))
        return SimpleNamespace(topics=answers, results=answers)


@pytest.fixture
def stage() -> Any:
    made: list[Stage] = []

    def make(*args: int) -> Stage:
        made.append(Stage(*args))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_ten_thousand_partitions_are_a_dozen_commits(stage: Any) -> None:
    cluster = stage()
    cluster.call(commit_group_offsets, cluster, "group", OFFSETS)
    assert set(cluster.taken) == set(OFFSETS)
    size = sum(len(topic) + len(value.metadata) for (topic, _), value in OFFSETS.items())
    assert size / COMMIT_BYTES < cluster.requests <= 2 * size / COMMIT_BYTES
    # In their order: what is last is written when all the rest is.
    assert [key for piece in pieces("group", OFFSETS, COMMIT_BYTES) for key in piece] == list(OFFSETS)


@pytest.mark.parametrize("code", [kerrors.InvalidCommitOffsetSizeError.errno, kerrors.UnknownError.errno])
def test_a_lower_limit_is_found_and_remembered(stage: Any, code: int) -> None:
    cluster = stage(20_000, code)
    cluster.call(commit_group_offsets, cluster, "group", OFFSETS)
    assert set(cluster.taken) == set(OFFSETS)
    first, cluster.requests = cluster.requests, 0
    cluster.call(commit_group_offsets, cluster, "group", OFFSETS)
    assert cluster.requests < first


def test_a_commit_that_is_refused_is_named(stage: Any) -> None:
    cluster = stage(10)
    with pytest.raises(kerrors.InvalidCommitOffsetSizeError) as refusal:
        cluster.call(commit_group_offsets, cluster, "group", {("orders", 0): Committed(1, "")})
    told = cluster.explain(refusal.value, "committing")
    assert isinstance(told, SiteRefused)
    assert "refused OffsetCommit while committing with INVALID_COMMIT_OFFSET_SIZE (orders)" in told.message
    assert "cannot reach" not in told.message
    assert cluster.commit_bytes == COMMIT_BYTES


def test_topics_are_created_by_what_they_weigh(stage: Any) -> None:
    cluster = stage()
    topics = [NewTopic(f"t{number}", 100, 1, {"retention.ms": "1"}) for number in range(100)]
    topics.append(NewTopic("huge", 20_000, 1))
    outcome = cluster.call(create_topics, cluster, topics)
    assert set(outcome) == {topic.name for topic in topics}
    assert max(cluster.weights[:-1]) <= 5_000
    assert sum(cluster.weights) == 30_000
    cluster.weights.clear()
    cluster.call(create_partitions, cluster, {f"t{number}": 300 for number in range(100)})
    assert max(cluster.weights) <= 5_000
    assert sum(cluster.weights) == 30_000
