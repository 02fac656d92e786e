"""The table of partitions fits the screen, and what matters is always in it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from isthmus.cli.link_table import link_table, shortened
from isthmus.engine.snapshot import LinkState, PartitionState

TOPIC = "payments.settlements.europe.west.v2"
PARTITIONS = [
    PartitionState(TOPIC, 12, "copy." + TOPIC, 123456789012, 123456799012, 10000, 2.5e6, 1234.0),
    PartitionState(TOPIC, 107, "copy." + TOPIC, 5, 7, 2, fault="DestinationRefused", message="no"),
]


def printed(width: int, partitions: list[PartitionState] = PARTITIONS) -> str:
    console = Console(width=width, file=io.StringIO(), markup=False, emoji=False)
    with console.capture() as captured:
        console.print(link_table([LinkState("l", "a", "b", "running", partitions=partitions)]))
    return captured.get()


@pytest.mark.parametrize("width", [400, 120, 80, 79, 60, 50, 44])
def test_numbers_and_states_are_whole_at_any_width(width):
    text = printed(width)
    (header,) = (line for line in text.splitlines() if "partition" in line and "state" in line)
    (moving,) = (line for line in text.splitlines() if "[12]" in line)
    (standing,) = (line for line in text.splitlines() if "[107]" in line and "DestinationRefused" in line)
    assert len(header) <= width
    assert moving.split()[-1] == "ok"
    shown = re.findall(r"\d+(?=\s)", moving.replace(TOPIC, ""))
    assert "10000" in shown
    wanted = {"position": "123456789012", "end": "123456799012", "lag": "10000"}
    assert all(number in shown for name, number in wanted.items() if re.search(rf"\b{name}\b", header))
    assert "…" not in standing.split()[-2:]


def test_at_80_columns_nothing_that_tells_is_missing():
    header = next(line for line in printed(80).splitlines() if "partition" in line and "state" in line)
    assert {"partition", "position", "lag", "state"} <= set(header.split())


def test_the_same_table_follows_the_width():
    table = link_table([LinkState("l", "a", "b", "running", partitions=PARTITIONS)])
    for width in (200, 60, 200):
        console = Console(width=width, file=io.StringIO())
        with console.capture() as captured:
            console.print(table)
        assert ("bytes/s" in captured.get()) == (width == 200)


def test_names_are_shortened_in_the_middle():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdefghij", 5) == "ab…ij"
