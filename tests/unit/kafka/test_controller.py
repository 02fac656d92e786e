"""Sites with ZooKeeper: one broker changes the cluster, and the others refuse. The brokers here only speak the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka.errors as kerrors
import pytest
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from fake_broker import FakeSite
from isthmus.config import Site
from isthmus.kafka.acls import Acl, create_acls
from isthmus.kafka.admin import NewTopic, alter_configs, create_partitions, create_topics, delete_topics
from isthmus.kafka.cluster import Cluster

NOT_CONTROLLER = kerrors.NotControllerError.errno
BROKERS = 3


class Old(FakeSite):
    """Three brokers; the controller moves on when it was asked so often."""

    moves_after = -1

    def __init__(self) -> None:
        super().__init__(
            {
                CreateTopicsRequest: self._create,
                DeleteTopicsRequest: self._delete,
                CreatePartitionsRequest: self._grow,
                IncrementalAlterConfigsRequest: self._alter,
                CreateAclsRequest: self._allow,
            },
            BROKERS,
            {CreateTopicsRequest: 4, DeleteTopicsRequest: 3, CreatePartitionsRequest: 1, CreateAclsRequest: 1}
            | {IncrementalAlterConfigsRequest: 0},
        )

    def _code(self, number: int) -> int:
        if self.moves_after == 0:
            self.controller = (self.controller + 1) % BROKERS
        self.moves_after -= 1
        return 0 if number == self.controller else NOT_CONTROLLER

    def _create(self, number: int, request: Any) -> Any:
        code, kind = self._code(number), CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(
            throttle_time_ms=0, topics=[kind(name=t.name, error_code=code, error_message=None) for t in request.topics]
        )

    def _delete(self, number: int, request: Any) -> Any:
        # What is gone already is a success; this site never has any topic.
        code = self._code(number) or kerrors.UnknownTopicOrPartitionError.errno
        kind = DeleteTopicsResponse.DeletableTopicResult
        return DeleteTopicsResponse(
            throttle_time_ms=0, responses=[kind(name=name, error_code=code) for name in request.topic_names]
        )

    def _grow(self, number: int, request: Any) -> Any:
        code, kind = self._code(number), CreatePartitionsResponse.CreatePartitionsTopicResult
        return CreatePartitionsResponse(
            throttle_time_ms=0, results=[kind(name=t.name, error_code=code, error_message=None) for t in request.topics]
        )

    def _alter(self, number: int, request: Any) -> Any:
        code, kind = self._code(number), IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        answers = [
            kind(error_code=code, error_message=None, resource_type=r.resource_type, resource_name=r.resource_name)
            for r in request.resources
        ]
        return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=answers)

    def _allow(self, number: int, request: Any) -> Any:
        code, kind = self._code(number), CreateAclsResponse.AclCreationResult
        return CreateAclsResponse(
            throttle_time_ms=0, results=[kind(error_code=code, error_message=None) for _ in request.creations]
        )


@pytest.fixture(params=range(BROKERS))
def old(request: pytest.FixtureRequest) -> Iterator[Old]:
    with Old() as site:
        site.controller = request.param
        yield site


@pytest.fixture
def cluster(old: Old) -> Iterator[Cluster]:
    with Cluster(Site(name="west", bootstrap=old.bootstrap)) as made:
        made.call(made.connect, 10.0)
        yield made


def test_what_changes_the_cluster_reaches_its_controller(old: Old, cluster: Cluster) -> None:
    acl = Acl("topic", "literal", "a", "User:a", "*", "READ", "ALLOW")
    assert cluster.call(create_topics, cluster, [NewTopic("a", 1, 1), NewTopic("b", 1, 1)]) == {"a": None, "b": None}
    assert cluster.call(create_partitions, cluster, {"a": 2}) == {"a": None}
    assert cluster.call(alter_configs, cluster, {"a": {"retention.ms": "1"}}) == {"a": None}
    assert cluster.call(create_acls, cluster, [acl]) == {acl: None}
    # It is remembered: only the first request may have gone astray.
    assert len(old.requests(CreateTopicsRequest)) <= 2
    for kind in (CreatePartitionsRequest, IncrementalAlterConfigsRequest, CreateAclsRequest):
        assert len(old.requests(kind)) <= 2
        assert old.requests(kind)[-1] == old.controller


def test_a_controller_that_moves_is_followed(old: Old, cluster: Cluster) -> None:
    for number in range(2 * BROKERS):
        old.moves_after = number % 2
        assert cluster.call(create_topics, cluster, [NewTopic("a", 1, 1)], True) == {"a": None}
    old.moves_after = 0
    with pytest.raises(KeyError):  # the metadata of this site has no topics; that comes after the deletion
        cluster.call(delete_topics, cluster, ["a"])
    assert old.requests(DeleteTopicsRequest)[-1] == old.controller
