"""What a link needs at its sites: as docs/security.md says, and which ACLs are enough for it."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import kafka.errors as kerrors
import pytest

from isthmus.config import Link, Sasl, Secret, Site
from isthmus.control.ends import Ends
from isthmus.control.needs import Need, _at_source, _at_target, denied_by, is_granted
from isthmus.control.rights import command_of, right, without_overruled
from isthmus.control.topics import Topic
from isthmus.kafka.acls import Acl
from isthmus.kafka.cluster import PartitionInfo, TopicInfo

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
EAST, WEST = (
    Site(name=name, bootstrap=["x:1"], sasl=Sasl(mechanism="PLAIN", username="me", password=Secret(value="x")))
    for name in ("east", "west")
)
OFF = {"configs": False, "groups": False}


def topic(name: str, partitions: int = 1, error: Any = None) -> TopicInfo:
    return TopicInfo(name, uuid.uuid4(), {n: PartitionInfo(0, 0, 1) for n in range(partitions)}, error)


def needs(
    visible: bool = True, there: TopicInfo | None = None, others: tuple[str, ...] = (), **options: Any
) -> set[str]:
    link = Link(**{"name": "l", "source": "east", "target": "west", "topics": ["orders"], **options})
    ends = cast(
        "Ends",
        SimpleNamespace(
            link=link,
            others=[SimpleNamespace(name=name) for name in others],
            source=SimpleNamespace(site=EAST),
            target=SimpleNamespace(site=WEST),
        ),
    )
    found = {"orders": Topic(topic("orders", 2), link.destination_topic("orders"))} if visible else {}
    here = {t.target: there or topic(t.target, error=kerrors.TopicAuthorizationFailedError) for t in found.values()}
    return {str(need.right) for need in (*_at_source(ends, found), *_at_target(ends, found, here))}


def documented() -> set[str]:
    """The two tables of the document, as rights."""
    found = set()
    text = SECURITY.read_text()
    for site, heading in (("east", "At the source:"), ("west", "At the destination:")):
        table = text.partition(heading)[2].strip().partition("\n\n")[0]
        for line in table.splitlines()[2:]:
            operation, kind, name = (cell.strip() for cell in line.strip("|").split("|")[:3])
            place = re.sub(r"`(.*)` \(prefix\)", r"\1 (prefixed)", name).replace("TOPICS", "orders")
            found.add(f"site {site}: ALLOW {operation} on {kind.replace(' ', '-')} {place} for User:me")
    return found


def test_the_document_says_the_same() -> None:
    assert needs(sync=OFF) == documented()


def test_what_follows_the_data_needs_more() -> None:
    def more(**sync: Any) -> set[str]:
        found = needs(sync={**OFF, **sync}) - needs(sync=OFF)
        return {need.removeprefix("site ").removesuffix(" for User:me").replace("ALLOW ", "") for need in found}

    own = "topic _isthmus. (prefixed)"
    assert more(configs=True) == {"west: ALTER_CONFIGS on topic orders"}
    assert more(acls=True) == {
        "east: DESCRIBE on the cluster", "west: DESCRIBE on the cluster", "west: ALTER on the cluster", f"east: READ on {own}",
    }  # fmt: skip
    assert more(groups=["a", "/b-.*/"]) == {
        "east: DESCRIBE on group a", "east: DESCRIBE on group b- (prefixed)",
        "west: READ on group a", "west: READ on group b- (prefixed)",
    }  # fmt: skip
    both = needs(sync={**OFF, "groups": ["a"]}, others=("back",)) - needs(sync={**OFF, "groups": ["a"]})
    assert both == {f"site east: ALLOW READ on {kind} _isthmus. (prefixed) for User:me" for kind in ("topic", "group")}


def test_no_more_than_is_needed() -> None:
    def without(**options: Any) -> set[str]:
        return {need.split(" ")[3] for need in needs(sync=OFF) - needs(sync=OFF, **options)}

    assert without(there=topic("orders", 1)) == {"CREATE"}
    assert without(there=topic("orders", 2)) == {"CREATE", "ALTER"}
    (gone,) = needs(sync=OFF) - needs(sync=OFF, delivery="at-least-once")
    assert "WRITE on transactional-id" in gone


@pytest.mark.parametrize(
    ("rename", "entry", "here", "there"),
    [
        ("{topic}", r"/orders\..*/", "orders. (prefixed)", "orders. (prefixed)"),
        ("dr.{topic}", r"/orders\..*/", "orders. (prefixed)", "dr.orders. (prefixed)"),
        ("{topic}.dr", r"/orders\..*/", "orders. (prefixed)", "orders. (prefixed)"),
        ("{source}.{topic}", "/.*/", "*", "east. (prefixed)"),
        ("{topic}", "/.*/", "*", "*"),
        ("dr.{topic}", "orders", "orders", "dr.orders"),
        ("all", "a", "a", "all"),
    ],
)
def test_topics_that_we_do_not_see(rename: str, entry: str, here: str, there: str) -> None:
    found = needs(visible=False, topics=[entry], rename=rename)
    assert f"site east: ALLOW READ on topic {here} for User:me" in found
    for operation in ("CREATE", "WRITE", "ALTER", "ALTER_CONFIGS"):
        assert f"site west: ALLOW {operation} on topic {there} for User:me" in found


@pytest.mark.parametrize(
    ("acl", "enough"),
    [
        ("ALLOW READ topic:literal:orders User:me *", True),
        ("ALLOW ALL topic:prefixed:ord User:me *", True),
        ("ALLOW READ topic:literal:* User:* *", True),
        ("ALLOW WRITE topic:literal:orders User:me *", False),
        ("ALLOW READ topic:literal:orders User:you *", False),
        ("ALLOW READ topic:literal:orders User:me 10.0.0.1", False),
        ("ALLOW READ group:literal:orders User:me *", False),
        ("ALLOW READ topic:literal:orders. User:me *", False),
    ],
)
def test_which_acls_are_enough(acl: str, enough: bool) -> None:
    need = Need(right(EAST, "READ", "topic", "orders"), "orders")
    assert is_granted([as_acl(acl)], need) is enough
    assert not is_granted([as_acl(acl), as_acl("DENY ALL topic:prefixed:o User:* *")], need)


def test_a_link_of_ones_own_prefix_is_enough_for_what_is_its_own() -> None:
    need = Need(right(EAST, "READ", "topic", "_isthmus.", True), "_isthmus.l")
    assert is_granted([as_acl("ALLOW READ topic:prefixed:_isthmus.l User:me *")], need)
    assert not is_granted([as_acl("ALLOW READ topic:literal:_isthmus.l User:me *")], need)
    assert not is_granted([as_acl("ALLOW READ topic:prefixed:_isthmus.other User:me *")], need)


def as_acl(text: str) -> Acl:
    permission, operation, resource, principal, host = text.split(" ")
    return Acl(*resource.split(":"), principal, host, operation, permission)


def test_a_denial_is_named_and_overrules_the_allowance() -> None:
    need = Need(right(EAST, "READ", "topic", "orders"), "orders")
    denial = as_acl("DENY ALL topic:prefixed:o User:* *")
    assert denied_by([as_acl("ALLOW READ topic:literal:orders User:me *"), denial], need) == denial
    assert denied_by([as_acl("DENY WRITE topic:literal:orders User:me *")], need) is None
    lacked = str(replace(need.right, denied=str(denial)))
    plain = str(need.right)
    assert lacked == (
        "site east: remove DENY ALL on topic o (prefixed) to User:*: it wins over ALLOW READ on topic orders for User:me"
    )
    other = "site west: ALLOW READ on topic orders for User:me"
    assert without_overruled([plain, lacked, other]) == [lacked, other]


@pytest.mark.parametrize(
    ("need", "command"),
    [
        (
            "site east: ALLOW DESCRIBE_CONFIGS on topic orders. (prefixed) for User:me",
            "--add --allow-principal User:me --operation DescribeConfigs --topic orders. --resource-pattern-type prefixed",
        ),
        ("site east: ALLOW READ on topic *", "--add --allow-principal User:NAME --operation Read --topic '*'"),
        (
            "site east: ALLOW ALTER on the cluster for User:me",
            "--add --allow-principal User:me --operation Alter --cluster",
        ),
        (
            "site east: remove DENY ALL on topic o (prefixed) to User:*: it wins over ALLOW READ on topic orders for User:me",
            "--remove --force --deny-principal 'User:*' --operation All --topic o --resource-pattern-type prefixed",
        ),
    ],
)
def test_rights_as_lines_of_kafkas_own_tool(need: str, command: str) -> None:
    assert command_of(need) == f"kafka-acls.sh --bootstrap-server ADDRESS_OF_east {command}"
    assert command_of("something else") == ""
