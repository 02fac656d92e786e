"""Since when a site serves instead of another, by what is written down; and how ranges are remembered."""

from __future__ import annotations

from typing import Any

import numpy as np

from isthmus.recovery.journal import Entry
from isthmus.recovery.service import merged, service
from isthmus.recovery.stranded import few


def move(began: float, end: int, **fields: Any) -> Entry:
    done = {"promote": {"at": began, "seconds": 0.0, "found": {"ends": {"orders": {"0": end}}}}}
    return Entry("failover", "east", "west", "emergency", began=began, done=done, **fields)


def came_home(ended: float) -> Entry:
    return Entry("failback", "east", "west", began=ended - 1, ended=ended, done={"restore": {"found": {}}})


def known(*entries: Entry) -> dict[tuple[str, str], Entry]:
    return {(entry.kind, entry.site): entry for entry in entries}


def test_an_abandoned_failover_hands_on_what_it_had_fixed() -> None:
    before = service(known(move(1.0, 10, abandoned=True)), "east", "west")
    assert before is not None
    assert (before.over, before.moved) == (0.0, None)
    again = move(2.0, 25, since=before.since)
    found = service(known(again), "east", "west")
    assert found is not None
    assert found.since == merged(before.since, {"orders": {"0": 25}}) == {"orders": {"0": 10}}


def test_what_was_fixed_before_work_came_home_counts_no_more() -> None:
    found = service(known(move(1.0, 10, ended=2.0), came_home(5.0)), "east", "west")
    assert found is not None
    assert found.over == 5.0


def test_a_failover_from_a_machine_whose_clock_is_behind_is_not_forgotten() -> None:
    """It knew, when it was opened, that work had come home before."""
    found = service(known(came_home(5.0), move(4.0, 30, ended=4.5, home=5.0)), "east", "west")
    assert found is not None
    assert (found.over, found.since) == (0.0, {"orders": {"0": 30}})


def test_few_ranges_keep_the_largest_gaps() -> None:
    spans = np.array([[0, 5], [6, 8], [20, 30], [31, 40], [90, 91]], np.int64)
    assert few(spans, 5).tolist() == spans.tolist()
    assert few(spans, 3).tolist() == [[0, 8], [20, 40], [90, 91]]
    assert few(spans, 1).tolist() == [[0, 91]]
