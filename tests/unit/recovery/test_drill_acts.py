"""A drill that ends, or is interrupted, leaves nobody behind, and does not wait for one after another; what it judges is without slack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.recovery.drill_acts import OPERATION, Acts
from isthmus.recovery.drill_report import DrillReport, Readers
from isthmus.recovery.timeline import Timeline


class Part:
    """A run, a reader or a writer that notes what is asked of it."""

    read = 0

    def __init__(self, name: str, noted: list[str], fails: bool = False) -> None:
        self.name, self._noted, self._fails = name, noted, fails
        self.acknowledged: dict[str, float] = {}
        self.places: dict[str, tuple[str, int]] = {}

    def ask_to_stop(self, *_: Any) -> None:
        self._noted.append(f"ask {self.name}")

    def stop(self, *_: Any) -> None:
        self._noted.append(f"stop {self.name}")
        if self._fails:
            raise KeyboardInterrupt


def drill() -> tuple[Any, Timeline]:
    line = Timeline(["east", "west", OPERATION])
    return Acts(DrillReport("switch", "east", "west", True, line, Readers("g"), []), 1.0, lambda _: None), line


@pytest.mark.parametrize(("seen", "since", "beyond"), [(0, 10.0, 0), (0, 10.001, 1), (1, 11.5, 1), (2, 11.5, 0)])
def test_what_was_lost_and_not_declared_is_a_problem(seen: int, since: float, beyond: int) -> None:
    """Two records of orders[1] are lost, acknowledged at 10 and at 11; one of orders[0], after what is known of it."""
    acts, _ = drill()
    writer = Part("east-1", [])
    writer.acknowledged = {"a": 10.0, "b": 11.0, "c": 3.0, "d": 4.0}
    writer.places = {"a": ("orders", 1), "b": ("orders", 1), "c": ("orders", 1), "d": ("orders", 0)}
    acts.writers = [writer]
    found = {
        "link": "there",
        "partitions": [{"topic": "orders", "partition": 1, "most": seen}],
        "left_out": {"records": 0},
        "known_until": since,
        "unknown": [{"topic": "orders", "partition": 0, "since": None, "why": "its leader did not answer"}],
        "unknown_more": 0,
    }
    names = ("rpo_records", "rpo_seconds", "at_most", "known_until", "unknown_since_seconds")
    done = {**dict.fromkeys(names, 0), "steps": [{"step": "declare", "found": {"links": [found]}}]}
    links = {"there": SimpleNamespace(topics=SimpleNamespace(matches=lambda topic: topic == "orders"))}
    assert acts.declared(done, "east-1", {"c"}, 12.0, links) == {"a", "b", "d"}
    assert (acts.report.loss.beyond, acts.report.clean) == (beyond, not beyond)


@pytest.mark.parametrize("fails", [False, True])
def test_all_are_asked_before_any_is_waited_for(fails: bool) -> None:
    acts, line = drill()
    noted: list[str] = []
    acts.run, acts.reader = Part("run", noted), Part("reader", noted, fails)
    acts.writers = [Part("w1", noted), Part("w2", noted)]
    acts._bars = {name: line.begin("east", name, "traffic") for name in ("reader", "w1", "w2")}
    if fails:
        with pytest.raises(KeyboardInterrupt):
            acts.end()
    else:
        acts.end()
        assert noted[4:] == ["stop reader", "stop w1", "stop w2", "stop run"]
    assert noted[:4] == ["ask run", "ask reader", "ask w1", "ask w2"]
    assert noted[-1] == "stop run"
