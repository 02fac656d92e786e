"""What is shown of groups can be read in a terminal of 80 columns."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from isthmus.cli import group_tables, output
from isthmus.config import loads
from isthmus.control.group_import import Imported
from isthmus.control.groups import Left, Row, View
from isthmus.control.translation import Position
from isthmus.kafka.offsets import Committed

TOPIC = "payments.settlements.confirmed.v2"
LINK = loads(
    "sites: {frankfurt: {bootstrap: 'a:1'}, amsterdam: {bootstrap: 'b:1'}}\n"
    "links: {l: {from: frankfurt, to: amsterdam, topics: [x]}}\n"
).links["l"]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns."""
    written = io.StringIO()
    console = Console(file=written, width=80, highlight=False, markup=False)
    monkeypatch.setattr(output, "console", lambda **_: console)
    return written


def a_view(group: str = "settlement-reporting") -> View:
    def row(p: int, position: Position | None, reason: str = "") -> Row:
        return Row(
            TOPIC, p, Committed(9_876_543_210, ""), f"frankfurt.{TOPIC}", position, Committed(9_876_543_000, ""), reason
        )

    rows = [
        row(0, Position(9_876_543_299, "timestamp", False, True)),
        row(11, Position(9_876_543_299, "map", True, True)),
        row(12, None, "the destination has no topic of this name yet; the position follows its records"),
    ]
    return View(group, "consumer", "Empty", "Empty", rows)


def table_of(screen: io.StringIO) -> list[list[str]]:
    """The cells of the table, its head first: each row is one line that fits."""
    lines = screen.getvalue().splitlines()
    (rule,) = [number for number, line in enumerate(lines) if "──" in line]
    shown = [line for line in lines[rule - 1 :] if line.strip() and not line.startswith("  ")]
    assert all(len(line) <= 80 for line in shown)
    return [re.split(r" {2,}", line.strip()) for line in shown if "──" not in line]


def test_positions(screen: io.StringIO) -> None:
    group_tables.show_positions(LINK, a_view())
    assert table_of(screen) == [
        ["partition", "offset", "goes on at", "lands on", "found by", "there now"],
        ["0", "9876543210", "9876543299", "at or before", "timestamp", "9876543000"],
        ["11", "9876543210", "9876543299", "that record", "map", "9876543000"],
        ["12", "9876543210", "-", "-", "-", "9876543000"],
    ]
    lines = screen.getvalue().splitlines()
    assert lines[0] == f"{TOPIC} at frankfurt, frankfurt.{TOPIC} at amsterdam"
    assert lines[-1].startswith(f"  frankfurt.{TOPIC}[12]: the destination has no topic")


def test_groups(screen: io.StringIO) -> None:
    left = a_view("reporting-of-settlements")
    left.left = "it has members at the source (Stable) and only_empty is set"
    group_tables.show_groups([a_view(), left])
    assert table_of(screen) == [
        ["group", "kind", "state", "there", "to write", "follows"],
        ["settlement-reporting", "consumer", "Empty", "Empty", "2 of 3", "yes"],
        ["reporting-of-settlements", "consumer", "Empty", "Empty", "0 of 3", "no"],
    ]
    assert screen.getvalue().splitlines()[-1] == f"  {left.group}: {left.left}"


def test_imports_and_what_is_left(screen: io.StringIO) -> None:
    group_tables.show_imported([Imported("g", 1, 2, 1, ["t[0]: no"])])
    assert table_of(screen) == [["group", "written", "kept", "refused"], ["g", "1", "2", "1"]]
    group_tables.show_left([])
    assert screen.getvalue().splitlines()[-1] == "  g: t[0]: no"
    group_tables.show_left([Left("groups", "g t[0]", "keep", "it waits")])
    assert screen.getvalue().splitlines()[-2:] == ["groups left:", "  g t[0]: it waits"]
