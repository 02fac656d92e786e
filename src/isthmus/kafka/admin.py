"""Admin calls with partial failures as values: each returns what happened to each thing it was asked about."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DescribeConfigsRequest

from isthmus.kafka.cluster import Cluster

TOPIC = 2
# DescribeConfigs' source of a value that was set on the topic itself.
SET_ON_TOPIC = 1
# A broker takes seconds for a request that names thousands of topics; smaller ones keep it answering others.
TOPICS_A_REQUEST = 200


@dataclass(slots=True, frozen=True)
class NewTopic:
    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Refusal:
    """Why the site refused one thing: the name of Kafka's error, and its words."""

    error: type[Exception]
    words: str

    def __str__(self) -> str:
        return f"{self.error.__name__.removesuffix('Error')}: {self.words}" if self.words else self.error.__name__


@dataclass(slots=True)
class TopicConfig:
    """All values of a topic's configuration, and the subset that was set on the topic itself."""

    values: dict[str, str]
    own: dict[str, str]

    @property
    def max_message_bytes(self) -> int:
        return int(self.values.get("max.message.bytes", 1048588))


def _chunks(items: list[Any]) -> Iterable[list[Any]]:
    for start in range(0, len(items), TOPICS_A_REQUEST):
        yield items[start : start + TOPICS_A_REQUEST]


async def create_topics(cluster: Cluster, topics: list[NewTopic]) -> dict[str, Refusal | None]:
    """Create what is missing; a topic that exists already is a success."""
    outcome: dict[str, Refusal | None] = {}
    topic_type = CreateTopicsRequest.CreatableTopic
    for some in _chunks(topics):
        request = CreateTopicsRequest(
            topics=[
                topic_type(
                    name=t.name,
                    num_partitions=t.partitions,
                    replication_factor=t.replication,
                    assignments=[],
                    configs=[topic_type.CreatableTopicConfig(name=k, value=v) for k, v in t.configs.items()],
                )
                for t in some
            ],
            timeout_ms=30_000,
            validate_only=False,
        )
        response = await cluster.request(request, timeout=60)
        for answer in response.topics:
            error = kerrors.for_code(answer.error_code) if answer.error_code else None
            if error is None or error is kerrors.TopicAlreadyExistsError:
                outcome[answer.name] = None
            else:
                outcome[answer.name] = Refusal(error, answer.error_message or "")
    return outcome


async def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> dict[str, Refusal | None]:
    """Grow topics to so many partitions."""
    outcome: dict[str, Refusal | None] = {}
    for some in _chunks(list(counts.items())):
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in some
            ],
            timeout_ms=30_000,
            validate_only=False,
        )
        response = await cluster.request(request, timeout=60)
        for answer in response.results:
            error = kerrors.for_code(answer.error_code) if answer.error_code else None
            outcome[answer.name] = Refusal(error, answer.error_message or "") if error else None
    return outcome


async def topic_configs(cluster: Cluster, topics: list[str]) -> dict[str, TopicConfig | Refusal]:
    """The configuration of each topic."""
    outcome: dict[str, TopicConfig | Refusal] = {}
    for some in _chunks(topics):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=TOPIC, resource_name=name, configuration_keys=None
                )
                for name in some
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        response = await cluster.request(request)
        for answer in response.results:
            if answer.error_code:
                refusal = Refusal(kerrors.for_code(answer.error_code), answer.error_message or "")
                outcome[answer.resource_name] = refusal
                continue
            values = {c.name: c.value for c in answer.configs if c.value is not None}
            own = {c.name: c.value for c in answer.configs if c.config_source == SET_ON_TOPIC and c.value is not None}
            outcome[answer.resource_name] = TopicConfig(values, own)
    return outcome


async def wait_for_topics(cluster: Cluster, topics: Iterable[str], timeout: float = 30.0) -> None:
    """Return when each topic has a leader on each partition: a fresh topic is not usable at once."""
    missing, deadline = set(topics), time.monotonic() + timeout
    while missing:
        try:
            metadata = await cluster.metadata(sorted(missing))
            for name, info in metadata.topics.items():
                if info.error is None and info.partitions and all(p.leader >= 0 for p in info.partitions.values()):
                    missing.discard(name)
        except kerrors.RetriableError:
            pass
        if missing:
            if time.monotonic() > deadline:
                raise kerrors.KafkaTimeoutError(f"topics without leaders: {', '.join(sorted(missing)[:5])}")
            await cluster.loop.sleep(0.05)
