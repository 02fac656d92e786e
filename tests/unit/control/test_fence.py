"""What a fence takes and gives, and what it looks like while it stands."""

from __future__ import annotations

import pytest

from isthmus.control.fence import Taken, as_if_not_fenced, standby_right, taken_of
from isthmus.kafka.acls import Acl

US = "User:isthmus"


def acl(text: str) -> Acl:
    """``ALLOW READ prefixed:orders User:a`` in short."""
    permission, operation, resource, principal = text.split(" ")
    pattern, name = resource.split(":")
    return Acl("topic", pattern, name, principal, "*", operation, permission)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("ALLOW WRITE literal:t User:a", None),
        ("ALLOW ALL literal:t User:a", "ALLOW READ literal:t User:a"),
        ("ALLOW READ literal:t User:a", "ALLOW READ literal:t User:a"),
        ("ALLOW ALTER literal:t User:a", "ALLOW ALTER literal:t User:a"),
        ("DENY WRITE literal:t User:a", "DENY WRITE literal:t User:a"),
        ("DENY ALL literal:t User:a", "DENY ALL literal:t User:a"),
    ],
)
def test_what_a_standby_leaves(given: str, left: str | None) -> None:
    assert standby_right(acl(given)) == (acl(left) if left else None)


def test_what_touches_the_topics_is_taken() -> None:
    before = [
        acl(text)
        for text in (
            "ALLOW WRITE literal:orders User:a",
            "ALLOW WRITE literal:orders-2 User:a",
            "ALLOW ALL prefixed:ord User:b",
            "ALLOW WRITE prefixed:pay User:b",
            "ALLOW WRITE literal:* User:c",
            "ALLOW ALL literal:orders User:d",
            "ALLOW READ literal:orders User:d",
            f"ALLOW WRITE literal:* {US}",
            "DENY WRITE literal:orders User:e",
        )
    ]
    taken = taken_of(before, ["orders", "orders.eu", "shop"], US)
    assert {str(each.acl): [str(given) for given in each.given] for each in taken} == {
        "ALLOW WRITE on topic orders to User:a": [],
        "ALLOW ALL on topic ord (prefixed) to User:b": ["ALLOW READ on topic ord (prefixed) to User:b"],
        "ALLOW WRITE on topic * to User:c": [],
        "ALLOW ALL on topic orders to User:d": [],  # it has READ already, and keeps it afterwards
    }
    behind = {*before, *(given for each in taken for given in each.given)} - {each.acl for each in taken}
    assert taken_of(behind, ["orders", "orders.eu", "shop"], US) == []
    assert as_if_not_fenced(behind, taken) == set(before)
    assert [Taken.read(each.acl.key, each.to_json()) for each in taken] == taken
    assert taken_of(before, [], US) == []


def test_what_everybody_may_we_keep_by_name() -> None:
    (taken,) = taken_of([acl("ALLOW ALL prefixed:orders User:*")], ["orders", "orders.eu", "shop"], US)
    assert [str(given) for given in taken.given] == [
        f"ALLOW WRITE on topic orders to {US}",
        f"ALLOW WRITE on topic orders.eu to {US}",
        "ALLOW READ on topic orders (prefixed) to User:*",
    ]
