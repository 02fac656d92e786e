"""The judge: each class of damage by its name and offsets, each innocent reason for being alone, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batch_tools import Rec
from hypothesis import given
from hypothesis import strategies as st
from verify_tools import OFFSET, ORIGIN, PLAIN, copied, counts, judge_pair, pair, with_offset

from isthmus.recovery.verify_compare import CLASSES, WHY, Offender
from isthmus.recovery.verify_digest import identity_of
from isthmus.recovery.verify_html import MEANINGS
from isthmus.rules.schema_ids import IdTable, SchemaIds

SOURCE = [Rec(n, 1000 + n, b"k%d" % n, b"value %d" % n, ((b"h", b"x"),)) for n in range(20)]
#: Markers stand at 10 and 21.
PLACES = [n if n < 10 else n + 1 for n in range(20)]
TARGET = [copied(rec, place) for rec, place in zip(SOURCE, PLACES, strict=True)]
RUNS = [(0, 0, 10), (10, 11, 10)]
KNOWN = pair(RUNS, 20, 22)
NO_HEADER = replace(PLAIN, offset_header=False)
SIZES = pytest.mark.parametrize("size", [2, 7, 1000])


def changed(place: int, **changes: object) -> list[Rec]:
    return [replace(rec, **changes) if rec.offset == place else rec for rec in TARGET]


def test_every_class_and_reason_has_words() -> None:
    assert set(MEANINGS) == set(CLASSES)
    assert all(WHY.values())


@SIZES
def test_nothing_is_wrong(size: int) -> None:
    found = judge_pair(KNOWN, SOURCE, TARGET, size=size)
    assert counts(found) == {"compared": 20}
    assert not found.offenders


@SIZES
@pytest.mark.parametrize(
    "damage",
    [
        {"value": b"other"},
        {"value": None},
        {"key": b""},
        {"timestamp": 5},
        {"headers": with_offset(Rec(0), 12)},
        {"headers": ((b"h", b"x"),)},
        {"headers": ((b"h", b"x"), (OFFSET.encode(), b"123"))},
    ],
)
def test_altered(damage: dict[str, object], size: int) -> None:
    found = judge_pair(KNOWN, SOURCE, changed(13, **damage), size=size)
    assert counts(found) == {"compared": 19, "altered": 1}
    ((kind, _, source, target, _),) = found.offenders
    assert (kind, source, target) == ("altered", 12, 13)


def test_a_false_offset_header_alone_is_altered() -> None:
    """It names another record, but it is not that record."""
    found = judge_pair(KNOWN, SOURCE, changed(13, headers=with_offset(SOURCE[12], 3)))
    assert counts(found) == {"compared": 19, "altered": 1}


@SIZES
@pytest.mark.parametrize("link", [PLAIN, NO_HEADER])
def test_out_of_order(size: int, link: object) -> None:
    swapped = [replace(rec, offset={5: 6, 6: 5}.get(rec.offset, rec.offset)) for rec in TARGET]
    swapped.sort(key=lambda rec: rec.offset)
    if link is NO_HEADER:
        swapped = [replace(rec, headers=rec.headers[:-1]) for rec in swapped]
        size = 1000
    found = judge_pair(KNOWN, SOURCE, swapped, link=link, size=size)
    assert counts(found) == {"compared": 18, "out_of_order": 2}
    assert [(o.source, o.target) for o in found.offenders] == [(5, 5), (6, 6)]


@SIZES
def test_missing(size: int) -> None:
    holes = pair([(0, 0, 4), (5, 5, 5), (10, 11, 10)], 20, 22)
    there = [rec for rec in TARGET if rec.offset != 4]
    found = judge_pair(holes, SOURCE, there, size=size)
    assert counts(found) == {"compared": 19, "missing": 1}
    assert found.offenders == [Offender("missing", "not copied", 4, -1)]
    found = judge_pair(KNOWN, SOURCE, there, size=size)
    assert found.offenders == [Offender("missing", "not there", 4, 4)]
    found = judge_pair(replace(KNOWN, target_end=20, explained=20), SOURCE, TARGET[:-2], size=size)
    assert counts(found) == {"compared": 18, "missing": 2}
    assert {(o.why, o.source, o.target) for o in found.offenders} == {
        ("not there", 18, 19),
        ("beyond the end", 19, 20),
    }


@SIZES
def test_records_that_no_map_knows(size: int) -> None:
    more = [
        copied(SOURCE[3], 22),
        Rec(23, headers=((OFFSET.encode(), (99).to_bytes(8, "big")),)),
        Rec(24),
        Rec(25, headers=((ORIGIN.encode(), b"west"),)),
        Rec(26, headers=((ORIGIN.encode(), b"north"),)),
        Rec(27),  # behind the end that was read before the map
    ]
    known = pair(RUNS, 20, 27)
    found = judge_pair(known, SOURCE, [*TARGET, *more], size=size)
    assert counts(found) == {"compared": 20, "doubled": 1, "unexpected": 3, "looped": 1}
    assert sorted((o.kind, o.why, o.target, o.claims) for o in found.offenders) == [
        ("doubled", "second copy", 22, 3),
        ("looped", "came home", 25, -1),
        ("unexpected", "no link", 24, -1),
        ("unexpected", "no link", 26, -1),
        ("unexpected", "strange header", 23, 99),
    ]
    open_site = replace(known, local=np.array([[0, 2**62]]))
    found = judge_pair(open_site, SOURCE, [*TARGET, *more], size=size)
    assert counts(found) == {"compared": 20, "doubled": 1, "unexpected": 1, "looped": 1, "local": 2}
    shared = replace(known, others=np.array([[22, 27]]))
    assert counts(judge_pair(shared, SOURCE, [*TARGET, *more], size=size)) == {"compared": 20, "others": 5}


def test_without_the_offset_header_a_second_copy_is_unexpected() -> None:
    plain = [replace(rec, headers=rec.headers[:-1]) for rec in TARGET]
    again = replace(plain[3], offset=22)
    found = judge_pair(pair(RUNS, 20, 23), SOURCE, [*plain, again], link=NO_HEADER)
    assert counts(found) == {"compared": 20, "unexpected": 1}


@SIZES
def test_only_what_is_before_the_watermark_is_judged(size: int) -> None:
    """The map, and the destination, know more than the progress that was read first."""
    found = judge_pair(replace(KNOWN, watermark=13), SOURCE[:15], TARGET[:14], size=size)
    assert counts(found) == {"compared": 13}
    # A copy from behind the watermark stands before the end that was read before the map.
    found = judge_pair(replace(KNOWN, watermark=8), SOURCE, TARGET, size=size)
    assert counts(found) == {"compared": 8}


@SIZES
def test_retention_and_compaction_are_no_damage(size: int) -> None:
    found = judge_pair(replace(KNOWN, source_start=6), SOURCE[6:], TARGET, size=size)
    assert counts(found) == {"compared": 14, "expired": 6}
    assert found.not_judged == {("expired", "destination"): (0, 5, 6)}
    found = judge_pair(replace(KNOWN, target_start=6), SOURCE, TARGET[6:], size=size)
    assert counts(found) == {"compared": 14, "expired": 6}
    assert found.not_judged == {("expired", "source"): (0, 5, 6)}
    here, there = SOURCE[:3] + SOURCE[5:], TARGET[:12] + TARGET[13:]
    both = replace(KNOWN, source_compacted=True, target_compacted=True)
    found = judge_pair(both, here, there, size=size)
    assert counts(found) == {"compared": 17, "compacted": 3}
    assert found.not_judged == {("compacted", "source"): (12, 12, 1), ("compacted", "destination"): (3, 4, 2)}
    found = judge_pair(KNOWN, here, there, size=size)
    assert counts(found) == {"compared": 17, "missing": 1, "unexpected": 2}
    assert sorted((o.why, o.source) for o in found.offenders) == [("no source", 3), ("no source", 4), ("not there", 12)]


def test_a_copy_of_an_expired_record_is_known_by_its_header() -> None:
    known = replace(KNOWN, source_start=6)
    found = judge_pair(known, SOURCE[6:], changed(2, headers=with_offset(SOURCE[2], 4)))
    assert counts(found) == {"compared": 14, "expired": 5, "out_of_order": 1}


@SIZES
def test_before_the_link_began_nothing_is_expected(size: int) -> None:
    late = pair([(10, 11, 10)], 20, 22, expected_from=10)
    assert counts(judge_pair(late, SOURCE, TARGET[10:], size=size)) == {"compared": 10, "before_start": 10}


@SIZES
def test_stranded_records_are_not_expected(size: int) -> None:
    known = pair([(0, 0, 10), (15, 11, 5)], 20, 16, stranded=np.array([[10, 14]]))
    there = [*TARGET[:10], *(copied(rec, rec.offset - 4) for rec in SOURCE[15:])]
    found = judge_pair(known, SOURCE, there, size=size)
    assert counts(found) == {"compared": 15, "stranded": 4, "missing": 1}
    assert found.offenders[0].source == 14


@SIZES
@pytest.mark.parametrize("planted", ["lost", "made up"])
def test_damage_where_nobody_can_look_is_told_as_not_judged(size: int, planted: str) -> None:
    """Set aside, before the start, written by applications: what is lost or made up there is never called right."""
    stranded = pair([(0, 0, 10), (15, 11, 5)], 20, 16, stranded=np.array([[10, 15]]))
    there = [*TARGET[:10], *(copied(rec, rec.offset - 4) for rec in SOURCE[15:])]
    here = [rec for rec in SOURCE if planted != "lost" or rec.offset != 12]
    found = judge_pair(stranded, here, there, size=size)
    left = 5 - (planted == "lost")
    assert (found.counts["stranded"], found.not_judged) == (left, {("stranded", "source"): (10, 14, left)})
    late = pair([(10, 11, 10)], 20, 22, expected_from=10)
    assert judge_pair(late, SOURCE, TARGET[10:], size=size).not_judged == {("before_start", "source"): (0, 9, 10)}
    own = [Rec(place, 5000, b"k", b"at home") for place in (22, 23, 24) if planted != "lost" or place != 23]
    served = pair(RUNS, 20, 25, local=np.array([[0, 2**62]]))
    found = judge_pair(served, SOURCE, [*TARGET, *own], size=size)
    assert (found.counts["local"], found.not_judged) == (len(own), {("local", "destination"): (22, 24, len(own))})
    assert judge_pair(KNOWN, SOURCE, TARGET, size=size).not_judged == {}


@SIZES
@pytest.mark.parametrize(
    "known", [{"local": np.array([[0, 100]])}, {"stranded": np.array([[0, 20]])}, {"expected_from": 20}]
)
def test_what_the_map_knows_is_judged_whatever_is_told_of_its_range(size: int, known: dict[str, object]) -> None:
    """A copy that is altered, or gone, in a range with a story."""
    told = pair(RUNS, 20, 22, **known)
    there = [rec for rec in changed(13, value=b"other") if rec.offset != 5]
    found = judge_pair(told, SOURCE, there, size=size)
    assert counts(found) == {"compared": 18, "altered": 1, "missing": 1}


@SIZES
def test_where_a_site_has_served_only_its_own_time_is_its_own(size: int) -> None:
    """22 and 23 were written while it served, and 22 came home; 24 was written when it was a standby again."""
    own = [Rec(place, 5000, b"k", b"at home") for place in (22, 23, 24)]
    served = pair(RUNS, 20, 25, local=np.array([[22, 24]]), brought=np.array([[22, 23]]))
    found = judge_pair(served, SOURCE, [*TARGET, *own], size=size)
    assert counts(found) == {"compared": 20, "returned": 1, "local": 1, "unexpected": 1}
    assert [(o.why, o.target) for o in found.offenders] == [("no link", 24)]
    # The other side of it: what came home is not expected back.
    home = pair([(0, 0, 10), (15, 11, 5)], 20, 16, stranded=np.array([[10, 15]]), returned=np.array([[10, 13]]))
    there = [*TARGET[:10], *(copied(rec, rec.offset - 4) for rec in SOURCE[15:])]
    found = judge_pair(home, SOURCE, there, size=size)
    assert counts(found) == {"compared": 15, "returned": 3, "stranded": 2}


@SIZES
def test_who_names_the_source_is_no_application(size: int) -> None:
    """A second copy without an offset header, among what applications write."""
    link = replace(NO_HEADER, origin=True)
    stamped = [replace(rec, headers=(*rec.headers[:-1], (ORIGIN.encode(), b"east"))) for rec in TARGET]
    more = [replace(stamped[3], offset=22), Rec(23), Rec(24, headers=((ORIGIN.encode(), b"north"),))]
    known = pair(RUNS, 20, 25, local=np.array([[0, 100]]))
    found = judge_pair(known, SOURCE, [*stamped, *more], link=link, size=size)
    assert counts(found) == {"compared": 20, "unexpected": 1, "local": 2}
    assert [(o.why, o.target) for o in found.offenders] == [("strange origin", 22)]


@SIZES
def test_the_way_home_judges_what_is_its_own(size: int) -> None:
    """At home stands what home wrote, which is for the link to judge; a second copy of what came home is not."""
    link = replace(PLAIN, origin=True)
    stamped = [replace(rec, headers=(*rec.headers, (ORIGIN.encode(), b"east"))) for rec in TARGET]
    more = [replace(stamped[3], offset=22), Rec(23), Rec(24, headers=with_offset(Rec(0), 5))]
    found = judge_pair(pair(RUNS, 20, 25, home=True), SOURCE, [*stamped, *more], link=link, size=size)
    assert counts(found) == {"compared": 20, "doubled": 1}


@SIZES
def test_a_seeded_range(size: int) -> None:
    """Up to 10 the destination was where these came from: headers that links add may be on either side."""
    here = [replace(r, headers=(*r.headers, (ORIGIN.encode(), b"west"))) if r.offset < 5 else r for r in SOURCE]
    there = [replace(rec, headers=rec.headers[:1]) if rec.offset < 10 else rec for rec in TARGET]
    seeded = np.array([[0, 10]], np.int64)
    known = replace(KNOWN, seeded=seeded)
    assert counts(judge_pair(known, here, there, size=size)) == {"compared": 20}
    there[3] = replace(there[3], value=b"other")
    found = judge_pair(known, here, there, size=size)
    assert counts(found) == {"compared": 19, "altered": 1}
    holes = pair([(0, 0, 9), (10, 11, 10)], 20, 22, seeded=seeded)
    found = judge_pair(holes, here[:3] + SOURCE[3:], [r for r in TARGET if r.offset != 9], size=size)
    assert counts(found) == {"compared": 19, "unexpected": 1}
    assert found.offenders[0][:3] == ("unexpected", "not seeded", 9)


class _Drop:
    """A rule that leaves some offsets out."""

    touches_records = True

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets

    def topic(self, name: str) -> str:
        return name

    def apply(self, records):  # type: ignore[no-untyped-def]
        return records.with_columns(dropped=np.isin(records.offset, self._offsets).astype(np.uint8))


@SIZES
def test_what_rules_leave_out_is_not_expected(size: int) -> None:
    holes = pair([(0, 0, 4), (5, 5, 5), (10, 11, 10)], 20, 22)
    there = [rec for rec in TARGET if rec.offset != 4]
    assert counts(judge_pair(holes, SOURCE, there, rules=(_Drop(4),), size=size)) == {"compared": 19, "dropped": 1}
    found = judge_pair(KNOWN, SOURCE, TARGET, rules=(_Drop(4),), size=size)
    assert counts(found) == {"compared": 19, "unexpected": 1}
    assert found.offenders == [Offender("unexpected", "unwanted", 4, 4, 4)]


ORIGINS = replace(PLAIN, origin=True, loop_rule=True)


def stamped(rec: Rec, place: int, origin: bytes) -> Rec:
    return copied(
        rec, place, headers=with_offset(replace(rec, headers=(*rec.headers, (ORIGIN.encode(), origin))), rec.offset)
    )


@SIZES
def test_origins(size: int) -> None:
    foreign = replace(SOURCE[7], headers=(*SOURCE[7].headers, (ORIGIN.encode(), b"north")))
    here = [*SOURCE[:7], foreign, *SOURCE[8:]]
    there = [stamped(rec, place, b"east") for rec, place in zip(SOURCE, PLACES, strict=True)]
    there[7] = copied(foreign, 7)
    assert counts(judge_pair(KNOWN, here, there, link=ORIGINS, size=size)) == {"compared": 20}
    there[3] = stamped(SOURCE[3], 3, b"south")
    there[4] = copied(SOURCE[4], 4)
    there[7] = stamped(SOURCE[7], 7, b"south")
    found = judge_pair(KNOWN, here, there, link=ORIGINS, size=size)
    assert counts(found) == {"compared": 17, "altered": 3}
    assert [o.source for o in found.offenders] == [3, 4, 7]


@SIZES
def test_what_a_loop_rule_should_have_left_out_is_looped(size: int) -> None:
    home = replace(SOURCE[7], headers=(*SOURCE[7].headers, (ORIGIN.encode(), b"west")))
    here = [*SOURCE[:7], home, *SOURCE[8:]]
    there = [stamped(rec, place, b"east") for rec, place in zip(SOURCE, PLACES, strict=True)]
    there[7] = copied(home, 7)
    found = judge_pair(KNOWN, here, there, link=ORIGINS, rules=(_Drop(7),), size=size)
    assert counts(found) == {"compared": 19, "looped": 1}
    assert found.offenders == [Offender("looped", "came home", 7, 7, 7)]
    # What the rule lets pass (by an override) has come where it was meant to come.
    assert counts(judge_pair(KNOWN, here, there, link=ORIGINS, size=size)) == {"compared": 20}
    # Without such a rule nobody meant it.
    found = judge_pair(KNOWN, here, there, link=replace(ORIGINS, loop_rule=False), size=size)
    assert counts(found) == {"compared": 19, "looped": 1}


def test_clusters_are_known_by_all_their_ids() -> None:
    link = replace(ORIGINS, source_identities=tuple(identity_of(name) for name in ("east", "id-1", "id-2")))
    there = [stamped(rec, p, b"id-%d,t,17" % (1 + p % 2)) for rec, p in zip(SOURCE, PLACES, strict=True)]
    assert counts(judge_pair(KNOWN, SOURCE, there, link=link)) == {"compared": 20}


def test_schema_ids_are_expected_as_the_destination_has_them() -> None:
    here = [Rec(n, value=b"\0" + (n % 3).to_bytes(4, "big") + b"payload") for n in range(9)]
    there = [
        copied(rec, rec.offset, value=b"\0" + (100 + rec.offset % 3).to_bytes(4, "big") + b"payload") for rec in here
    ]
    rule = SchemaIds(keys=False, table=IdTable({0: 100, 1: 101, 2: 102}))
    known = pair([(0, 0, 9)], 9, 9)
    assert counts(judge_pair(known, here, there, rules=(rule,))) == {"compared": 9}
    assert counts(judge_pair(known, here, there)) == {"altered": 9}
    # Ids that are nowhere to be had pass as they are, where the link says so; a comparison does not ask registries.
    passing = SchemaIds(keys=False, unknown="pass", table=IdTable({0: 100, 1: 101}))
    there = [r if r.offset % 3 != 2 else copied(here[r.offset], r.offset) for r in there]
    assert counts(judge_pair(known, here, there, rules=(passing,))) == {"compared": 9}


def test_only_the_first_offenders_are_named() -> None:
    there = [replace(rec, value=b"other") for rec in TARGET]
    found = judge_pair(KNOWN, SOURCE, there)
    assert counts(found) == {"altered": 20}
    assert [o.source for o in found.offenders] == list(range(10))


FATES = ("fine",) * 8 + ("missing", "altered", "doubled", "unexpected", "hole", "marker", "swap")


@given(st.lists(st.sampled_from(FATES), max_size=60), st.integers(1, 40))
def test_whatever_happened_is_found_whatever_the_units(fates: list[str], size: int) -> None:
    """A partition is copied with holes on both sides and damaged on the way."""
    source: list[Rec] = []
    target: list[Rec] = []
    runs: list[tuple[int, int, int]] = []
    expected: dict[str, int] = {}
    here = there = 0

    def copy(rec: Rec, **changes: object) -> None:
        nonlocal here, there
        source.append(rec)
        target.append(copied(rec, there, **changes))
        runs.append((rec.offset, there, 1))
        here, there = rec.offset + 1, there + 1

    for fate in fates:
        rec = Rec(here, value=b"value %d" % here)
        kind, count = fate, 1
        if fate == "hole":
            here, count = here + 2, 0
        elif fate == "marker":
            there, count = there + 2, 0
        elif fate == "fine":
            kind = "compared"
            copy(rec)
        elif fate == "altered":
            copy(rec, value=b"other")
        elif fate == "swap":
            kind, count = "out_of_order", 2
            for offset in (here, here + 1):
                copy(Rec(offset, value=b"value %d" % offset))
            first, second = target[-2:]
            target[-2:] = [replace(second, offset=first.offset), replace(first, offset=second.offset)]
        elif fate == "missing":
            source.append(rec)
            here += 1
        elif fate == "doubled" and runs:
            target.append(copied(next(r for r in source if r.offset == runs[-1][0]), there))
            there += 1
        else:
            kind = "unexpected"
            target.append(Rec(there))
            there += 1
        if count:
            expected[kind] = expected.get(kind, 0) + count
    found = judge_pair(pair(runs, here, there), source, target, size=size)
    assert counts(found) == expected
