"""A drill that ends, or is interrupted, leaves nobody behind, and does not wait for one after another."""

from __future__ import annotations

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

    def ask_to_stop(self, *_: Any) -> None:
        self._noted.append(f"ask {self.name}")

    def stop(self, *_: Any) -> None:
        self._noted.append(f"stop {self.name}")
        if self._fails:
            raise KeyboardInterrupt


@pytest.mark.parametrize("fails", [False, True])
def test_all_are_asked_before_any_is_waited_for(fails: bool) -> None:
    line = Timeline(["east", "west", OPERATION])
    acts: Any = Acts(DrillReport("switch", "east", "west", True, line, Readers("g"), []), 1.0, lambda _: None)
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
