"""State that others can write is never believed, and never stops more than what it is about."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.config import loads
from isthmus.config.state import State
from isthmus.control import kept, memory
from isthmus.control.acls import ACL, STAGED, acl_of, could_copy, names_to_judge_by, remembered_acls
from isthmus.control.answers import setting
from isthmus.control.fence import KEY, Taken
from isthmus.control.schema_copy import Subject
from isthmus.control.settings import remembered
from isthmus.engine import lines, table
from isthmus.engine.identity import KIND as SITE
from isthmus.engine.identity import of_table
from isthmus.engine.judged import BEGUN as SIGNING
from isthmus.engine.judged import MOST, RETIRED, SIGNED, Judge, Look
from isthmus.engine.signature import Place, Signed, opened, sign
from isthmus.engine.state import Claim, Control
from isthmus.engine.table import Table, table_of, table_records
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
Rows = Sequence[tuple[str, bytes | None]]


def site(*secrets: bytes) -> Any:
    state = State(secret=secrets[0].decode(), previous=[s.decode() for s in secrets[1:]]) if secrets else None  # type: ignore[arg-type]
    return SimpleNamespace(site=SimpleNamespace(name="west", signing=state), cluster_id="cluster")


def judged(rows: Rows, *secrets: bytes, every: bool = False) -> Look:
    judge = Judge("cluster", TOPIC, secrets, every)
    for n, (key, value) in enumerate(rows):
        judge.take(Row(n, key.encode(), value))
    return judge.look


def stands(rows: Rows, *secrets: bytes) -> Table:
    return table_of("west", TOPIC, judged(rows, *secrets))


def signed(
    key: str, value: Any, number: int = 1, secret: bytes = SECRET, cluster: str = "cluster"
) -> tuple[str, bytes]:
    body = None if value is None else json.dumps(value)
    return key, sign(secret, Place(cluster, TOPIC, key), Signed(number, body))


MARKER = signed(SIGNED, {})


def test_only_the_secret_proves_and_only_for_its_place() -> None:
    raw = sign(SECRET, PLACE, Signed(3, '["a"]'))
    assert opened([OTHER, SECRET], PLACE, raw) == (Signed(3, '["a"]'), 1)
    assert opened([OTHER], PLACE, raw) == (Signed(3, '["a"]'), None)
    for other in (PLACE._replace(cluster="c2"), PLACE._replace(topic="t"), PLACE._replace(key="site/west")):
        assert opened([SECRET], other, raw)[1] is None
    changed = json.loads(raw)
    for member, value in (("number", 4), ("body", '["b"]'), ("body", None), ("proof", None), ("proof", 1)):
        assert opened([SECRET], PLACE, json.dumps({**changed, member: value}).encode())[1] is None
    for plain in (None, b'["a"]', json.dumps({**changed, "number": "3"}).encode()):
        assert opened([SECRET], PLACE, plain) == (None, None)


def test_of_a_signed_table_only_what_is_signed_counts_and_the_rest_is_named() -> None:
    found = stands(
        [MARKER, signed("site/east", ["a"]), ("site/east", b'["a","forged"]'), ("fence/x", b"{}"), ("site/east", None)],
        SECRET,
    )
    assert of_table(found) == {"east": ["a"]}
    assert [(each.key, each.offset) for each in found.look.strangers] == [
        ("site/east", 2),
        ("fence/x", 3),
        ("site/east", 4),
    ]
    assert fences({"west": found}) == {}
    assert "3 records" in " ".join(words({"west": found}))
    assert stands([MARKER, signed("site/east", ["a"], secret=OTHER)], SECRET) == {}
    assert stands([MARKER, signed("site/east", ["a"], cluster="another")], SECRET) == {}


def test_what_stood_there_before_it_was_signed_is_no_alarm() -> None:
    rows = [("site/east", b'["a"]'), signed("site/east", ["a"]), MARKER, ("site/east", b"forged")]
    found = stands(rows, SECRET)
    assert (of_table(found), [each.offset for each in found.look.strangers]) == ({"east": ["a"]}, [3])


def test_an_old_record_that_is_written_again_changes_nothing() -> None:
    old, new = signed("site/east", ["a"], 1), signed("site/east", ["a", "b"], 2)
    assert of_table(stands([MARKER, old, new, old], SECRET)) == {"east": ["a", "b"]}
    # That something was forgotten is remembered likewise.
    assert of_table(stands([MARKER, old, signed("site/east", None, 2), old], SECRET)) == {}


def test_secrets_are_changed_without_a_gap() -> None:
    rows = [signed(SIGNED, {}, secret=OLD), signed("site/east", ["a"], 4, secret=OLD)]
    found = stands(rows, SECRET, OLD)
    assert (of_table(found), found.look.number("site/east"), found.look.forged) == ({"east": ["a"]}, 4, 0)
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
    [
        b"not json",
        b"\xff\xfe",
        b'["\xff"]',
        b"[" * 100_000,
        b'"\\ud800"',
        b"NaN",
        b"{}",
        b"5",
        b"[]",
        b'[""]',
        b"[1]",
        b'"id"',
    ],
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
    judge = Judge("cluster", TOPIC, ())
    for row in (Row(0, b"\xff", b"{}"), Row(1, None, b"{}")):
        judge.take(row)
    assert table_of("west", TOPIC, judge.look) == {"": {}}


# -- what the table says of itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("marker", [None, b"junk", sign(OTHER, Place("cluster", TOPIC, SIGNED), Signed(9, RETIRED))])
@pytest.mark.parametrize("compacted", [False, True])
def test_who_destroys_the_marker_gets_nothing_believed_and_stops_nothing(marker: bytes | None, compacted: bool) -> None:
    """Compaction leaves the last record of each key; also the attacker's, instead of the one that says that the table is signed."""
    rows = [
        *([] if compacted else [MARKER]),
        signed("site/east", ["a"]),
        (SIGNED, marker),
        ("site/west", b'["forged"]'),
    ]
    found = stands(rows, SECRET)
    assert of_table(found) == {"east": ["a"]}
    assert [(each.key, each.signature) for each in found.look.strangers][1:] == [("site/west", "not signed")]
    # Whoever writes next says it again.
    again = written(rows, {"role/east": "x"}, SECRET)
    assert (SIGNED, MARKER[1]) in again
    assert of_table(stands([rows[-3], *again], SECRET)) == {"east": ["a"]}


def test_what_is_written_over_is_written_again_as_it_was() -> None:
    good, old = signed("site/east", ["a", "b"], 2), signed("site/east", ["a"], 1)
    for over in (("site/east", None), ("site/east", b"junk"), old):
        again = written([MARKER, good, over], {"role/east": "x"}, SECRET)
        assert again == [good, signed("role/east", "x")]
        # What we write ourselves needs no more, and what was not written over is left alone.
        assert written([MARKER, good, over], {"site/east": None}, SECRET) == [signed("site/east", None, 3)]
    assert written([MARKER, old, good], {"role/east": "x"}, SECRET) == [signed("role/east", "x")]


def test_who_writes_the_marker_again_hides_nothing() -> None:
    found = stands([MARKER, ("site/east", b"forged"), MARKER], SECRET)
    assert found.look.forged == 1
    assert stands([MARKER, ("site/east", b"forged"), signed(SIGNED, {}, 2)], SECRET).look.forged == 0


def test_a_flood_of_forged_records_is_counted_and_not_kept() -> None:
    found = stands([MARKER, *((f"site/{n}", b"[]") for n in range(10 * MOST))], SECRET)
    assert (found.look.forged, len(found.look.strangers), found.look.newest) == (10 * MOST, MOST, {})
    assert f"{10 * MOST} records" in " ".join(words({"west": found}))
    with pytest.raises(BadState, match=f"{10 * MOST} records are not signed"):
        stands([(f"site/{n}", b"[]") for n in range(10 * MOST)], SECRET)


def test_a_secret_that_has_signed_a_part_does_not_take_the_rest_for_a_stranger_s() -> None:
    """Somebody writes with the new secret, and takes the old one away before all is signed anew."""
    rows = [signed(SIGNED, {}, secret=OLD), signed("site/east", ["a"], secret=OLD)]
    after = [*rows, *written(rows, {"site/west": ["b"]}, SECRET, OLD)]
    assert of_table(stands(after, SECRET, OLD)) == {"east": ["a"], "west": ["b"]}
    with pytest.raises(BadState, match="`isthmus state sign` finishes that"):
        stands(after, SECRET)
    assert [key for key, _ in written(after, {"site/west": ["c"]}, SECRET, OLD)] == ["site/west"]
    # The same where the marker was destroyed: not more is said than is true.
    lost = rows[1:]
    after = [*lost, *written(lost, {"site/west": ["b"]}, SECRET, OLD)]
    assert of_table(stands(after, SECRET, OLD)) == {"east": ["a"], "west": ["b"]}
    with pytest.raises(BadState, match="`isthmus state sign` finishes that"):
        stands(after, SECRET)


def written(rows: Rows, things: dict[str, Any], *secrets: bytes) -> Rows:
    """What whoever writes these things writes."""
    with patch.object(table, "look_at", AsyncMock(return_value=judged(rows, *secrets))):
        records = asyncio.run(table_records(site(*secrets), TOPIC, things))
    return [(key.decode(), value) for key, value in records]


class Killed(BaseException):
    """Somebody was killed."""


def signing(rows: Rows, *secrets: bytes, everything: bool = False, after: int = 10**6) -> Rows:
    """What stands there when it was signed by somebody who is killed after so many records."""
    log = list(rows)

    async def write(_: Any, __: str, records: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            if len(log) >= len(rows) + after:
                raise Killed
            log.append((key.decode(), value))

    look = AsyncMock(side_effect=lambda *_, **__: judged(log, *secrets, every=True))
    with patch.multiple(kept, look_at=look, write_records=write, ensure_table=AsyncMock()), suppress(Killed):
        asyncio.run(kept.sign_all(site(*secrets), TOPIC, everything))
    return log


def stands_or_told(rows: Rows, *secrets: bytes) -> Table | str:
    """What counts there; or of the words that say why nothing does, those that tell what to do."""
    try:
        return stands(rows, *secrets)
    except BadState as told:
        return next((words for words in ("a newer secret", "`isthmus state sign`") if words in told.message), "")


OLDER: Rows = [(f"site/s{n}", b'["a"]') for n in range(4)] + [
    ("site/gone", b'["a"]'),
    ("site/gone", None),
    ("role/x", b"1"),
]
ALL_OF_IT = stands(OLDER)


@pytest.mark.parametrize("previous", [(), (OLD,)])
def test_signing_that_is_cut_off_anywhere_is_refused_and_finished_by_signing_again(previous: tuple[bytes, ...]) -> None:
    whole = signing(OLDER, SECRET, *previous)
    for cut in range(len(whole) - len(OLDER) + 1):
        for again in (0, 1, 3):
            log = signing(signing(OLDER, SECRET, *previous, after=cut), SECRET, *previous, after=again)
            for secrets in ((SECRET,), (SECRET, *previous)):
                assert stands_or_told(log, *secrets) in (ALL_OF_IT, "`isthmus state sign`")
            log = signing(log, SECRET, *previous)
            assert stands(log, SECRET) == ALL_OF_IT
    with pytest.raises(BadState, match="finishes that"):
        stands(signing(OLDER, SECRET, after=2), SECRET)
    assert (stands(whole, SECRET).look.forged, whole[-1][0], whole[len(OLDER)][0]) == (0, SIGNING, SIGNING)


def test_a_change_of_secrets_that_is_cut_off_anywhere_loses_nothing() -> None:
    rows = signing(OLDER, OLD)
    whole = signing(rows, SECRET, OLD)
    for cut in range(len(whole) - len(rows) + 1):
        log = signing(rows, SECRET, OLD, after=cut)
        assert stands(log, SECRET, OLD) == ALL_OF_IT  # links run meanwhile
        for alone in (SECRET, OLD):
            assert stands_or_told(log, alone) in (ALL_OF_IT, "`isthmus state sign`", "a newer secret")
        assert stands(signing(log, SECRET, OLD), SECRET) == ALL_OF_IT
    with pytest.raises(BadState, match="a newer secret"):
        signing(whole, OLD)
    # After compaction nothing is left that the old one proves: who still has only that is told.
    with pytest.raises(BadState, match="signed with another secret"):
        stands(list(dict(whole).items()), OLD)


def test_what_another_secret_has_signed_is_signed_only_on_demand() -> None:
    rows = signing(OLDER, OTHER)
    with pytest.raises(BadState, match=r"state\.previous.*`isthmus state sign west --all`"):
        signing(rows, SECRET)
    assert stands(signing(rows, SECRET, everything=True), SECRET) == ALL_OF_IT
    assert stands(signing(rows, SECRET, OTHER), SECRET) == ALL_OF_IT


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
    found.update({f"{kind}/{each.key}": {} for kind in (ACL, STAGED) for each in (acl, good)} | {"staged/[": {}})
    for kind, odd in ((ACL, 1), (STAGED, 2)):
        acls, changes = remembered_acls(link, memory.Memory(found), kind, topics)
        assert acls == {good}
        assert [change.action for change in changes] == ["blocked"] * odd
        assert "isthmus state forget west _isthmus.l.control" in changes[-1].why


def test_all_topics_are_asked_for_only_where_a_prefix_is_remembered() -> None:
    literal, prefixed = (Acl("topic", how, "t", "User:app", "*", "READ", "ALLOW") for how in ("literal", "prefixed"))
    cluster = SimpleNamespace(metadata=AsyncMock(return_value=SimpleNamespace(topics={"t": 1})))
    found = Table("west", "_isthmus.l.control")
    for acl, asked in ((literal, 0), (prefixed, 1)):
        found[f"{ACL}/{acl.key}"] = {}
        asyncio.run(names_to_judge_by(cluster, memory.Memory(found), STAGED))  # type: ignore[arg-type]
        names = asyncio.run(names_to_judge_by(cluster, memory.Memory(found), ACL, STAGED))  # type: ignore[arg-type]
        assert (cluster.metadata.await_count, list(names)) == (asked, ["t"] * asked)


@pytest.mark.parametrize("acl", [each for each in ACLS if each.kind != "topic" or each.operation == "READ"], ids=str)
def test_a_fence_gives_back_nothing_that_it_could_not_have_taken(acl: Acl) -> None:
    with pytest.raises(ValueError, match="no such ACL"):
        Taken.read(acl.key, Taken(acl).to_json())
    taken = Acl("topic", "literal", "orders", "User:app", "*", "WRITE", "ALLOW")
    with pytest.raises(ValueError, match="gives no such ACL"):
        Taken.read(taken.key, Taken(taken, (acl,)).to_json())
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
    f"{KEY}{TAKEN.acl.key}": TAKEN.to_json(),
    "role/east": {"role": "active", "since": 5.0, "by": "x"},
    "hook-fence/east": {"by": "x"},
    **lines.claim_thing(Claim(7, "run", "host:1", "a", "b", 4, True).commit()),
    **lines.wishes_thing(Control(True, 1000, True, 3, "run", "held", 9, "mark")),
    "config/t": {"retention.ms": "1"},
    "schema/s": {"to": "s", "versions": {"1": [1, 2, 3, 1, 0]}, "compatibility": "FULL"},
    "schema-mode/s": "READWRITE",
    f"staged/{TAKEN.acl.key}": {},
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
