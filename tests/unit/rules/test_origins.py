"""Where records were born: the rules ``origin``, ``loop`` and ``invert`` against a plain model, on whatever headers there may be."""

from __future__ import annotations

import pickle
import re
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batch_tools import Header, Rec, make, renumbered, sized
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_rules import run, written

from isthmus.config import Link
from isthmus.config.loop import Override
from isthmus.errors import ConfigError, RuleFailed
from isthmus.records import Transcoder
from isthmus.records.model import Records, read_only
from isthmus.rules import Identities, Rule, compile_rules
from isthmus.rules.born import Birth, decode_birth, encode_birth
from isthmus.rules.invert import Invert
from isthmus.rules.loop import LoopRule
from isthmus.rules.offset_header import OffsetHeader
from isthmus.rules.origin import OriginHeader

NAME, OFFSET = "isthmus-origin", "isthmus-offset"
EAST = ("old-east-id", "east-id")
WEST = ("west-id",)
IDS = Identities(source=WEST, target=EAST)
STYLES = ("site", "cluster", "provenance")


def link(**keys: Any) -> Link:
    """From west to east."""
    return Link(**{"name": "l", "source": "west", "target": "east", "topics": ["/.*/"], **keys})


def rules_of(ids: Identities = IDS, **keys: Any) -> tuple[Rule, ...]:
    rules = compile_rules(link(**keys), ids)
    again = pickle.loads(pickle.dumps(rules))
    assert again == rules
    return tuple(again)


# --- a plain model ------------------------------------------------------------------------------------


def origin_of(rec: Rec) -> tuple[bool, bytes | None]:
    """Whether a record has the header, and the value of the first one."""
    for key, value in rec.headers:
        if key == NAME.encode():
            return True, value
    return False, None


def parts_of(style: str, value: bytes | None) -> tuple[str, str | None, int | None] | None:
    """Birth place, topic, time; None if it cannot be read."""
    if not value:
        return None
    if style != "provenance":
        return value.decode(errors="replace"), None, None
    match = re.fullmatch(rb"([^,]+),([^,]+),([0-9]{1,18})", value, re.DOTALL)
    return match and (match[1].decode(errors="replace"), match[2].decode(errors="replace"), int(match[3]))


def names(site: str, style: str) -> tuple[str, ...]:
    return (site,) if style == "site" else {"east": EAST, "west": WEST}[site]


def dropped(rec: Rec, style: str, drop: str, same_topic: bool, target_topic: str) -> bool:
    has, value = origin_of(rec)
    if not has or drop == "foreign":
        return has
    parts = parts_of(style, value)
    if parts is None or parts[0] not in (*names("east", style), *names("west", style)):
        return False
    return not same_topic or (parts[1] or "orders") == target_topic


def overridden(rec: Rec, style: str, overrides: list[Override]) -> bool:
    _, value = origin_of(rec)
    place, topic, copied = parts_of(style, value) or ("", None, None)
    if style != "provenance" and value:
        place = value.decode(errors="replace")
    when = rec.timestamp if copied is None else copied
    return any(
        re.fullmatch(o.origin, place)
        and re.fullmatch(o.topic, topic or "orders")
        and (o.since is None or when >= o.since)
        and (o.until is None or when <= o.until)
        for o in overrides
    )


def inverted(rec: Rec, style: str, offset: str | None, stamp: bytes) -> Rec:
    has, value = origin_of(rec)
    parts = parts_of(style, value)
    header = (offset or "").encode()
    added: tuple[Header, ...] = ((header, rec.offset.to_bytes(8, "big")),) if offset else ()
    if not has:
        return replace(rec, headers=(*rec.headers, (NAME.encode(), stamp), *added))
    if parts is None or parts[0] not in names("east", style):
        return replace(rec, headers=(*rec.headers, *added))
    at = [key for key, _ in rec.headers].index(NAME.encode())
    behind = [
        (k, v) for k, v in rec.headers[at + 1 :] if not (offset and k == header and v is not None and len(v) == 8)
    ]
    return replace(rec, headers=(*rec.headers[:at], *behind))


# --- whatever there may be ----------------------------------------------------------------------------

values = st.one_of(
    st.none(),
    st.sampled_from(
        [b"", b"east", b"west", b"north", b"east-id", b"old-east-id", b"west-id", b"eas", b"east ", b"\xff\xfe"]
    ),
    st.builds(
        lambda id_, topic, time: f"{id_},{topic},{time}".encode(),
        st.sampled_from(["east-id", "old-east-id", "west-id", "north-id", ""]),
        st.sampled_from(["orders", "copy.orders", "x", ""]),
        st.sampled_from(["0", "1700000000000", "1700000000500", "9" * 18, "9" * 19, "", "-1", "1.5", "x", "1,2"]),
    ),
    st.sampled_from(
        [b",", b",,", b"east-id", b"east-id,", b"east-id,orders", b"east-id,orders,", b"east-id,orders, 1"]
    ),
    st.binary(max_size=40),
)
keys = st.sampled_from([NAME, NAME, OFFSET, "isthmus-origi", "isthmus-origins", "", "h", "x" * 200]).map(str.encode)
headers = st.one_of(
    st.just(()),
    st.lists(st.tuples(keys, st.one_of(values, st.binary(min_size=8, max_size=8))), max_size=6).map(tuple),
)
times = st.sampled_from([-1, 0, 1_700_000_000_000, 1_700_000_000_500])
batches = st.lists(st.tuples(headers, times), min_size=1, max_size=12).map(
    lambda rows: [Rec(7 + 3 * n, when, b"k%d" % n, b"v", held) for n, (held, when) in enumerate(rows)]
)
PROPERTIES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def halves(rule: Rule, recs: list[Rec]) -> Rule:
    """The rule, after one that has moved each record's last headers into the tail, as rules that add headers do."""

    class Split:
        touches_records = True

        def topic(self, name: str) -> str:
            return name

        def apply(self, records: Records) -> Records:
            pieces = [
                b"".join(bytes([len(k) * 2]) + k + sized(v) for k, v in rec.headers[len(rec.headers) // 2 :])
                if all(len(k) < 64 for k, _ in rec.headers)
                else b""
                for rec in recs
            ]
            counts = np.array(
                [len(r.headers) - len(r.headers) // 2 if p else 0 for r, p in zip(recs, pieces, strict=True)]
            )
            tail = read_only(np.frombuffer(b"".join(pieces), np.uint8))
            start = np.cumsum([0, *map(len, pieces)]).astype(np.int64)
            ends = (records.headers_end - np.diff(start)).astype(np.int32)
            moved = records.with_columns(
                tail=tail,
                tail_start=start,
                tail_count=counts.astype(np.int32),
                headers_end=ends,
                headers_count=(records.headers_count - counts).astype(np.int32),
            )
            return rule.apply(moved)

    return Split()


@PROPERTIES
@given(
    batches, st.sampled_from(STYLES), st.sampled_from(["returning", "foreign", "same"]), st.booleans(), st.booleans()
)
def test_what_is_left_out(recs: list[Rec], style: str, drop: str, renamed: bool, in_tails: bool) -> None:
    same = drop == "same"
    loop = {"drop": "returning" if same else drop, "same_topic": same}
    keys = {
        "loop": loop,
        "origin": {"value": style},
        "headers": "off",
        "rename": "copy.{topic}" if renamed else "{topic}",
    }
    (rule,) = (r for r in rules_of(**keys) if isinstance(r, LoopRule))
    target = "copy.orders" if renamed else "orders"
    wanted = [rec for rec in recs if not dropped(rec, style, rule.drop, same, target)]
    copied = run((halves(rule, recs) if in_tails else rule,), *recs)
    assert written(copied) == renumbered(wanted)
    assert copied.dropped == len(recs) - len(wanted)


OVERRIDES = st.lists(
    st.builds(
        lambda origin, topic, since, until: Override(
            origin=origin,
            topic=topic,
            since=since,
            until=until if since is None or until is None else max(since, until),
        ),
        st.sampled_from([".*", "east", "east-id|old-east-id", "e.*", "old.*", ""]).map(lambda text: text or "()"),
        st.sampled_from([".*", "orders", "copy[.]orders", "order"]),
        st.sampled_from([None, 0, 1_700_000_000_100]),
        st.sampled_from([None, 0, 1_700_000_000_100, 1_700_000_000_500]),
    ),
    max_size=3,
)


@PROPERTIES
@given(batches, st.sampled_from(STYLES), st.sampled_from(["returning", "foreign"]), OVERRIDES, st.booleans())
def test_what_is_copied_all_the_same(
    recs: list[Rec], style: str, drop: str, overrides: list[Override], in_tails: bool
) -> None:
    keys = {"loop": {"drop": drop, "overrides": overrides}, "origin": {"value": style}, "headers": "off"}
    (rule,) = (r for r in rules_of(**keys) if isinstance(r, LoopRule))
    wanted = [r for r in recs if not dropped(r, style, drop, False, "orders") or overridden(r, style, overrides)]
    copied = run((halves(rule, recs) if in_tails else rule,), *recs)
    assert written(copied) == renumbered(wanted)


@PROPERTIES
@given(batches, st.sampled_from(STYLES), st.booleans(), st.booleans())
def test_what_is_stamped(recs: list[Rec], style: str, offset: bool, in_tails: bool) -> None:
    rules = rules_of(origin={"value": style}, headers="on" if offset else "off")
    if in_tails:
        rules = (halves(rules[0], recs), *rules[1:])
    before = time.time_ns() // 1_000_000
    found = written(run(rules, *recs))
    after = time.time_ns() // 1_000_000
    for rec, got in zip(recs, found, strict=True):
        held = list(got.headers)
        if offset:
            assert held.pop() == (OFFSET.encode(), rec.offset.to_bytes(8, "big"))
        if origin_of(rec)[0]:
            assert tuple(held) == rec.headers
            continue
        key, value = held.pop()
        assert tuple(held) == rec.headers
        birth = decode_birth(style, value)
        assert key == NAME.encode()
        if style == "provenance":
            assert birth is not None
            assert birth.copied is not None
            assert before <= birth.copied <= after
            birth = birth._replace(copied=0)
        assert (
            birth
            == {"site": Birth("west"), "cluster": Birth("west-id"), "provenance": Birth("west-id", "orders", 0)}[style]
        )


@PROPERTIES
@given(batches, st.sampled_from(STYLES), st.sampled_from([OFFSET, None]), st.booleans())
def test_what_is_inverted(recs: list[Rec], style: str, offset: str | None, in_tails: bool) -> None:
    options = {"lost": "east", "survivor": "west", "header": NAME, "value": style, "offset": offset}
    (rule,) = rules_of(rules=[{"invert": options}], origin={"value": style}, loop="returning")
    found = written(run((halves(rule, recs) if in_tails else rule,), *recs))
    stamp = {"site": b"west", "cluster": b"west-id", "provenance": b"west-id,orders,NOW"}[style]

    def timeless(rec: Rec) -> Rec:
        """What was stamped just now, without its time."""
        near = [
            (k, re.sub(rb"^(west-id,orders,)[0-9]{13}$", rb"\1NOW", v) if v and v[-13:] >= b"1750000000000" else v)
            for k, v in rec.headers
        ]
        return replace(rec, headers=tuple(near))

    assert [timeless(rec) for rec in found] == renumbered([inverted(rec, style, offset, stamp) for rec in recs])


@pytest.mark.parametrize("style", STYLES)
def test_there_and_back_again(style: str) -> None:
    """East is lost and comes back from west: what was born at east is as it was, byte for byte."""
    to_west = compile_rules(
        Link(name="ew", source="east", target="west", topics=["x"], loop="returning", origin={"value": style}),
        Identities(EAST, WEST),
    )
    own = (("trace", b"1"), ("isthmus-offset", b"12345678"), ("z", None))
    born = [Rec(0, headers=tuple((k.encode(), v) for k, v in own)), Rec(1)]
    at_west = [replace(rec, offset=n) for n, rec in enumerate(written(run(to_west, *born)))]
    assert all(origin_of(rec)[0] for rec in at_west)
    (rule,) = rules_of(rules=[{"invert": {}}], origin={"value": style})
    at_new_east = written(run((rule,), *at_west, Rec(2)))
    assert at_new_east[:2] == renumbered(born)
    assert [key for key, _ in at_new_east[2].headers] == [NAME.encode(), OFFSET.encode()]


# --- how links get them -------------------------------------------------------------------------------


def test_a_link_with_a_loop_rule_stamps_too() -> None:
    assert rules_of(loop="foreign") == (
        LoopRule(NAME, "site", "foreign", ("east", "west")),
        OriginHeader(NAME, "site", "west"),
        OffsetHeader(OFFSET),
    )
    assert rules_of(origin={"header": "o", "value": "cluster"}) == (
        OriginHeader("o", "cluster", "west", "west-id"),
        OffsetHeader(OFFSET),
    )
    assert rules_of(loop="returning", rules=[{"invert": {}}]) == (
        Invert(NAME, "site", ("east",), "west", offset=OFFSET),
    )


def test_users_see_neither_what_is_left_out_nor_what_is_stamped() -> None:
    orders = [
        type(rule).__name__ for rule in rules_of(loop="returning", rules=["user_functions:same", {"schema_ids": {}}])
    ]
    assert orders == ["LoopRule", "UserRules", "SchemaIds", "OriginHeader", "OffsetHeader"]


@pytest.mark.parametrize("style", ["cluster", "provenance"])
def test_ids_that_nobody_knows_stop_the_partition(style: str) -> None:
    """A rule may be built before the sites were asked, and does not guess."""
    copied = run(rules_of(Identities(), loop="returning", origin={"value": style}), Rec(0))
    assert isinstance(copied.fault, RuleFailed)
    assert "not known" in str(copied.fault)
    copied = run(rules_of(Identities(), rules=[{"invert": {"value": style}}]), Rec(0))
    assert isinstance(copied.fault, RuleFailed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loser": "east"}, "no option 'loser'"),
        ({"lost": 5}, "lost is a name"),
        ({"header": ""}, "header is a name"),
        ({"value": "name"}, "one of site, cluster, provenance"),
        ({"offset": 5}, "offset is the key"),
        ({"lost_ids": [1]}, "lost_ids is a list"),
    ],
)
def test_options_of_invert(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compile_rules(link().model_copy(update={"rules": [{"invert": options}]}))  # as no file can have it


def test_a_batch_of_which_nothing_is_left() -> None:
    held = ((NAME.encode(), b"east"),)
    copied = Transcoder(rules_of(loop="returning")).feed(
        make([Rec(5, headers=held), Rec(6, headers=held)]), topic="orders", partition=0, position=5
    )
    assert (copied.records, copied.dropped, copied.next_offset) == (0, 2, 7)


def test_the_bytes_of_the_header() -> None:
    assert encode_birth("site", "west", "id", "orders", 5) == b"west"
    assert encode_birth("cluster", "west", "id", "orders", 5) == b"id"
    assert encode_birth("provenance", "west", "id", "orders", 5) == b"id,orders,5"
