"""Digests: the same for the same record, another for any change, whatever links have added to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batch_tools import Rec
from hypothesis import given
from hypothesis import strategies as st
from verify_tools import OFFSET, ORIGIN, columns, digest, with_offset

from isthmus.recovery.verify_digest import NO_OFFSET, SEEDED, SOURCE, TARGET, Digester, identity_of

SOME = Rec(7, 1000, b"key", b"value", ((b"a", b"1"), (b"b", None)))
ORIGIN_EAST = (ORIGIN.encode(), b"east")


def one(rec: Rec, mode: int = SOURCE) -> tuple[int, int, int, int]:
    found, _ = digest([rec], mode)
    return tuple(int(column[0]) for column in (found.digest, found.header, found.origin, found.identity))  # type: ignore[return-value]


def headers(*more: tuple[bytes, bytes | None]) -> Rec:
    return replace(SOME, headers=(*SOME.headers, *more))


@pytest.mark.parametrize(
    "other",
    [
        replace(SOME, key=None),
        replace(SOME, key=b""),
        replace(SOME, key=b"kez"),
        replace(SOME, value=b"valuf"),
        replace(SOME, value=None),
        replace(SOME, value=b""),
        replace(SOME, key=b"keyv", value=b"alue"),
        replace(SOME, timestamp=1001),
        replace(SOME, headers=()),
        replace(SOME, headers=SOME.headers[::-1]),
        replace(SOME, headers=((b"a", b"1"), (b"b", b""))),
        replace(SOME, headers=((b"a1", b""), (b"b", None))),
        replace(SOME, headers=(*SOME.headers, (b"b", None))),
    ],
)
def test_any_change_is_seen(other: Rec) -> None:
    assert one(other)[0] != one(SOME)[0]


@given(st.binary(max_size=70), st.integers(0, 69), st.integers(1, 255))
def test_any_byte_counts(value: bytes, place: int, change: int) -> None:
    same = one(Rec(0, value=value))[0]
    assert same == one(Rec(5, value=value))[0]
    assert one(Rec(0, value=value + b"\0"))[0] != same
    if place < len(value):
        other = bytearray(value)
        other[place] ^= change
        assert one(Rec(0, value=bytes(other)))[0] != same


def test_what_the_link_has_added_is_judged_apart() -> None:
    plain = one(SOME)
    copy = one(headers(ORIGIN_EAST, (OFFSET.encode(), (7).to_bytes(8, "big"))), TARGET)
    assert copy[0] == plain[0]
    assert plain[1:] == (NO_OFFSET, 0, 0)
    assert copy[1] == 7
    assert copy[3] == identity_of("east")


def test_an_offset_header_of_a_link_upstream_counts() -> None:
    upstream = headers((OFFSET.encode(), (3).to_bytes(8, "big")))
    copy = replace(upstream, headers=with_offset(upstream, 7))
    assert one(copy, TARGET)[:2] == (one(upstream)[0], 7)
    other = headers((OFFSET.encode(), (4).to_bytes(8, "big")))
    assert one(replace(other, headers=with_offset(other, 7)), TARGET)[0] != one(upstream)[0]


def test_headers_behind_the_links_own_count() -> None:
    behind = headers((OFFSET.encode(), (7).to_bytes(8, "big")), ORIGIN_EAST, (b"x", b"y"))
    assert one(behind, TARGET)[0] == one(headers((b"x", b"y")))[0]
    assert one(behind, TARGET)[1] == 7


def test_what_is_no_offset_is_an_ordinary_header() -> None:
    assert one(headers((OFFSET.encode(), b"seven")), TARGET)[:2] == (
        one(headers((OFFSET.encode(), b"seven")))[0],
        NO_OFFSET,
    )


def test_only_the_first_origin_is_left_out() -> None:
    twice = headers(ORIGIN_EAST, (ORIGIN.encode(), b"north"))
    assert one(twice)[0] == one(headers((ORIGIN.encode(), b"west"), (ORIGIN.encode(), b"north")))[0]
    assert one(twice)[0] != one(headers(ORIGIN_EAST))[0]
    assert one(twice)[2] != one(headers((ORIGIN.encode(), b"west")))[2]


def test_provenance_is_known_by_its_cluster() -> None:
    one_time = one(headers((ORIGIN.encode(), b"abc,orders,1700")))
    another = one(headers((ORIGIN.encode(), b"abc,orders,1800")))
    assert one_time[3] == another[3] == identity_of("abc")
    assert one_time[2] != another[2]


def test_seeded_ranges_are_compared_without_any_of_these_headers() -> None:
    there = headers(ORIGIN_EAST, (OFFSET.encode(), (1).to_bytes(8, "big")), (OFFSET.encode(), (2).to_bytes(8, "big")))
    assert one(there, SEEDED)[0] == one(SOME, SEEDED)[0]


def test_a_header_without_a_name_is_not_looked_for() -> None:
    records = columns([headers(ORIGIN_EAST), replace(headers((ORIGIN.encode(), b"west")), offset=8)])
    found = Digester("", "").digest(records, TARGET)
    assert found.digest[0] != found.digest[1]
    assert not found.origin.any()


def test_rules_that_append_have_no_place_here() -> None:
    records = columns([SOME]).with_columns(tail=np.zeros(3, np.uint8), tail_start=np.array([0, 3]))
    with pytest.raises(ValueError, match="judged apart"):
        Digester(OFFSET, ORIGIN).digest(records, SOURCE)
