"""A link's rules: which there are, in which order, and what each does to records."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from batch_tools import Rec, make, read_plain, renumbered

from isthmus.config.built_in_rules import BUILT_IN
from isthmus.errors import ConfigError, RuleFailed
from isthmus.records import Copied, Transcoder, stamp
from isthmus.rules import Rule, compile_rules, destination_topic, load_built_in
from isthmus.rules.offset_header import OffsetHeader
from isthmus.rules.rename import Rename
from isthmus.rules.user import UserRules


@dataclass
class Headers:
    offset: str | None = "isthmus-offset"


@dataclass
class Link:
    rename: str = "{topic}"
    headers: Headers = field(default_factory=Headers)
    rules: list[str | dict[str, Any]] = field(default_factory=list)
    origin: None = None
    loop: None = None


def run(rules: tuple[Rule, ...], *records: Rec) -> Copied:
    return Transcoder(rules).feed(make(records), topic="orders", partition=2, position=0)


def written(copied: Copied) -> list[Rec]:
    assert copied.fault is None
    records = []
    for batch in copied.batches:
        stamp(batch.payload, 1, 1, 1, True)
        records += read_plain(batch.payload.tobytes())
    return records


# --- the tuple ----------------------------------------------------------------------------------------


def test_a_plain_link_only_adds_the_offset() -> None:
    assert compile_rules(Link()) == (OffsetHeader("isthmus-offset"),)


def test_a_link_with_nothing_to_do_has_no_rules() -> None:
    assert compile_rules(Link(headers=Headers(None))) == ()


def test_order_and_pickling() -> None:
    link = Link("eu.{topic}", rules=["user_functions:same", "mask_cards:mask"])
    rules = compile_rules(link)
    assert rules == (
        Rename("eu.{topic}"),
        UserRules(("user_functions:same", "mask_cards:mask")),
        OffsetHeader("isthmus-offset"),
    )
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert [rule.touches_records for rule in rules] == [False, True, True]


def test_a_built_in_rule_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="no rule 'filtre'"):
        compile_rules(Link(rules=[{"filtre": {}}]))


def test_a_file_is_judged_by_the_rules_that_there_are() -> None:
    listed = {module.__name__.rpartition(".")[2] for module in load_built_in() if getattr(module, "LISTED", False)}
    assert set(BUILT_IN) == listed


# --- rename -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("{topic}", "orders", "orders"),
        ("eu.{topic}", "orders", "eu.orders"),
        ("{topic}-copy", "a{topic}b", "a{topic}b-copy"),
        ("x{y}{topic}", "orders", "x{y}orders"),
        ("all", "orders", "all"),
        ("{topic}-{topic}", "orders", "orders-orders"),
    ],
)
def test_rename(pattern: str, name: str, expected: str) -> None:
    assert destination_topic(compile_rules(Link(pattern)), name) == expected


# --- pairs of input and output ------------------------------------------------------------------------

OFFSET_9 = b"\0\0\0\0\0\0\0\x09"
LONG_NAME = "n" * 200

PAIRS: dict[str, tuple[Link, list[Rec], list[Rec]]] = {
    "offset header: the first header": (
        Link(),
        [Rec(9, 5, b"k", b"v")],
        [Rec(9, 5, b"k", b"v", ((b"isthmus-offset", OFFSET_9),))],
    ),
    "offset header: after the record's own, one of the same name too": (
        Link(headers=Headers("o")),
        [Rec(9, 5, None, None, ((b"o", b"x"), (b"p", None)))],
        [Rec(9, 5, None, None, ((b"o", b"x"), (b"p", None), (b"o", OFFSET_9)))],
    ),
    "offset header: a name whose length takes two bytes, and one that is not ASCII": (
        Link(headers=Headers(LONG_NAME + "é")),
        [Rec(9, 5)],
        [Rec(9, 5, headers=(((LONG_NAME + "é").encode(), OFFSET_9),))],
    ),
    "offset header: large offsets": (
        Link(),
        [Rec((1 << 62) + 3, 5)],
        [Rec((1 << 62) + 3, 5, headers=((b"isthmus-offset", b"\x40\0\0\0\0\0\0\x03"),))],
    ),
    "rename: records stay": (
        Link("eu.{topic}", Headers(None)),
        [Rec(9, 5, b"", None, ((b"h", b""),))],
        [Rec(9, 5, b"", None, ((b"h", b""),))],
    ),
    "user: the example leaves out and masks": (
        Link(headers=Headers("o"), rules=["mask_cards:without_tests", "mask_cards:mask"]),
        [
            Rec(7, 5, b"test-1", b"card 1234567812345678"),
            Rec(8, 5, None, None),
            Rec(9, 5, b"real", b"card 1234567812345678!", ((b"h", b"v"),)),
        ],
        [
            Rec(8, 5, None, None, ((b"o", b"\0\0\0\0\0\0\0\x08"),)),
            Rec(9, 5, b"real", b"card ************5678!", ((b"h", b"v"), (b"o", OFFSET_9))),
        ],
    ),
    "user: everything left out": (Link(rules=["user_functions:nothing"]), [Rec(9), Rec(10)], []),
}


@pytest.mark.parametrize("name", PAIRS)
def test_input_and_output(name: str) -> None:
    link, before, after = PAIRS[name]
    copied = run(compile_rules(link), *before)
    assert written(copied) == renumbered(after)
    assert copied.dropped == len(before) - len(after)
    runs = [run for batch in copied.batches for run in batch.runs.tolist()]
    assert [offset + i for offset, n in runs for i in range(n)] == [rec.offset for rec in after]


# --- users' mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("user_functions", "not of the form module:function"),
        (":same", "not of the form module:function"),
        ("no_such_module:same", "cannot import 'no_such_module'"),
        ("user_functions:missing", "has no function 'missing'"),
        ("user_functions:not_a_function", "has no function 'not_a_function'"),
    ],
)
def test_a_function_that_cannot_be_had_is_a_mistake_in_the_configuration(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compile_rules(Link(rules=[name]))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raises", "KeyError: 'no such field'"),
        ("returns_none", "unusable: expected a pyarrow.RecordBatch, found NoneType"),
        ("reverses", "unusable: offsets have to ascend, but 8 comes after 9"),
    ],
)
def test_a_function_that_fails_stops_the_partition_and_says_everything(name: str, why: str) -> None:
    rules = compile_rules(Link(rules=["user_functions:same", f"user_functions:{name}"]))
    copied = run(rules, Rec(7), Rec(8), Rec(9))
    assert isinstance(copied.fault, RuleFailed)
    text = str(copied.fault)
    assert why in text
    assert "orders-2" in text
    assert f"user_functions:{name}" in text
    assert "offsets 7 to 9" in text
    assert (copied.batches, copied.next_offset, copied.fault.offset) == ([], 0, 7)


def test_a_function_that_an_executor_cannot_import() -> None:
    copied = run((UserRules(("not_shipped:rule",)),), Rec(7))
    assert isinstance(copied.fault, RuleFailed)
    assert "not_shipped:rule" in str(copied.fault)
    assert "PYTHONPATH" in str(copied.fault)


def test_the_page_on_rules_shows_the_example_as_it_is() -> None:
    home = Path(__file__).resolve().parents[3]
    shown = (home / "docs" / "rules.md").read_text().split("```python\n")[1].split("```")[0]
    assert shown in (home / "examples" / "mask_cards.py").read_text()
