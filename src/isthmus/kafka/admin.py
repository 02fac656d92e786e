"""Admin calls with partial failures as values: each returns what happened to each thing it was asked about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import kafka.errors as kerrors
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from isthmus.kafka.cluster import Cluster

TOPIC = 2
# DescribeConfigs' source of a value that was set on the topic itself.
SET_ON_TOPIC = 1
# IncrementalAlterConfigs' ways to change one value.
SET, UNSET = 0, 1
# A broker takes seconds for a request that names thousands of topics; smaller ones keep it answering others.
TOPICS_A_REQUEST = 200
# A controller writes what one request makes as one operation, and refuses it whole above 10,000 records: one a partition, a topic, a setting.
RECORDS_A_REQUEST = 5_000

_Item = TypeVar("_Item")


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
    """All values of a topic's configuration, the subset that was set on the topic itself, and what would hold without
    that (only if it was asked for)."""

    values: dict[str, str]
    own: dict[str, str]
    defaults: dict[str, str] = field(default_factory=dict)

    @property
    def max_message_bytes(self) -> int:
        return int(self.values.get("max.message.bytes", 1048588))


def refusal_of(answer: Any) -> Refusal | None:
    """What an answer, or one thing in it, says against what was asked."""
    if not answer.error_code:
        return None
    return Refusal(kerrors.for_code(answer.error_code), answer.error_message or "")


def chunks(items: Iterable[Any], size: int = TOPICS_A_REQUEST) -> Iterable[list[Any]]:
    every = list(items)
    for start in range(0, len(every), size):
        yield every[start : start + size]


def by_weight(items: Iterable[_Item], weight: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Cut so that no request has more topics, or makes more records, than one may; what is too much by itself goes alone."""
    some: list[_Item] = []
    records = 0
    for item in items:
        its = weight(item)
        if some and (len(some) == TOPICS_A_REQUEST or records + its > RECORDS_A_REQUEST):
            yield some
            some, records = [], 0
        some.append(item)
        records += its
    if some:
        yield some


async def create_topics(
    cluster: Cluster, topics: list[NewTopic], validate_only: bool = False
) -> dict[str, Refusal | None]:
    """Create what is missing; a topic that exists already is a success. ``validate_only`` only asks whether it would be."""
    outcome: dict[str, Refusal | None] = {}
    topic_type = CreateTopicsRequest.CreatableTopic
    for some in by_weight(topics, lambda t: 1 + t.partitions + len(t.configs)):
        request = partial(
            CreateTopicsRequest,
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
            validate_only=validate_only,
        )
        response = await cluster.ask_controller(request, lambda r: r.topics)
        for answer in response.topics:
            error = kerrors.for_code(answer.error_code) if answer.error_code else None
            if error is None or error is kerrors.TopicAlreadyExistsError:
                outcome[answer.name] = None
            else:
                outcome[answer.name] = Refusal(error, answer.error_message or "")
    return outcome


async def defaults_of_new_topics(cluster: Cluster, probe: NewTopic) -> dict[str, str]:
    """The values that a topic gets here without settings of its own; empty if the site does not tell.

    Nothing is created: the site is asked what it would do.
    """
    topic_type = CreateTopicsRequest.CreatableTopic
    request = partial(
        CreateTopicsRequest,
        topics=[
            topic_type(
                name=probe.name,
                num_partitions=probe.partitions,
                replication_factor=probe.replication,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=30_000,
        validate_only=True,
    )
    (answer,) = (await cluster.ask_controller(request, lambda r: r.topics)).topics
    configs = getattr(answer, "configs", None) or []
    return {c.name: c.value for c in configs if c.value is not None}


async def delete_topics(cluster: Cluster, names: Iterable[str], timeout: float = 60.0) -> None:
    """Delete these and wait until no broker that is asked knows them; what is gone already is a success. Raises a refusal."""
    left = sorted(names)
    for some in chunks(left):
        request = partial(DeleteTopicsRequest, topic_names=some, timeout_ms=30_000, max_version=5)
        for answer in (await cluster.ask_controller(request, lambda r: r.responses)).responses:
            error = kerrors.for_code(answer.error_code) if answer.error_code else None
            if error is not None and error is not kerrors.UnknownTopicOrPartitionError:
                raise cluster.refused("DeleteTopics", answer.error_code, answer.name)
    deadline = time.monotonic() + timeout
    while left:
        topics = (await cluster.metadata(left)).topics
        left = [name for name in left if topics[name].error is not kerrors.UnknownTopicOrPartitionError]
        if left and time.monotonic() > deadline:
            raise kerrors.KafkaTimeoutError(f"{left[0]} is still there after its deletion")
        if left:
            await cluster.loop.sleep(0.1)


async def create_partitions(
    cluster: Cluster, counts: Mapping[str, int], validate_only: bool = False
) -> dict[str, Refusal | None]:
    """Grow topics to so many partitions; ``validate_only`` only asks whether that would be done."""
    outcome: dict[str, Refusal | None] = {}
    # How many there are already is not known here: the whole count is more than what is made.
    for some in by_weight(counts.items(), lambda each: each[1]):
        request = partial(
            CreatePartitionsRequest,
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in some
            ],
            timeout_ms=30_000,
            validate_only=validate_only,
        )
        response = await cluster.ask_controller(request, lambda r: r.results)
        for answer in response.results:
            outcome[answer.name] = refusal_of(answer)
    return outcome


async def alter_configs(
    cluster: Cluster, changes: Mapping[str, Mapping[str, str | None]], validate_only: bool = False
) -> dict[str, Refusal | None]:
    """Set values on topics, or unset them (``None``); what is not named stays. ``validate_only`` only asks."""
    outcome: dict[str, Refusal | None] = {}
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    for some in chunks(changes.items()):
        request = partial(
            IncrementalAlterConfigsRequest,
            resources=[
                resource(
                    resource_type=TOPIC,
                    resource_name=name,
                    configs=[
                        resource.AlterableConfig(
                            name=key, config_operation=UNSET if value is None else SET, value=value
                        )
                        for key, value in values.items()
                    ],
                )
                for name, values in some
            ],
            validate_only=validate_only,
        )
        response = await cluster.ask_controller(request, lambda r: r.responses)
        for answer in response.responses:
            outcome[answer.resource_name] = refusal_of(answer)
    return outcome


async def topic_configs(
    cluster: Cluster, topics: list[str], with_defaults: bool = False
) -> dict[str, TopicConfig | Refusal]:
    """The configuration of each topic; ``with_defaults`` also tells what would hold without its own settings."""
    outcome: dict[str, TopicConfig | Refusal] = {}
    for some in chunks(topics):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=TOPIC, resource_name=name, configuration_keys=None
                )
                for name in some
            ],
            include_synonyms=with_defaults,
            include_documentation=False,
        )
        response = await cluster.request(request)
        for answer in response.results:
            if (refusal := refusal_of(answer)) is not None:
                outcome[answer.resource_name] = refusal
                continue
            values = {c.name: c.value for c in answer.configs if c.value is not None}
            own = {c.name: c.value for c in answer.configs if c.config_source == SET_ON_TOPIC and c.value is not None}
            outcome[answer.resource_name] = TopicConfig(values, own, _defaults(answer.configs) if with_defaults else {})
    return outcome


def _defaults(configs: Iterable[Any]) -> dict[str, str]:
    """The first value of each setting that does not come from the topic itself."""
    found: dict[str, str] = {}
    for config in configs:
        if config.config_source != SET_ON_TOPIC:
            value = config.value
        else:
            value = next((s.value for s in config.synonyms if s.source != SET_ON_TOPIC), None)
        if value is not None:
            found[config.name] = value
    return found


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
