"""What a drill tells of a run that has ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from isthmus.cli import output
from isthmus.errors import ClusterChanged
from isthmus.recovery.drill_process import Replicator


def reason(log: str) -> str:
    replicator = object.__new__(Replicator)
    replicator._process = SimpleNamespace(log=lambda: log)  # type: ignore[assignment]
    return replicator.reason()


def test_the_error_that_ended_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_line({"link": "orders", "state": "running"})
    output.print_error(ClusterChanged("east is another cluster", "east", "old", "new"), json_mode=True)
    assert reason(capsys.readouterr().out + "a remark of the JVM\n") == "east is another cluster"


def test_no_words_at_all() -> None:
    assert reason("") == "it does not say why"
