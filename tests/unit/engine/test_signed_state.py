"""State that others can write is never believed, and never stops more than what it is about."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.config import loads
from isthmus.config.state import State
from isthmus.control import memory
from isthmus.control.acls import ACL, STAGED, acl_of, could_copy, remembered_acls
from isthmus.control.fence import KEY, Taken, _name
from isthmus.control.registry import setting
from isthmus.control.schema_copy import Subject
from isthmus.control.settings import remembered
from isthmus.engine import lines
from isthmus.engine.identity import KIND as SITE
from isthmus.engine.identity import of_table
from isthmus.engine.signature import Place, Signed, claimed, proved, sign
from isthmus.engine.state import Claim, Control
from isthmus.engine.table import RETIRED, SIGNED, Table, _table
from isthmus.errors import BadState, ConfigError
from isthmus.kafka.acls import Acl
from isthmus.kafka.read import Row
from isthmus.recovery.journal import BEGUN, Entry, entries_in, unfinished_in
from isthmus.recovery.journal import KIND as JOURNAL
from isthmus.recovery.roles import roles_in
from isthmus.recovery.unfinished import fences, operations, unreadable, words

SECRET, OLD, OTHER = b"s" * 32, b"o" * 32, b"x" * 32
TOPIC = "_isthmus.sites"
PLACE = Place("cluster", TOPIC, "site/east")


def site(*secrets: bytes) -> Any:
    state = State(secret=secrets[0].decode(), previous=[s.decode() for s in secrets[1:]]) if secrets else None  # type: ignore[arg-type]
    return SimpleNamespace(site=SimpleNamespace(name="west", signing=state), cluster_id="cluster")


def stands(rows: list[tuple[str, bytes | None]], *secrets: bytes, topic: str = TOPIC) -> Table:
    return _table(site(*secrets), topic, [Row(n, key.encode(), value) for n, (key, value) in enumerate(rows)])


def signed(
    key: str, value: Any, number: int = 1, secret: bytes = SECRET, cluster: str = "cluster"
) -> tuple[str, bytes]:
    body = None if value is None else json.dumps(value)
    return key, sign(secret, Place(cluster, TOPIC, key), Signed(number, body))


MARKER = signed(SIGNED, {})


def test_only_the_secret_proves_and_only_for_its_place() -> None:
    raw = sign(SECRET, PLACE, Signed(3, '["a"]'))
    assert proved([OTHER, SECRET], PLACE, raw) == Signed(3, '["a"]')
    assert proved([OTHER], PLACE, raw) is None
    for other in (PLACE._replace(cluster="c2"), PLACE._replace(topic="t"), PLACE._replace(key="site/west")):
        assert proved([SECRET], other, raw) is None
    changed = json.loads(raw)
    for member, value in (("number", 4), ("body", '["b"]'), ("body", None), ("proof", None), ("proof", 1)):
        assert proved([SECRET], PLACE, json.dumps({**changed, member: value}).encode()) is None
    assert proved([SECRET], PLACE, None) is None
    assert claimed(b'["a"]') is None


def test_of_a_signed_table_only_what_is_signed_counts_and_the_rest_is_named() -> None:
    found = stands(
        [MARKER, signed("site/east", ["a"]), ("site/east", b'["a","forged"]'), ("fence/x", b"{}"), ("site/east", None)],
        SECRET,
    )
    assert of_table(found) == {"east": ["a"]}
    assert [(each.key, each.offset) for each in found.forged] == [("site/east", 2), ("fence/x", 3), ("site/east", 4)]
    assert fences({"west": found}) == {}
    assert "3 records" in " ".join(words({"west": found}))
    assert stands([MARKER, signed("site/east", ["a"], secret=OTHER)], SECRET) == {}
    assert stands([MARKER, signed("site/east", ["a"], cluster="another")], SECRET) == {}


def test_what_stood_there_before_it_was_signed_is_no_alarm() -> None:
    rows = [("site/east", b'["a"]'), signed("site/east", ["a"]), MARKER, ("site/east", b"forged")]
    found = stands(rows, SECRET)
    assert (of_table(found), [each.offset for each in found.forged]) == ({"east": ["a"]}, [3])


def test_an_old_record_that_is_written_again_changes_nothing() -> None:
    old, new = signed("site/east", ["a"], 1), signed("site/east", ["a", "b"], 2)
    assert of_table(stands([MARKER, old, new, old], SECRET)) == {"east": ["a", "b"]}
    # That something was forgotten is remembered likewise.
    assert of_table(stands([MARKER, old, signed("site/east", None, 2), old], SECRET)) == {}


def test_secrets_are_changed_without_a_gap() -> None:
    rows = [signed(SIGNED, {}, secret=OLD), signed("site/east", ["a"], 4, secret=OLD)]
    found = stands(rows, SECRET, OLD)
    assert (of_table(found), found.numbers["site/east"], found.forged) == ({"east": ["a"]}, 4, [])
    assert of_table(stands([*rows, signed("site/east", ["a", "b"], 5)], SECRET, OLD)) == {"east": ["a", "b"]}


def test_who_has_only_a_secret_that_was_replaced_is_told() -> None:
    retired = SIGNED, sign(OLD, Place("cluster", TOPIC, SIGNED), Signed(2, RETIRED))
    rows = [
        signed(SIGNED, {}, secret=OLD),
        signed("site/east", ["a"], secret=OLD),
        retired,
        signed(SIGNED, {}, 3),
        signed("site/east", ["a"]),
    ]
    assert of_table(stands(rows, SECRET, OLD)) == of_table(stands(rows, SECRET)) == {"east": ["a"]}
    with pytest.raises(BadState, match="signed with a newer secret"):
        stands(rows, OLD)


def test_what_was_never_signed_is_believed_by_nobody_who_has_a_secret() -> None:
    with pytest.raises(BadState, match=r"2 records are not signed .* `isthmus state sign`") as told:
        stands([("site/east", b'["a"]'), ("site/west", b'["b"]')], SECRET)
    assert (told.value.topic, told.value.key, told.value.offset) == (TOPIC, "site/east", 0)
    assert pickle.loads(pickle.dumps(told.value)).key == "site/east"
    assert stands([], SECRET) == {}


def test_who_has_no_secret_does_not_read_what_is_signed() -> None:
    found = stands([MARKER, signed("site/east", ["a"]), ("site/west", b'["b"]')])
    assert of_table(found, {"west"}) == {"west": ["b"]}
    with pytest.raises(BadState, match=r"no state\.secret"):
        of_table(found)


@pytest.mark.parametrize(
    "raw",
    [b"not json", b"\xff\xfe", b"[" * 100_000, b'"\\ud800"', b"NaN", b"{}", b"5", b"[]", b'[""]', b"[1]", b'"id"'],
)
def test_one_bad_record_is_an_error_of_its_key_alone(raw: bytes) -> None:
    found = stands([("site/east", raw), ("site/west", b'["b"]')])
    assert of_table(found, {"west"}) == {"west": ["b"]}
    with pytest.raises(
        BadState, match=r"_isthmus\.sites\[0\] at site west: the record of key 'site/east' \(offset 0\)"
    ) as told:
        of_table(found)
    assert "isthmus state forget west _isthmus.sites" in told.value.message
    assert (told.value.key, told.value.offset) == ("site/east", 0)


def test_the_last_record_of_a_key_counts_whatever_was_before() -> None:
    assert stands([("site/east", b"not json"), ("site/east", None)]) == {}
    assert of_table(stands([("site/east", b"not json"), ("site/east", b'["a"]')])) == {"east": ["a"]}


def test_a_key_that_is_no_text_is_none_of_ours() -> None:
    assert _table(site(), TOPIC, [Row(0, b"\xff", b"{}"), Row(1, None, b"{}")]) == {"": {}}


ACLS = [
    Acl("cluster", "literal", "kafka-cluster", "User:mallory", "*", "ALL", "ALLOW"),
    Acl("topic", "literal", "_isthmus.sites", "User:mallory", "*", "WRITE", "ALLOW"),
    Acl("topic", "prefixed", "_isthmus.", "User:mallory", "*", "ALL", "ALLOW"),
    Acl("topic", "literal", "payroll", "User:mallory", "*", "READ", "ALLOW"),
    Acl("topic", "literal", "copy.payroll", "User:mallory", "*", "READ", "ALLOW"),
    Acl("topic", "prefixed", "pay", "User:mallory", "*", "READ", "ALLOW"),
    Acl("topic", "literal", "*", "User:mallory", "*", "READ", "ALLOW"),
    Acl("transactional-id", "literal", "t", "User:mallory", "*", "WRITE", "ALLOW"),
    Acl("user", "literal", "u", "User:mallory", "*", "ALL", "ALLOW"),
]
CONFIG = """
sites: {east: {bootstrap: "a:1"}, west: {bootstrap: "b:1"}}
links: {l: {from: east, to: west, topics: [/orders.*/], rename: "copy.{topic}", sync: {acls: on}}}
"""


@pytest.mark.parametrize("acl", ACLS, ids=str)
def test_no_acl_is_applied_that_the_link_could_not_have_made(acl: Acl) -> None:
    link = loads(CONFIG).links["l"]
    topics = ["copy.orders", "orders", "payroll"]
    assert not could_copy(link, acl, topics)
    good = Acl("topic", "prefixed", "copy.ord", "User:app", "*", "WRITE", "ALLOW")
    assert could_copy(link, good, topics)
    found = Table("west", "_isthmus.l.control")
    found.update({f"{kind}/{_name(each)}": {} for kind in (ACL, STAGED) for each in (acl, good)} | {"staged/[": {}})
    for kind, odd in ((ACL, 1), (STAGED, 2)):
        acls, changes = remembered_acls(link, memory.Memory(found), kind, topics)
        assert acls == {good}
        assert [change.action for change in changes] == ["blocked"] * odd
        assert "isthmus state forget west _isthmus.l.control" in changes[-1].why


@pytest.mark.parametrize("acl", [each for each in ACLS if each.kind != "topic" or each.operation == "READ"], ids=str)
def test_a_fence_gives_back_nothing_that_it_could_not_have_taken(acl: Acl) -> None:
    with pytest.raises(ValueError, match="no such ACL"):
        Taken.read(_name(acl), Taken(acl).to_json())
    taken = Acl("topic", "literal", "orders", "User:app", "*", "WRITE", "ALLOW")
    with pytest.raises(ValueError, match="gives no such ACL"):
        Taken.read(_name(taken), Taken(taken, (acl,)).to_json())
    with pytest.raises(ValueError, match="no such ACL"):
        Taken.read("another", Taken(taken).to_json())


def test_a_short_secret_is_refused_and_one_that_becomes_short_too(tmp_path: Any) -> None:
    file = tmp_path / "secret"
    file.write_text("short")
    text = CONFIG + f"state: {{secret: {{file: {file}}}}}"
    with pytest.raises(ConfigError, match=r"state\.secret: shorter than 32 characters"):
        loads(text)
    file.write_text("a" * 32)
    config = loads(text)
    assert config.sites["east"].signing is config.state
    carried = pickle.loads(pickle.dumps(copy.deepcopy(config.sites["east"])))
    assert carried.signing.keys() == (b"a" * 32,)
    assert "a" * 32 not in repr(config)
    file.write_text("")
    assert config.state is not None
    with pytest.raises(ConfigError, match="was a file emptied"):
        config.state.keys()


# -- whatever somebody writes ---------------------------------------------------------------------------------

ENTRY = Entry("failover", "east", "west", "planned", done={"fence": {"found": {}, "at": 1.0}})
TAKEN = Taken(Acl("topic", "literal", "orders", "User:app", "*", "ALL", "ALLOW"))
SOUND: dict[str, Any] = {
    f"{SITE}east": ["a", "b"],
    f"{JOURNAL}failover/east": asdict(ENTRY),
    f"{BEGUN}failover/east": asdict(ENTRY),
    f"{KEY}{_name(TAKEN.acl)}": TAKEN.to_json(),
    "role/east": {"role": "active", "since": 5.0, "by": "x"},
    "hook-fence/east": {"by": "x"},
    **lines.claim_thing(Claim(7, "run", "host:1", "a", "b", 4, True).commit()),
    **lines.wishes_thing(Control(True, 1000, True, 3, "run", "held", 9, "mark")),
    "config/t": {"retention.ms": "1"},
    "schema/s": {"to": "s", "versions": {"1": [1, 2, 3, 1, 0]}, "compatibility": "FULL"},
    "schema-mode/s": "READWRITE",
    f"staged/{_name(TAKEN.acl)}": {},
    "stranded/t/0": {"ranges": [[1, 5]]},
}
READERS: list[Callable[[Table], Any]] = [
    of_table,
    entries_in,
    unfinished_in,
    roles_in,
    lambda found: found.kind(KEY, Taken.read),
    lambda found: fences({"west": found}),
    lambda found: operations({"west": found}),
    lambda found: words({"west": found}),
    lines.kept_claim,
    lines.kept_control,
    lambda found: memory.of_kind(memory.Memory(found), "config", remembered),
    lambda found: memory.of_kind(memory.Memory(found), "schema", Subject.read),
    lambda found: memory.of_kind(memory.Memory(found), "schema-mode", setting),
    lambda found: memory.of_kind(memory.Memory(found), "stranded", memory.ranges),
    lambda found: memory.of_kind(memory.Memory(found), STAGED, acl_of),
    lambda found: remembered_acls(loads(CONFIG).links["l"], memory.Memory(found), STAGED, ["copy.orders"]),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def mutated(value: Any, junk: Any, draw: st.DataObject) -> Any:
    """The same with something in it replaced, taken away or added."""
    places = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not places or draw.draw(st.booleans()):
        return junk
    place = draw.draw(st.sampled_from(places))
    made = copy.copy(value)
    what = draw.draw(st.sampled_from(["deeper", "gone", "more"]))
    if what == "deeper":
        made[place] = mutated(value[place], junk, draw)
    elif what == "gone":
        del made[place]
    elif isinstance(made, dict):
        made["more"] = junk
    else:
        made.append(junk)
    return made


def test_what_we_write_ourselves_is_read() -> None:
    found = stands([(key, json.dumps(value).encode()) for key, value in SOUND.items()])
    for read in READERS:
        assert read(found)
    assert not unreadable({"west": found})


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SOUND)), JUNK, st.binary(max_size=20), st.data())
def test_whatever_stands_there_is_read_or_named_and_never_a_crash(
    key: str, junk: Any, raw: bytes, draw: st.DataObject
) -> None:
    value = draw.draw(st.sampled_from(["shape", "bytes", "cut", "flip"]))
    good = json.dumps(SOUND[key]).encode()
    at = draw.draw(st.integers(0, len(good) - 1))
    bad = {
        "shape": lambda: json.dumps(mutated(SOUND[key], junk, draw)).encode(),
        "bytes": lambda: raw,
        "cut": lambda: good[:at],
        "flip": lambda: good[:at] + raw + good[at + 1 :],
    }[value]()
    rows = [(name, json.dumps(each).encode()) for name, each in SOUND.items() if name != key]
    found, named = stands([*rows, (key, bad)]), set[str]()
    for read in READERS:
        try:
            read(found)
        except BadState as error:
            named.add(error.key)
    assert named <= {key}
    # Where state is signed, none of it is seen.
    body = [signed(name, each) for name, each in SOUND.items()]
    assert stands([MARKER, *body, (key, bad)], SECRET) == stands([MARKER, *body], SECRET)
