"""Brokers that list groups without their states: each is described, and what nobody tells is not known. The brokers here only speak the protocol."""

from __future__ import annotations

from typing import Any

import kafka.errors as kerrors
from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

from fake_broker import FakeSite
from isthmus.config import Site
from isthmus.control.groups import _left_alone
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.groups import Group, list_groups

STATES = {"idle": "Empty", "busy": "Stable"}


def listed(number: int, request: Any) -> Any:
    kind = ListGroupsResponse.ListedGroup
    groups = [kind(group_id=name, protocol_type="consumer") for name in (*STATES, "hidden")]
    return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)


def described(number: int, request: Any) -> Any:
    kind, refused = DescribeGroupsResponse.DescribedGroup, kerrors.GroupAuthorizationFailedError.errno
    groups = [
        kind(
            error_code=0 if name in STATES else refused,
            group_id=name,
            group_state=STATES.get(name, ""),
            protocol_type="consumer",
            protocol_data="",
            members=[],
        )
        for name in request.groups
    ]
    return DescribeGroupsResponse(throttle_time_ms=0, groups=groups)


def found(answers: Any) -> dict[str, str]:
    versions = {ListGroupsRequest: 2, DescribeGroupsRequest: 2}
    with FakeSite(answers, versions=versions) as fake, Cluster(Site(name="west", bootstrap=fake.bootstrap)) as cluster:
        cluster.call(cluster.connect, 10.0)
        return {group.name: group.state for group in cluster.call(list_groups, cluster).values()}


def test_a_state_that_is_not_listed_is_asked_for() -> None:
    assert found({ListGroupsRequest: listed, DescribeGroupsRequest: described}) == {**STATES, "hidden": ""}
    assert found({ListGroupsRequest: listed}) == {"idle": "", "busy": "", "hidden": ""}


def test_a_state_that_is_not_known_is_no_word_about_members() -> None:
    here, there = Group("a", "Empty", "classic", "consumer"), Group("a", "", "classic", "consumer")
    assert _left_alone(here, there, only_empty=True).startswith(
        "whether it has members at the destination is not known"
    )
    assert _left_alone(there, here, only_empty=True).startswith("whether it has members at the source is not known")
    assert _left_alone(there, None, only_empty=False) == ""
    assert "has members" in _left_alone(here, Group("a", "Stable", "classic", "consumer"), only_empty=False)
    assert _left_alone(here, here, only_empty=True) == ""
