"""Which ACLs the destination gets for those of the source: renames, patterns, principals, a standby."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from isthmus.config import Link
from isthmus.control.acls import wanted
from isthmus.control.topics import Topic
from isthmus.kafka.acls import Acl
from isthmus.kafka.cluster import TopicInfo


def link_of(**options: Any) -> Link:
    sync = {"acls": {"enabled": True, **options.pop("acls", {})}}
    return Link(name="l", source="east", target="west", topics=["/orders.*/"], sync=sync, **options)


def acl(text: str) -> Acl:
    """``ALLOW READ topic:prefixed:orders User:a`` in short."""
    permission, operation, resource, principal = text.split(" ")
    kind, pattern, name = resource.split(":")
    return Acl(kind, pattern, name, principal, "*", operation, permission)


def short(acls: Any) -> set[str]:
    return {f"{a.permission} {a.operation} {a.kind}:{a.pattern}:{a.name} {a.principal}" for a in acls}


def judged(link: Link, *texts: str, standby: bool = False, ourselves: str = "") -> tuple[set[str], set[str]]:
    names = ("orders", "orders.eu", "orders.us")
    topics = {n: Topic(TopicInfo(n, uuid.uuid4(), {}), link.destination_topic(n)) for n in names}
    grant, staged, _ = wanted([acl(text) for text in texts], link, topics, standby, ourselves)
    return short(grant), short(staged)


@pytest.mark.parametrize(
    ("rename", "given", "made"),
    [
        ("{topic}", "literal:orders", {"literal:orders"}),
        ("{topic}", "prefixed:ord", {"prefixed:ord"}),
        ("{topic}", "literal:*", {"literal:*"}),
        ("{source}.{topic}", "literal:orders.eu", {"literal:east.orders.eu"}),
        ("{source}.{topic}", "prefixed:orders.", {"prefixed:east.orders."}),
        ("{source}.{topic}", "literal:*", {"prefixed:east."}),
        ("{topic}.dr", "prefixed:orders.", {"literal:orders.eu.dr", "literal:orders.us.dr"}),
        ("{topic}.dr", "literal:*", {"literal:orders.dr", "literal:orders.eu.dr", "literal:orders.us.dr"}),
        ("{topic}", "literal:payments", set()),
        ("{topic}", "prefixed:pay", set()),
        ("{topic}", "literal:__consumer_offsets", set()),
    ],
)
def test_names_follow_the_rename(rename: str, given: str, made: set[str]) -> None:
    grant, staged = judged(link_of(rename=rename), f"ALLOW READ topic:{given} User:a")
    assert grant == {f"ALLOW READ topic:{each} User:a" for each in made}
    assert staged == set()


def test_what_a_standby_holds_back() -> None:
    given = [
        "ALLOW READ topic:literal:orders User:r",
        "ALLOW WRITE topic:literal:orders User:w",
        "ALLOW ALL topic:literal:orders User:o",
        "DENY WRITE topic:literal:orders User:d",
        "DENY ALL topic:literal:orders User:d",
        "ALLOW DESCRIBE topic:literal:orders User:r",
    ]
    grant, staged = judged(link_of(), *given, standby=True)
    assert grant == {*given[:1], *given[3:], "ALLOW READ topic:literal:orders User:o"}
    assert staged == set(given[1:3])
    assert judged(link_of(), *given) == (set(given), set())


def test_kinds_and_principals() -> None:
    given = [
        "ALLOW READ group:literal:billing User:a",
        "ALLOW WRITE transactional-id:literal:tx User:a",
        "ALLOW CREATE cluster:literal:kafka-cluster User:a",
        "ALLOW READ group:prefixed:_isthmus. User:isthmus",
    ]
    assert judged(link_of(), *given) == ({given[0]}, set())
    kinds = {"kinds": ["transactional-id"], "principals": {"User:a": "User:b"}}
    moved = "ALLOW WRITE transactional-id:literal:tx User:b"
    assert judged(link_of(acls=kinds), *given) == ({moved}, set())
    assert judged(link_of(acls=kinds), *given, standby=True) == (set(), {moved})
    # What the link itself may do at the source is nobody's right at the destination.
    assert judged(link_of(), "ALLOW READ topic:literal:orders User:isthmus", ourselves="User:isthmus") == (set(), set())


def test_what_is_granted_otherwise_is_not_staged_away() -> None:
    """READ by itself and as what ALL becomes are one ACL."""
    given = ["ALLOW READ topic:literal:orders User:o", "ALLOW ALL topic:literal:orders User:o"]
    assert judged(link_of(), *given, standby=True) == ({given[0]}, {given[1]})
