"""Sites that speak a part of Kafka's protocol: what is missing is named at once. The brokers here only speak the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kafka.errors as kerrors
import pytest
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import EndTxnRequest

from fake_broker import FakeSite
from isthmus.config import Site, loads
from isthmus.engine.check import check_live
from isthmus.engine.job import Job
from isthmus.engine.plan import Planner
from isthmus.errors import ConfigError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.features import DESTINATION, EXACTLY_ONCE, SOURCE
from isthmus.kafka.groups import offsets_of_groups
from isthmus.kafka.offsets import group_offsets


def never(number: int, request: Any) -> Any:
    raise AssertionError("nobody should ask this")


def site(*kinds: Any, cluster_id: str) -> FakeSite:
    made = FakeSite(dict.fromkeys(kinds, never))
    made.cluster_id = cluster_id
    return made


@pytest.fixture
def whole() -> Any:
    """A site that speaks everything that a link needs of it."""
    with site(*DESTINATION, *EXACTLY_ONCE, cluster_id="whole") as made:
        yield made


def configured(east: FakeSite, west: FakeSite, delivery: str) -> Any:
    return loads(
        f"""
sites:
  east: {{bootstrap: [{", ".join(f'"{b}"' for b in east.bootstrap)}]}}
  west: {{bootstrap: [{", ".join(f'"{b}"' for b in west.bootstrap)}]}}
links:
  copy: {{from: east, to: west, topics: [/orders.*/], delivery: {delivery}}}
"""
    )


def refusal_of_run(config: Any) -> str:
    link = config.links["copy"]
    planner = Planner(Job(link, config.sites["east"], config.sites["west"], 1))
    try:
        with pytest.raises(ConfigError) as refusal:
            planner.plan()
    finally:
        planner.close()
    return refusal.value.message


def test_a_site_without_whole_transactions_is_told_at_once(whole: FakeSite) -> None:
    some = {**DESTINATION, **EXACTLY_ONCE}.keys() - {EndTxnRequest}
    with site(*some, cluster_id="some") as lesser:
        config = configured(whole, lesser, "exactly-once")
        words = "site west does not speak EndTxn, which exactly-once needs"
        told = refusal_of_run(config)
        assert words in told
        assert "delivery: at-least-once works without (links.copy.delivery)" in told
        (problem,) = [p for p in check_live(config, 10.0) if "speak" in p.problem]
        assert (problem.loc, problem.problem) == (("links", "copy", "delivery"), words)
        # At least once it is good enough.
        assert [p for p in check_live(configured(whole, lesser, "at-least-once"), 10.0) if "speak" in p.problem] == []


def test_a_site_that_no_link_can_use_is_told_at_once(whole: FakeSite) -> None:
    with site(*SOURCE, cluster_id="source") as reader:
        told = refusal_of_run(configured(whole, reader, "at-least-once"))
        assert (
            "site west does not speak Produce 3, CreateTopics, FindCoordinator 1, OffsetCommit 2, OffsetFetch 2" in told
        )
        assert "(links.copy.to)" in told


@pytest.mark.parametrize("version", [7, 9])
def test_a_group_that_does_not_exist_has_nothing_committed(version: int) -> None:
    gone = kerrors.GroupIdNotFoundError.errno

    def offsets(number: int, request: Any) -> Any:
        if version < 8:
            return OffsetFetchResponse(throttle_time_ms=0, topics=[], error_code=gone)
        kind = OffsetFetchResponse.OffsetFetchResponseGroup
        groups = [kind(group_id=g.group_id, topics=[], error_code=gone) for g in request.groups]
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)

    def coordinator(number: int, request: Any) -> Any:
        port = int(fake.bootstrap[0].split(":")[1])
        return FindCoordinatorResponse(
            throttle_time_ms=0, error_code=0, error_message=None, node_id=0, host="127.0.0.1", port=port
        )

    answers: dict[Any, Callable[[int, Any], Any]] = {OffsetFetchRequest: offsets, FindCoordinatorRequest: coordinator}
    with (
        FakeSite(answers, versions={OffsetFetchRequest: version, FindCoordinatorRequest: 2}) as fake,
        Cluster(Site(name="west", bootstrap=fake.bootstrap)) as cluster,
    ):
        cluster.call(cluster.connect, 10.0)
        assert cluster.call(group_offsets, cluster, "group") == {}
        assert cluster.call(offsets_of_groups, cluster, ["group"]) == {"group": {}}
