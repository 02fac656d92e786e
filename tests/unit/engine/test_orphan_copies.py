"""Copies that are found again become runs, as the map would have had them."""

from __future__ import annotations

from isthmus.engine.orphans import add_copy


def test_runs_of_copies() -> None:
    runs: list[list[int]] = []
    for source, there in ((5, 10), (6, 11), (8, 12), (9, 14)):
        add_copy(runs, source, there)
    assert runs == [[5, 10, 2], [8, 12, 1], [9, 14, 1]]


def test_the_last_copy_counts() -> None:
    runs: list[list[int]] = []
    for source, there in ((5, 10), (6, 11), (7, 12), (9, 13), (6, 20), (7, 21)):
        add_copy(runs, source, there)
    assert runs == [[5, 10, 1], [6, 20, 2]]
