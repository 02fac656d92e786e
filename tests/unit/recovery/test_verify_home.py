"""The way home, cut down to what is its own; and where a site wrote itself while it served."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from verify_tools import pair

from isthmus.config import Link, loads
from isthmus.errors import PartitionFault
from isthmus.recovery.verify_home import NO_END, Served, home_link, outside, to_compare
from isthmus.recovery.verify_survey import Survey

LINK = Link(name="l", source="east", target="west", topics=["t"])


def spans(*found: tuple[int, int]) -> Any:
    return np.array(found, np.int64).reshape(-1, 2)


@pytest.mark.parametrize(
    ("skipped", "end", "own"),
    [
        ([], 10, [[0, 10]]),
        ([(0, 4)], 10, [[4, 10]]),
        ([(0, 4), (6, 8)], 10, [[4, 6], [8, 10]]),
        ([(0, 10)], 10, []),
        ([(0, 4), (6, 20)], 10, [[4, 6]]),
    ],
)
def test_own_is_what_did_not_come_the_other_way(skipped: list[tuple[int, int]], end: int, own: list[list[int]]) -> None:
    assert outside(spans(*skipped), end).tolist() == own


def test_where_nobody_knows_a_site_that_serves_may_have_written_anywhere() -> None:
    known = Served(own={("t", 0): spans((4, 6))})
    assert known.local(("t", 0)).tolist() == [[4, 6]]
    assert known.local(("t", 1)).tolist() == [[0, NO_END]]
    assert Served(over=True).local(("t", 1)).tolist() == []


def test_what_the_link_has_put_there_is_judged_on_the_way_there() -> None:
    """West has copies up to 10, its own from 10 to 14, copies again up to 20, and its own to 25."""
    there = Survey(pairs=[pair([(0, 0, 10), (14, 14, 6), (30, 25, 5)], 35, 30)])
    home = Survey(pairs=[pair([(10, 10, 4), (20, 20, 5)], 25, 40, stranded=spans((0, 10), (14, 18)))])
    ((cut,), way) = to_compare(home, there, LINK)
    assert (cut.first, cut.target_first, cut.home, len(cut.stranded)) == (10, 10, True, 0)
    assert way.without == {"t": {0: [(14, 20)]}}  # type: ignore[attr-defined]
    unread = Survey(faults=[PartitionFault("it cannot be read", "t", 0)])
    assert to_compare(home, unread, LINK)[0] == []


def test_a_way_home_that_the_configuration_has_is_a_link_of_its_own() -> None:
    sites = 'sites:\n  east: {bootstrap: "e:1"}\n  west: {bootstrap: "w:1"}\nlinks:\n'
    there = "  there: {from: east, to: west, topics: [t], loop: returning}\n"
    one_way = loads(sites + there)
    back = home_link(one_way, one_way.link("there"))
    assert back is not None
    assert (back.name, back.source, back.target) == ("there.back", "west", "east")
    both = loads(sites + there + "  back: {from: west, to: east, topics: [t], loop: returning}\n")
    assert home_link(both, both.link("there")) is None
