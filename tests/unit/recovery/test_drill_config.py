"""The operator's configuration, rewritten for a drill: what is kept, and what must never be in it."""

from __future__ import annotations

import json

import pytest

from isthmus.config import Config, loads
from isthmus.errors import UsageError
from isthmus.recovery.drill_config import GROUP, rehearsal, scratch
from isthmus.recovery.drill_traffic import judge

FILE = """
sites:
  east:
    bootstrap: kafka.east.example:9093
    tls: true
    sasl: {mechanism: PLAIN, username: the-user, password: the-password}
    registry: {url: "https://registry.east.example", username: reg, password: the-registry-password}
    hooks: {fence: /opt/the-hook fence, unfence: /opt/the-hook unfence}
    cluster_id: the-cluster-id
  west:
    bootstrap: kafka.west.example:9093
    tls: true
    sasl: {mechanism: OAUTHBEARER, token: {env: DRILL_TOKEN}}
    registry: {url: "https://registry.west.example"}
  north: {bootstrap: kafka.north.example:9092}
links:
  there:
    from: east
    to: west
    topics: [orders, payments]
    rename: "{source}.{topic}"
    loop: returning
    commit_interval: 200ms
    delivery: exactly-once
    replication_factor: 3
    start: latest
    compression: zstd
    tasks: 2
    rules: ["masking:cards", {schema_ids: {}}]
    spark: {spark.some.secret: the-spark-secret}
    sync:
      acls: on
      schemas: on
      groups: {include: ["/billing-.*/"], interval: 5s, only_empty: false}
  back: {from: west, to: east, topics: ["/orders|refunds/"], rename: "{source}.{topic}", loop: returning}
spark: {spark.master: "spark://the-spark-master:7077", spark.isthmus.open: true}
metrics: {listen: 9464, token: the-metrics-token}
"""


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("DRILL_TOKEN", "the-token")
    return loads(FILE)


def test_nothing_of_the_real_sites_is_in_it(config: Config) -> None:
    plan = rehearsal(config, None, ["orders"])
    text = json.dumps(plan.document({"east": {"bootstrap": "127.0.0.1:1"}, "west": {"bootstrap": "127.0.0.1:2"}}))
    for word in ("example", "the-", "hook", "registry", "9464", "DRILL_TOKEN", "north", "schema_ids"):
        assert word not in text, word


def test_links_are_what_they_are(config: Config) -> None:
    plan = rehearsal(config, None, ["orders"])
    made = loads(
        json.dumps(plan.document({"east": {"bootstrap": "127.0.0.1:1"}, "west": {"bootstrap": "127.0.0.1:2"}}))
    )
    assert list(made.links) == ["there", "back"]
    for name, link in made.links.items():
        real = config.links[name]
        for field in (
            "source",
            "target",
            "topics",
            "rename",
            "loop",
            "origin",
            "commit_interval",
            "delivery",
            "compression",
            "tasks",
            "headers",
        ):
            assert getattr(link, field) == getattr(real, field), field
        assert link.sync.groups == real.sync.groups
        assert link.sync.configs == real.sync.configs
    assert made.links["there"].rules == ["masking:cards"]
    assert made.spark == {"spark.master": "local[*]"}
    assert any("left out" in note for note in plan.notes)
    # The group is one that follows, and whose name says so.
    assert config.links["there"].sync.groups.matches(plan.group)
    assert plan.group != GROUP


def test_topics_of_each_site(config: Config) -> None:
    plan = rehearsal(config, None, ["orders", "refunds"])
    assert set(plan.topics["east"]) == {"orders", "payments"}
    assert set(plan.topics["west"]) == {"orders", "refunds"}
    assert plan.sites == ["east", "west"]


def test_expressions_need_a_name_when_the_site_is_silent() -> None:
    silent = loads(
        "sites: {a: {bootstrap: '127.0.0.1:1'}, b: {bootstrap: '127.0.0.1:2'}}\nlinks: {ab: {from: a, to: b, topics: '/t.*/'}}"
    )
    with pytest.raises(UsageError, match="--topic"):
        rehearsal(silent, None, [])
    assert set(rehearsal(silent, None, ["t1"]).topics["a"]) == {"t1"}
    with pytest.raises(UsageError, match="no link of the configuration copies it"):
        rehearsal(silent, None, ["other"])
    with pytest.raises(UsageError, match="no link leads from b"):
        rehearsal(silent, "b", ["t1"])
    with pytest.raises(UsageError, match='there is no site "c"'):
        rehearsal(silent, "c", ["t1"])


def test_scratch_things_have_names_of_their_own(config: Config) -> None:
    made = scratch(config, None, "abc123")
    assert made.link.name == "drill-abc123"
    assert made.topic == "isthmus-drill-abc123"
    assert set(made.config.sites) == {"drill-abc123-east", "drill-abc123-west"}
    assert all(site.hooks is None for site in made.config.sites.values())
    assert made.config.sites[made.source].bootstrap == config.sites["east"].bootstrap
    assert made.copy == "drill-abc123-east.isthmus-drill-abc123"
    assert made.link.sync.groups.include == [made.group]
    assert not made.link.sync.acls.enabled
    assert not made.link.sync.schemas.enabled
    assert made.link.commit_interval == config.links["there"].commit_interval
    assert made.link.topics.include == [made.topic]


def test_a_link_that_would_take_the_scratch_topic_along_is_named() -> None:
    greedy = loads(
        "sites: {a: {bootstrap: 'a.example:1'}, b: {bootstrap: 'b.example:2'}}\nlinks: {ab: {from: a, to: b, topics: '/.*/'}}"
    )
    with pytest.raises(UsageError, match=r"links\.ab\.topics\.exclude"):
        scratch(greedy, None, "abc123")
    modest = loads(
        "sites: {a: {bootstrap: 'a.example:1'}, b: {bootstrap: 'b.example:2'}}\n"
        "links: {ab: {from: a, to: b, topics: {include: '/.*/', exclude: '/.*isthmus-drill-.*/'}}}"
    )
    assert scratch(modest, None, "abc123").topic == "isthmus-drill-abc123"


def test_the_judge_counts_each_kind_of_damage() -> None:
    held = {("t", 0): ["e/1", "e/3", "e/2", "w/1"], ("t", 1): ["w/1"]}
    found = judge("east", held, {"e/1", "e/2", "e/3", "e/4", "w/1"})
    assert (found.held, found.missing, found.doubled, found.out_of_order) == (5, ["e/4"], ["w/1"], ["e/2"])
    assert not found.clean
