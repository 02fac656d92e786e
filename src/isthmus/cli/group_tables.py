"""How groups and their positions look on a terminal.

Invariant: what is shown fits into 80 columns for names and offsets of a usual size. So a topic is named once, above its
partitions, and reasons, which are sentences, stand below a table as lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from isthmus.cli import output

if TYPE_CHECKING:
    from isthmus.config import Link
    from isthmus.control.change import Change
    from isthmus.control.group_import import Imported
    from isthmus.control.groups import Row, View


def show_groups(views: Sequence[View]) -> None:
    """Which groups there are, whether they follow, and why not."""
    rows = [
        {
            "group": view.group,
            "kind": view.kind,
            "state": view.state or "-",
            "there": view.there or "-",
            "to write": f"{view.to_write} of {len(view.rows)}",
            "follows": not view.why_left,
        }
        for view in views
    ]
    output.emit(rows, json_mode=False)
    _lines((view.group, view.why_left) for view in views)


def show_positions(link: Link, view: View) -> None:
    """Where a group goes on: a table for each topic."""
    for (topic, target), some in groupby(view.rows, key=lambda row: (row.topic, row.target)):
        rows = list(some)
        output.emit(f"{topic} at {link.source}, {target} at {link.target}", json_mode=False)
        output.emit([_position(row) for row in rows], json_mode=False)
        _lines((f"{target}[{row.partition}]", row.reason) for row in rows)


def _position(row: Row) -> dict[str, Any]:
    found = row.position
    return {
        "partition": row.partition,
        "offset": row.committed.offset,
        "goes on at": found.offset if found else None,
        "lands on": found.lands_on if found else None,
        "found by": found.method if found else None,
        "there now": row.before.offset if row.before else None,
    }


def show_imported(results: Sequence[Imported]) -> None:
    """What became of the positions of a file, group by group."""
    rows = [{"group": r.group, "written": r.written, "kept": r.kept, "refused": r.refused} for r in results]
    output.emit(rows, json_mode=False)
    _lines((result.group, reason) for result in results for reason in result.reasons)


def show_left(left: Sequence[Change]) -> None:
    """Groups, and partitions of groups, whose position was not written, and why."""
    if left:
        output.emit("groups left:", json_mode=False)
        _lines((change.name, change.why) for change in left)


def _lines(told: Iterable[tuple[str, str]]) -> None:
    for name, words in told:
        if words:
            output.emit(f"  {name}: {words}", json_mode=False)
