"""Which settings a destination topic gets, changes and keeps."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.config.sync_acls import SyncAcls
from isthmus.config.sync_configs import SyncConfigs
from isthmus.control.change import Diff
from isthmus.control.configs import why_altered
from isthmus.control.settings import at_creation, compare, wanted
from isthmus.kafka.admin import TopicConfig

NO_BOUND = str(2**63 - 1)
DEFAULTS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": NO_BOUND,
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
}


def topic(own: dict[str, str] | None = None, **defaults: str) -> TopicConfig:
    base = {**DEFAULTS, **{key.replace("_", "."): value for key, value in defaults.items()}}
    return TopicConfig({**base, **(own or {})}, own or {}, base)


def rules(**options: Any) -> SyncConfigs:
    return SyncConfigs(**options)


def diff_of(source: TopicConfig, there: TopicConfig, ours: dict[str, str] | None = None, **options: Any) -> set[Diff]:
    verdict = compare(wanted(source, rules(**options), 1), there, ours or {}, rules(**options), source)
    assert not verdict.blocked
    return set(verdict.diff)


def test_what_is_set_on_the_source_topic_is_copied_and_nothing_else() -> None:
    source = topic({"segment.bytes": "1000", "remote.storage.enable": "true"}, retention_ms="1")
    want = wanted(source, rules(), 1)
    assert want.copied == {"segment.bytes": "1000"}
    assert "tiered storage" in want.left["remote.storage.enable"]
    assert at_creation(want, DEFAULTS) == {"segment.bytes": "1000", "message.timestamp.type": "CreateTime"}


def test_times_and_sizes_that_the_source_accepts_are_accepted() -> None:
    source = topic({"message.timestamp.before.max.ms": "1000"}, max_message_bytes="5000000")
    want = wanted(source, rules(), 1)
    assert at_creation(want, {**DEFAULTS, "message.timestamp.before.max.ms": "86400000"}) == {
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": NO_BOUND,
        "max.message.bytes": "5000000",
    }
    # A site that has never heard of a bound is not asked for it.
    assert at_creation(want, {}) == {"message.timestamp.type": "CreateTime"}


def test_too_few_replicas_for_the_sources_insync_replicas() -> None:
    source = topic({"min.insync.replicas": "2"})
    assert wanted(source, rules(), 2).copied == {"min.insync.replicas": "2"}
    assert "could not be written" in wanted(source, rules(), 1).left["min.insync.replicas"]


@pytest.mark.parametrize(
    ("options", "copied"),
    [
        ({}, {"segment.bytes", "retention.ms"}),
        ({"serverless": True}, {"retention.ms"}),
        ({"deny": ["retention.ms"]}, {"segment.bytes"}),
        ({"allow": ["retention.ms"]}, {"retention.ms"}),
        ({"allow": ["retention.ms"], "deny": ["retention.ms"]}, set()),
    ],
)
def test_allowed_and_denied(options: dict[str, Any], copied: set[str]) -> None:
    source = topic({"segment.bytes": "1000", "retention.ms": "5"})
    assert set(wanted(source, rules(**options), 1).copied) == copied


def test_a_changed_setting_arrives_and_a_removed_one_is_removed() -> None:
    ours = {"segment.bytes": "1000"}
    there = topic({"segment.bytes": "1000"})
    assert diff_of(topic({"segment.bytes": "2000"}), there, ours) == {Diff("segment.bytes", "1000", "2000")}
    assert diff_of(topic(), there, ours) == {Diff("segment.bytes", "1000", None)}
    # Set by somebody else, or changed by somebody else since: not ours to remove.
    assert diff_of(topic(), there) == set()
    assert diff_of(topic(), topic({"segment.bytes": "3000"}), ours) == set()


def test_a_lists_order_says_nothing() -> None:
    assert diff_of(topic({"cleanup.policy": "compact,delete"}), topic({"cleanup.policy": "delete,compact"})) == set()


def test_a_raised_limit_is_lowered_only_as_far_as_records_fit() -> None:
    ours = {"max.message.bytes": "5000000"}
    there = topic({"max.message.bytes": "5000000"})
    assert diff_of(topic(), there, ours) == {Diff("max.message.bytes", "5000000", None)}
    assert diff_of(topic(max_message_bytes="5000000"), there, ours) == set()


def test_what_would_refuse_or_change_records_is_told() -> None:
    source = topic()
    there = topic({"message.timestamp.type": "LogAppendTime", "max.message.bytes": "100"})
    verdict = compare(wanted(source, rules(), 1), there, {}, rules(), source)
    assert {diff.key: diff.after for diff, _ in verdict.blocked} == {
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": "1048588",
    }
    # A default of the destination is nobody's decision about this topic.
    assert diff_of(source, topic(max_message_bytes="100")) == {Diff("max.message.bytes", None, "1048588")}


def test_defaults_that_differ_are_told_and_left() -> None:
    source = topic(retention_ms="1")
    verdict = compare(wanted(source, rules(), 1), topic(), {}, rules(), source)
    assert verdict.diff == []
    assert [(diff.key, diff.before, diff.after) for diff, _ in verdict.kept] == [("retention.ms", "604800000", "1")]


def test_what_somebody_else_has_set_is_told_with_both_values() -> None:
    source, there = topic(), topic({"retention.ms": "1000", "segment.bytes": "5", "cleanup.policy": "delete"})
    verdict = compare(wanted(source, rules(), 1), there, {"segment.bytes": "4"}, rules(), source)
    assert (verdict.diff, verdict.kept) == ([], [])
    assert dict(verdict.foreign) == {
        Diff("retention.ms", "1000", "604800000"): "retention.ms is 1000 there and 604800000 at the source; "
        "it was not set by this link, and is kept",
        Diff("segment.bytes", "5", "1073741824"): "segment.bytes is 5 there and 1073741824 at the source; "
        "it was not set by this link, and is kept",
    }
    # What is ours, what the source sets, and what blocks the link is said elsewhere.
    ours = {"retention.ms": "1000"}
    assert compare(wanted(source, rules(), 1), topic(ours), ours, rules(), source).foreign == []
    source = topic({"retention.ms": "5"})
    assert compare(wanted(source, rules(), 1), topic(ours), {}, rules(), source).foreign == []
    source = topic()
    tight = compare(wanted(source, rules(), 1), topic({"max.message.bytes": "100"}), {}, rules(), source)
    assert (len(tight.blocked), tight.foreign) == (1, [])


def test_one_replica_is_one_replica() -> None:
    assert "has 1 replica, and" in wanted(topic({"min.insync.replicas": "2"}), rules(), 1).left["min.insync.replicas"]


def test_a_change_and_a_removal_have_a_reason_each() -> None:
    want = wanted(topic({"retention.ms": "5"}), rules(), 1)
    set_, unset = Diff("retention.ms", None, "5"), Diff("segment.bytes", "1", None)
    assert why_altered([set_], want, "orders") == "as set on orders"
    assert why_altered([unset], want, "orders") == "orders has no such setting any more"
    assert why_altered([set_, unset], want, "orders") == (
        "retention.ms: as set on orders; segment.bytes: orders has no such setting any more"
    )
    guard = Diff("message.timestamp.type", "LogAppendTime", "CreateTime")
    assert why_altered([guard], want, "orders").startswith("so that no record")


def test_principals() -> None:
    acls = SyncAcls(
        enabled=True, principals={"User:alice": "User:al", r"/User:CN=(\w+),.*/": r"User:\1", "User:eve": None}
    )
    names = ["User:alice", "User:CN=bob,O=x", "User:eve", "User:carol"]
    assert [acls.principal(name) for name in names] == ["User:al", "User:bob", None, "User:carol"]
