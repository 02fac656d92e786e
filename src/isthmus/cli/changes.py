"""How plans and outcomes look on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from isthmus.cli import output
from isthmus.control.change import Change, Diff, Outcome
from isthmus.control.rights import command_of, without_overruled

if TYPE_CHECKING:
    from isthmus.config import Link

# What plan says by its exit code; an error has its own.
CHANGES, BLOCKED = 20, 21

_MARKS = {
    "create": ("+", "green"),
    "grow": ("~", "yellow"),
    "alter": ("~", "yellow"),
    "delete": ("-", "red"),
    "stage": ("…", "cyan"),
    "keep": ("=", "dim"),
    "blocked": ("!", "red"),
}
_WORDS = {
    "create": "to create",
    "grow": "to grow",
    "alter": "to alter",
    "delete": "to delete",
    "stage": "staged",
    "keep": "left alone",
    "blocked": "blocked",
}


def exit_code(changes: Iterable[Change]) -> int:
    told = list(changes)
    if any(change.action == "blocked" for change in told):
        return BLOCKED
    return CHANGES if any(change.to_do for change in told) else 0


def summary(changes: Iterable[Change]) -> str:
    """How many changes there are of each kind, in one line."""
    counted = Counter[str](change.action for change in changes)
    words = [f"{counted[action]} {word}" for action, word in _WORDS.items() if counted[action]]
    return ", ".join(words) or "nothing to compare"


def missing_rights(changes: Iterable[Change | Outcome]) -> list[str]:
    return without_overruled(need for change in changes for need in change.needs)


def show_plan(link: Link, changes: Sequence[Change], everything: bool) -> None:
    """One link's plan: what would change, line by line, and why. What is as it should be is only counted."""
    from rich.text import Text

    print_ = output.console().print
    print_(Text(f"link {link.name}: {link.source} → {link.target}", style="bold"), soft_wrap=True)
    for resource, group in groupby(changes, key=lambda change: change.resource):
        members = list(group)
        shown = [c for c in members if everything or c.told]
        print_(Text(f"  {resource}"), soft_wrap=True)
        width = min(48, max((len(c.name) for c in shown), default=0))
        for change in shown:
            mark, style = _MARKS[change.action]
            line = Text(f"    {mark} {change.name:<{width}}  {change.action}", style=style)
            line.append(f"  {_values(change)}" if change.diff else "", style="default")
            print_(line, soft_wrap=True)
            print_(Text(f"        {change.why}", style="dim"), soft_wrap=True)
        quiet = len(members) - len(shown)
        if quiet:
            print_(Text(f"    = {quiet} left alone", style="dim"), soft_wrap=True)
    print_(Text(f"  {summary(changes)}", style="bold"), soft_wrap=True)
    show_rights(changes)


def show_rights(changes: Iterable[Change | Outcome]) -> None:
    needs = missing_rights(changes)
    if needs:
        output.emit("  missing rights; grant:\n" + "\n".join(f"    {need}" for need in needs), json_mode=False)
        commands = [command for need in needs if (command := command_of(need))]
        if commands:
            told = "\n".join(f"    {command}" for command in commands)
            output.emit(f"  the same with Kafka's own tool:\n{told}", json_mode=False)


def show_outcomes(outcomes: Sequence[Outcome]) -> None:
    rows = [
        {
            "resource": o.change.resource,
            "name": o.change.name,
            "action": o.change.action,
            "outcome": (f"left: {o.note}" if o.note else "done") if o.done else f"failed: {o.error}",
        }
        for o in outcomes
    ]
    if rows:
        output.emit(rows, json_mode=False)


def _values(change: Change) -> str:
    kept = change.action == "keep" and change.resource in ("topics", "configs")
    return ", ".join(_kept(each) if kept else _value(each) for each in change.diff)


def _kept(diff: Diff) -> str:
    """A value that differs and stays: an arrow would say that it changes."""
    there, here = ("not set" if value is None else value for value in (diff.before, diff.after))
    return f"{diff.key}: {there} there, {here} {'asked for' if diff.key == 'replication.factor' else 'at the source'}"


def _value(diff: Diff) -> str:
    if diff.before is None:
        return f"{diff.key}={diff.after}"
    return f"{diff.key}: {diff.before} → {'unset' if diff.after is None else diff.after}"
