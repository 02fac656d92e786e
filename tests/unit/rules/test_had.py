"""What the destination has already is left out, by birth."""

from __future__ import annotations

import pytest
from batch_tools import Rec, make, read_plain

from isthmus.config.part import OWN
from isthmus.records import Transcoder, stamp
from isthmus.rules.had import HadRule, Marks


def number(value: int) -> tuple[bytes, bytes | None]:
    return b"off", value.to_bytes(8, "big")


def left(style: str, had: dict[str, int], *records: Rec) -> list[int]:
    rule = HadRule(Marks("born", style, "off"), {"orders": {0: had}})
    copied = Transcoder((rule,)).feed(make(records), topic="orders", partition=0, position=0)
    if copied.fault is not None:
        raise copied.fault
    found = []
    for batch in copied.batches:
        stamp(batch.payload, 1, 1, 1, True)
        found += [int(rec.value or b"") for rec in read_plain(batch.payload.tobytes())]
    return found


@pytest.mark.parametrize(("style", "form"), [("site", "{}"), ("cluster", "{}"), ("provenance", "{},orders,17")])
def test_by_birth(style: str, form: str) -> None:
    def born(site: str) -> tuple[bytes, bytes | None]:
        return b"born", form.format(site).encode()

    records = [
        Rec(0, value=b"0", headers=(number(99),)),  # a header of its own: it was born here, at offset 0
        Rec(1, value=b"1", headers=(born("east"), number(4), number(70))),  # the first number behind the origin counts
        Rec(2, value=b"2", headers=(number(9), born("east"), number(5), number(3))),
        Rec(3, value=b"3", headers=()),
        Rec(4, value=b"4", headers=(born("west"), (b"off", b"short"), number(2))),
        Rec(5, value=b"5", headers=()),
    ]
    assert left(style, {OWN: 0, "east": 0, "west": 0}, *records) == [0, 1, 2, 3, 4, 5]
    assert left(style, {OWN: 4, "east": 5, "west": 3}, *records) == [2, 5]
    assert left(style, {OWN: 9, "east": 5, "west": 2}, *records) == [2, 4]


@pytest.mark.parametrize(
    "headers", [((b"born", b"mars"), number(1)), ((b"born", b"east"),), ((b"born", None), number(1))]
)
def test_a_birth_that_cannot_be_told_stops_the_part(headers: tuple[tuple[bytes, bytes | None], ...]) -> None:
    with pytest.raises(Exception, match="cannot be told"):
        left("site", {OWN: 0, "east": 0}, Rec(0, value=b"0"), Rec(1, value=b"1", headers=headers))
