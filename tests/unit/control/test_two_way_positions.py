"""Positions at the other site against a model: two logs, written and copied in any order, and what a group has read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.config import Config
from isthmus.control.ends import opposite
from isthmus.control.opposite import first_within, meets, next_place
from isthmus.control.translation import Position, Target, by_map
from isthmus.control.two_way import TwoWay, inverse
from isthmus.engine.offset_map import PartitionMap, join_runs
from isthmus.kafka.peek import Glimpse, Seen

MARKER = -1


@dataclass
class Way:
    """One link between the two logs: copies what was born at its source, a transaction at a time."""

    source: list[int]
    target: list[int]
    brought: set[int]
    pairs: list[tuple[int, int]] = field(default_factory=list)
    position: int = 0

    def copy(self, count: int, returning: set[int]) -> None:
        """Copy from the next ``count`` places of the log; what came from the other side does not return."""
        end, wrote = min(len(self.source), self.position + count), False
        for place in range(self.position, end):
            record = self.source[place]
            if record != MARKER and record not in returning:
                self.pairs.append((place, len(self.target)))
                self.target.append(record)
                self.brought.add(record)
                wrote = True
        if wrote:
            self.target.append(MARKER)
        self.position = end

    def map(self) -> PartitionMap:
        runs = np.array([(s, t, 1) for s, t in self.pairs], np.int64).reshape(-1, 3)
        return PartitionMap("t", 0, runs=join_runs([runs]), next_offset=self.pairs[-1][0] + 1 if self.pairs else -1)


class World:
    """Both logs and both links; a record is a number."""

    def __init__(self) -> None:
        self.here: list[int] = []
        self.there: list[int] = []
        self.out = Way(self.here, self.there, set())
        self.back = Way(self.there, self.here, set())
        self._count = 0

    def step(self, kind: str, count: int) -> None:
        if kind in ("write here", "write there"):
            log = self.here if kind == "write here" else self.there
            for _ in range(count):
                log.append(self._count)
                self._count += 1
        elif kind == "out":
            self.out.copy(count, self.back.brought)
        else:
            self.back.copy(count, self.out.brought)

    def two_way(self) -> TwoWay:
        return TwoWay(self.out.map(), self.back.map(), self.back.position, len(self.there))

    def limit(self, both: TwoWay) -> int:
        """The first record that has not come here, as looking at the unexplained places finds it."""
        for first, end in both.unexplained().tolist():
            for place in range(first, end):
                if self.there[place] != MARKER:
                    return place
        return both.known


STEPS = st.lists(
    st.tuples(st.sampled_from(["write here", "write there", "out", "back"]), st.integers(1, 6)), max_size=40
)


def world_after(steps: list[tuple[str, int]]) -> World:
    world = World()
    for step in steps:
        world.step(*step)
    return world


@given(STEPS, STEPS, st.data())
def test_nothing_unread_is_skipped(
    steps: list[tuple[str, int]], later: list[tuple[str, int]], data: st.DataObject
) -> None:
    world = world_after(steps)
    position = data.draw(st.integers(0, len(world.here)))
    both = world.two_way()
    (found,) = both.positions([position], world.limit(both), Target(0, len(world.there)))
    read = {record for record in world.here[:position] if record != MARKER}
    unread = [place for place, record in enumerate(world.there) if record not in (MARKER, *read)]
    # The first of what was not read; where all was, somewhere behind the last that was read.
    if unread:
        between = world.there[min(found.offset, unread[0]) : unread[0]]
        assert found.offset <= unread[0]
        assert set(between) <= {MARKER}, "something is read again for nothing"
    else:
        assert not found.copied
        assert set(world.there[found.offset :]) <= {MARKER}
    if found.exact:
        assert world.there[found.offset] == world.here[position]
    # And nothing that comes later lands before it.
    for step in later:
        world.step(*step)
    assert all(record in (MARKER, *read) for record in world.there[: found.offset])


@given(st.lists(st.tuples(st.sampled_from(["write here", "out", "back"]), st.integers(1, 6)), max_size=40))
def test_one_writer_is_the_exact_map(steps: list[tuple[str, int]]) -> None:
    """However far the other link has looked: where only one site is written to, it has nothing to say."""
    world = world_after(steps)
    both, target = world.two_way(), Target(0, len(world.there))
    offsets = list(range(len(world.here) + 2))
    alone = by_map(world.out.map(), target, offsets)
    found = both.positions(offsets, world.limit(both), target)
    assert [(p.offset, p.exact, p.copied) for p in found] == [(p.offset, p.exact, p.copied) for p in alone]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.lists(st.integers(1, 6), max_size=6))
def test_home_again(before: list[int], since: list[int]) -> None:
    """After a failover the site there is written to. Whoever has read everything there reads everything new at home, and
    nothing twice: the older records are found by the inverse of the map that brought them."""
    world = World()
    for count in before:
        world.step("write here", count)
        world.step("out", count)
    world.step("out", 100)
    for count in since:
        world.step("write there", count)
    world.step("back", 1000)
    home = TwoWay(world.back.map(), world.out.map(), world.out.position, len(world.here))
    target = Target(0, len(world.here))
    for position in range(len(world.there) + 1):
        (found,) = home.positions([position], home.known, target)
        unread = {record for record in world.there[position:] if record != MARKER}
        assert {record for record in world.here[found.offset :] if record != MARKER} == unread


def test_bounds() -> None:
    nothing = TwoWay(None, None, 0, 7)
    assert nothing.unexplained().tolist() == [[0, 7]]
    assert nothing.positions([0, 9], 7, Target(0, 7)) == [Position(7, "two-way", False, False)] * 2
    runs = np.array([[0, 10, 5], [5, 16, 5]], np.int64)
    out = PartitionMap("t", 0, runs=runs, next_offset=10)
    both = TwoWay(out, None, 12, 30)
    assert both.unexplained().tolist() == [[15, 16], [21, 30]]
    assert both.positions([7], 15, Target(0, 30)) == [Position(15, "two-way", False, False)]
    # What the destination has deleted is not a place to go on.
    assert both.positions([1], 30, Target(14, 30)) == [Position(14, "two-way", False, True)]
    assert inverse(inverse(out)).runs.tolist() == runs.tolist()


def test_places_that_are_looked_at() -> None:
    ranges = np.array([[3, 4], [7, 10]], np.int64)
    assert [next_place(ranges, place) for place in (0, 3, 4, 8, 9, 10)] == [3, 3, 7, 8, 9, None]

    def seen(end: int, *offsets: int) -> Glimpse:
        return Glimpse(tuple(Seen(offset, 0, ()) for offset in offsets), end)

    assert first_within(ranges, 3, seen(9, 1, 2, 5, 6)) is None  # a marker at 3, and what this link wrote
    assert first_within(ranges, 3, seen(9, 5, 6, 8)) == 8
    assert first_within(ranges, 3, seen(3)) == 3  # nothing is shown where something should be


@pytest.mark.parametrize(
    ("there_and_back", "meeting"),
    [
        (("{topic}", "{topic}"), {"orders": True, "payments": False}),
        (("{source}.{topic}", "{topic}"), {"orders": False}),
    ],
)
def test_links_of_the_other_direction(there_and_back: tuple[str, str], meeting: dict[str, bool]) -> None:
    go, come = there_and_back
    config = Config.model_validate(
        {
            "sites": {name: {"bootstrap": f"{name}:9092"} for name in ("east", "west", "north")},
            "links": {
                "go": {"from": "east", "to": "west", "topics": "/.*/", "rename": go, "loop": "returning"},
                "come": {
                    "from": "west",
                    "to": "east",
                    "topics": ["orders", "east.orders"],
                    "rename": come,
                    "loop": "returning",
                },
                "by": {"from": "north", "to": "east", "topics": ["orders"], "rename": "north.{topic}"},
            },
        }
    )
    (other,) = opposite(config, config.links["go"])
    assert other.name == "come"
    assert {topic: meets(config.links["go"], other, topic) for topic in meeting} == meeting
