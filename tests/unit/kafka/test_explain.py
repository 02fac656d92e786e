"""Errors of kafka-python in our words: only a site that cannot be reached is called so, and the site is the one that it happened at."""

from __future__ import annotations

import kafka.errors as kerrors
import pytest
from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse

from fake_broker import FakeSite
from isthmus.config import Site
from isthmus.errors import ConnectionFailed, SiteRefused
from isthmus.kafka.cluster import Cluster, whose
from isthmus.kafka.groups import list_groups
from isthmus.kafka.offsets import group_offsets


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (kerrors.PolicyViolationError, "POLICY_VIOLATION"),
        (kerrors.InvalidCommitOffsetSizeError, "raise message.max.bytes"),
        (kerrors.CoordinatorNotAvailableError, "COORDINATOR_NOT_AVAILABLE"),
        (kerrors.UnsupportedVersionError, "isthmus config check --live"),
        (kerrors.UnknownError, "the logs of its brokers"),
    ],
)
def test_what_a_broker_refuses_is_named(error: type[kerrors.KafkaError], words: str) -> None:
    with Cluster(Site(name="west", bootstrap=["127.0.0.1:1"])) as cluster:
        told = cluster.explain(cluster.refused("EndTxn", error.errno, "id"), "committing")
    assert isinstance(told, SiteRefused)
    assert told.message.startswith("site west: it refused EndTxn while committing with ")
    assert words in told.message
    assert "cannot reach" not in told.message


@pytest.mark.parametrize(
    "error", [kerrors.KafkaConnectionError, kerrors.KafkaTimeoutError, kerrors.RequestTimedOutError]
)
def test_only_what_cannot_be_reached_is_called_so(error: type[kerrors.KafkaError]) -> None:
    with Cluster(Site(name="west", bootstrap=["127.0.0.1:1"])) as cluster:
        told = cluster.explain(error("gone"))
    assert type(told) is ConnectionFailed
    assert "cannot reach 127.0.0.1:1" in told.message


def test_an_error_knows_its_site_and_its_request() -> None:
    def refuse(number: int, request: object) -> ListGroupsResponse:
        return ListGroupsResponse(throttle_time_ms=0, error_code=kerrors.PolicyViolationError.errno, groups=[])

    with FakeSite({ListGroupsRequest: refuse}, versions={ListGroupsRequest: 2}) as fake:
        east, west = (Cluster(Site(name=name, bootstrap=fake.bootstrap)) for name in ("east", "west"))
        with east, west:
            for cluster in (east, west):
                cluster.call(cluster.connect, 10.0)
                with pytest.raises(kerrors.PolicyViolationError) as refusal:
                    cluster.call(list_groups, cluster)
                assert whose(refusal.value, east, west) is cluster
                assert "refused ListGroups" in cluster.explain(refusal.value).message
                # What it does not offer at all: the version is refused before anything is sent.
                with pytest.raises(kerrors.UnsupportedVersionError) as missing:
                    cluster.call(group_offsets, cluster, "group")
                assert whose(missing.value, east, west) is cluster
                assert "refused FindCoordinator" in cluster.explain(missing.value).message
