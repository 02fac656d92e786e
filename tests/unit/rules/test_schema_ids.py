"""The rule ``schema_ids`` on batches: only ids change, and only those that the table knows."""

from __future__ import annotations

import pickle
import struct

import pytest
from batch_tools import Rec
from test_rules import Link, run, written

from isthmus.errors import ConfigError, UnknownSchemaIds
from isthmus.rules import compile_rules
from isthmus.rules.schema_ids import IdTable, SchemaIds


def framed(id_: int, payload: bytes = b"payload") -> bytes:
    return b"\0" + struct.pack(">I", id_) + payload


def pairs(rule: SchemaIds, *records: tuple[bytes | None, bytes | None]) -> list[tuple[bytes | None, bytes | None]]:
    given = [Rec(number, key=key, value=value) for number, (key, value) in enumerate(records)]
    return [(record.key, record.value) for record in written(run((rule,), *given))]


def test_ids_of_keys_and_values_are_replaced_and_nothing_else_is() -> None:
    rule = SchemaIds(table=IdTable({1: 7, 2: 0xFFFFFFFF, 300: 1}))
    given = [
        (framed(1), framed(2, b"\x04\x02\x00protobuf")),
        (framed(300, b""), None),
        (b"plain", b"\0\0\0\1"),
        (None, b""),
    ]
    assert pairs(rule, *given) == [
        (framed(7), framed(0xFFFFFFFF, b"\x04\x02\x00protobuf")),
        (framed(1, b""), None),
        (b"plain", b"\0\0\0\1"),
        (None, b""),
    ]
    assert rule.table.counted() == {
        "translated": 3,
        "not_schema": 1,
        "malformed": 1,
        "unknown": 0,
    }


def test_keys_or_values_alone() -> None:
    table = IdTable({1: 7})
    assert pairs(SchemaIds(keys=False, table=table), (framed(1), framed(1))) == [(framed(1), framed(7))]
    assert pairs(SchemaIds(values=False, table=table), (framed(1), framed(1))) == [(framed(7), framed(1))]


@pytest.mark.parametrize("policy", ["stop", "pass", "skip"])
def test_unknown_ids_are_asked_for_before_the_policy_counts(policy: str) -> None:
    rule = SchemaIds(unknown=policy, table=IdTable({1: 7}))
    given = [Rec(0, value=framed(1)), Rec(1, value=framed(8)), Rec(2, key=framed(9), value=framed(1))]
    copied = run((rule,), *given)
    assert isinstance(copied.fault, UnknownSchemaIds)
    assert (copied.fault.ids, copied.fault.offset, copied.next_offset) == ([8, 9], 1, 0)
    assert rule.table.not_asked(copied.fault.ids) == [8, 9]
    again = pickle.loads(pickle.dumps(copied.fault))
    assert again.ids == [8, 9]

    rule.table.learn({8: 80, 9: None})
    assert rule.table.not_asked([8, 9]) == []
    copied = run((rule,), *given)
    if policy == "stop":
        assert isinstance(copied.fault, UnknownSchemaIds)
        assert copied.fault.ids == [9]
        return
    values = [(record.key, record.value) for record in written(copied)]
    assert values[:2] == [(None, framed(7)), (None, framed(80))]
    assert values[2:] == ([(framed(9), framed(7))] if policy == "pass" else [])


def test_it_is_listed_with_its_options() -> None:
    rules = compile_rules(Link(rules=[{"schema_ids": {"keys": False, "unknown": "pass"}}]))
    assert rules[0] == SchemaIds(keys=False, unknown="pass")
    assert pickle.loads(pickle.dumps(rules)) == rules
    for options in ({"unknown": "ignore"}, {"key": True}, {"keys": "maybe"}):
        with pytest.raises(ConfigError, match="schema_ids"):
            compile_rules(Link(rules=[{"schema_ids": options}]))
