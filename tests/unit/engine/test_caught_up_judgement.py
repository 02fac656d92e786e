"""When a run may say that it has caught up: never by positions alone."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.cli.link_table import summary
from isthmus.config import loads
from isthmus.engine import snapshot, supervise
from isthmus.engine.job import Job
from isthmus.engine.snapshot import LinkState, Observer, PartitionState
from isthmus.engine.supervise import LinkRun
from isthmus.engine.tasks import Dealt
from isthmus.errors import ConnectionFailed

CONFIG = """
sites:
  east: {bootstrap: "127.0.0.1:1"}
  west: {bootstrap: "127.0.0.1:2"}
links:
  orders: {from: east, to: west, topics: [t]}
"""


class Eyes:
    """An observer that sees what it is told."""

    def __init__(self) -> None:
        self.sees = LinkState("orders", "east", "west", "running")

    def look(self) -> LinkState:
        return self.sees


@pytest.fixture
def run() -> LinkRun:
    config = loads(CONFIG)
    made = LinkRun(None, Job(config.links["orders"], config.sites["east"], config.sites["west"], 1), lambda event: None)
    made.observer.close()
    made.observer = Eyes()  # type: ignore[assignment]
    dealt = Dealt(7, {0: 2}, frozenset({("t", 0), ("t", 1)}))
    made.leasing = SimpleNamespace(dealt=dealt, planner=None)  # type: ignore[assignment]
    return made


def seen(run: LinkRun, /, *partitions: PartitionState, **changes: Any) -> bool:
    """Whether it has caught up after this look."""
    state = LinkState("orders", "east", "west", "running", 7, partitions=list(partitions))
    state.topics, state.run, state.looked = {"t": ("", 2)}, run.job.run, {0: 2}
    for name, value in changes.items():
        setattr(state, name, value)
    run.observer.sees = state  # type: ignore[attr-defined]
    run._look()
    return run.caught_up()


def at(partition: int, position: int | None, end: int | None, fault: str = "") -> PartitionState:
    return PartitionState("t", partition, "t", position, end, None, fault=fault, message=fault)


def test_all_is_looked_at_and_there(run: LinkRun) -> None:
    assert not seen(run, at(0, 3, 5), at(1, 5, 5))
    assert seen(run, at(0, 5, 9), at(1, 5, 5))  # what came later does not count


@pytest.mark.parametrize(
    "changes", [{"run": "another"}, {"lease": 6}, {"looked": {0: 1}}, {"looked": {}}], ids=lambda c: str(c)
)
def test_positions_that_fit_are_not_enough(run: LinkRun, changes: dict[str, Any]) -> None:
    there = at(0, 5, 5), at(1, 5, 5)
    assert not seen(run, *there, **changes)
    assert seen(run, *there)


def test_nothing_was_dealt_yet(run: LinkRun) -> None:
    run.leasing.dealt = None  # type: ignore[union-attr]
    assert not seen(run, at(0, 5, 5), at(1, 5, 5))


def test_what_stands_still_is_not_waited_for(run: LinkRun) -> None:
    assert seen(run, at(0, 1, 5, "RecordTooLarge"), at(1, 5, 5))
    assert run.outcome() is not None


def test_an_end_that_is_not_known_is_waited_for_and_not_for_ever(run: LinkRun, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = at(0, 5, None)
    assert not seen(run, unknown, at(1, 5, 5), trouble=["does not tell where t[0] end"])
    run.check_reachable()
    assert not seen(run, at(0, 5, 9), at(1, 5, 5))  # it has a goal as soon as its end is known
    assert seen(run, at(0, 9, 9), at(1, 5, 5))
    seen(run, unknown, at(1, 5, 5), trouble=["does not tell where t[0] end"])
    monkeypatch.setattr(supervise, "UNREACHABLE_SECONDS", -1.0)
    with pytest.raises(ConnectionFailed, match=r"t\[0\]"):
        run.check_reachable()


def test_a_destination_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "STATE_SECONDS", 0.1)
    config = loads(CONFIG)
    with Observer(config.links["orders"], config.sites["east"], config.sites["west"]) as observer:
        assert [error.site for error in observer.reach(0.1)] == ["east", "west"]
        now = observer.look()
    assert now.state == "unknown"
    assert "cannot reach 127.0.0.1:2" in now.trouble[0]
    assert "unknown, 0 partitions" in summary(now)


def test_planning_that_stands_still_is_told_once(run: LinkRun) -> None:
    told: list[supervise.Event] = []
    run.say = told.append
    run.leasing.planner = SimpleNamespace(doing=("fencing", time.monotonic()))  # type: ignore[union-attr]
    seen(run, at(0, 5, 5), at(1, 5, 5))
    assert not told
    run.leasing.planner.doing = ("fencing", time.monotonic() - supervise.PLANNING_SECONDS)  # type: ignore[union-attr]
    for _ in range(2):
        seen(run, at(0, 5, 5), at(1, 5, 5))
        assert run.last is not None
        assert run.last.trouble == ["planning has stood for more than 20 s at: fencing"]
    assert [event.text for event in told] == run.last.trouble
    run.leasing.planner.doing = ("", 0.0)  # type: ignore[union-attr]
    seen(run, at(0, 5, 5), at(1, 5, 5))
    assert not run.last.trouble
