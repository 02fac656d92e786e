"""Units: they cover both sides exactly once, keep runs whole across both, and are never larger than asked for."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from verify_tools import pair

from isthmus.recovery.verify_units import SMALLEST, Pair, Way, clipped, cut, cut_all, merged, pack, shares, unpack

Steps = list[tuple[int, int, int]]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Runs with holes of any size on both sides, some behind the watermark, some before the logs' starts."""
    parts: Steps = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 40)), max_size=12))
    source, target, runs = 0, 0, []
    for right, up, length in parts:
        runs.append((source + right, target + up, length))
        source, target = source + right + length, target + up + length
    watermark = draw(st.integers(0, source + 10))
    end = draw(st.integers(0, target + 10))
    return pair(
        runs,
        watermark,
        end,
        target_start=draw(st.integers(0, target)),
        source_start=draw(st.integers(0, source)),
        seeded=merged(np.array([sorted((draw(st.integers(0, source)), draw(st.integers(0, source))))], np.int64)),
    )


@given(pairs(), st.integers(1, 30))
def test_units_cover_everything_once(known: Pair, size: int) -> None:
    units = cut(known, 3, size)
    way = Way(known)
    at = way.start
    held = 0
    for unit in units:
        assert unit.number == 3
        assert (unit.first, unit.target_first) >= at
        skipped_source, skipped_target = unit.first - at[0], unit.target_first - at[1]
        if skipped_source or skipped_target:  # nothing can be read there any more
            assert unit.first <= known.source_start
            assert unit.target_first <= known.target_start
        assert unit.steps <= 2 * size + 1  # a run is entered with both feet
        for edge in known.seeded.ravel().tolist():
            assert unit.end <= edge or unit.first >= edge
        if unit.first < unit.end:
            assert unit.seeded == any(first <= unit.first and unit.end <= end for first, end in known.seeded.tolist())
        for source, target, length in unit.runs.tolist():
            assert unit.first <= source < source + length <= unit.end
            assert unit.target_first <= target < target + length <= unit.target_end
            held += length
        at = (unit.end, unit.target_end)
    if units:
        assert at == way.end
    readable = [
        s
        for source, target, length in clipped(known.runs, known.first, known.watermark).tolist()
        for s in range(source, source + length)
        if s >= known.source_start or target + s - source >= known.target_start
    ]
    assert held >= len(readable)


def test_a_huge_partition_is_cut_evenly() -> None:
    known = pair([(0, 0, 10_000_000)], 10_000_000, 10_000_000)
    units = cut_all([known], cores=2)
    assert len(units) == 20
    assert {unit.steps for unit in units} == {1_000_000}
    hands = shares(units, 2)
    assert [u for hand in hands for u in hand] == units
    assert [len(hand) for hand in hands] == [5, 5, 5, 5]


def test_many_runs_cost_no_more_than_they_are() -> None:
    length = 200_000
    runs = np.stack([np.arange(length) * 3, np.arange(length) * 4, np.full(length, 2)], axis=1)
    known = pair(runs.tolist(), 3 * length, 4 * length)
    units = cut_all([known], cores=2)
    assert sum(len(unit.runs) for unit in units) >= length
    assert sum(int(unit.runs[:, 2].sum()) for unit in units) == 2 * length


def test_a_sample_is_spread_and_as_large_as_asked_for() -> None:
    known = pair([(0, 0, 20_000_000)], 20_000_000, 20_000_000)
    whole = cut_all([known], 2)
    some = cut_all([known], 2, sample=0.1, seed=random.randrange(1000))
    steps = sum(unit.steps for unit in some) / sum(unit.steps for unit in whole)
    assert 0.09 < steps < 0.11
    firsts = [unit.first for unit in some]
    assert max(np.diff(firsts)) < 2 * min(np.diff(firsts))
    tiny = pair([(0, 0, SMALLEST)], SMALLEST, SMALLEST)
    assert len(cut_all([tiny], 2, sample=0.001)) == 1


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(5, 9), (0, 5)], [(0, 9)]),
        ([(0, 10), (2, 3), (12, 14)], [(0, 10), (12, 14)]),
        ([(0, 2), (3, 4), (3, 9)], [(0, 2), (3, 9)]),
    ],
)
def test_intervals_are_merged(spans: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    found = merged(np.array(spans, np.int64).reshape(-1, 2))
    assert [tuple(span) for span in found.tolist()] == expected
    assert np.array_equal(unpack(pack(found)), found)


def test_nothing_to_compare_is_no_unit() -> None:
    assert cut_all([], 2) == []
    assert cut(pair([], 0, 0), 0, 10) == []
    # Both logs have lost everything.
    assert cut(pair([(0, 0, 5)], 5, 5, source_start=5, target_start=5), 0, 10) == []
