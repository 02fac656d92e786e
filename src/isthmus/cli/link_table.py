"""How the state of links looks to people: a table of partitions, and one line a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.engine.snapshot import LinkState, PartitionState

# A live table must fit the screen: the partitions that matter most come first.
MOST_ROWS = 24


def amount(count: float) -> str:
    """1234567 -> 1.23 M"""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def summary(state: LinkState) -> str:
    still = len(state.faults)
    faults = f", {still} partition{'s stand' if still > 1 else ' stands'} still" if still else ""
    lag = "unknown" if state.state == "unknown" or state.unknown else str(state.lag)
    return (
        f"{state.link}: {state.source} -> {state.target} {state.state}, {len(state.partitions)} partitions, "
        f"{amount(state.records_per_second)} records/s, {amount(state.bytes_per_second)}B/s, lag {lag}{faults}"
    )


_MET = {"translated": "translated", "not_schema": "no schema payload", "malformed": "malformed", "unknown": "unknown"}


def schema_ids(state: LinkState) -> str:
    """What the rule of this name met, in keys and values."""
    met = ", ".join(f"{count} {_MET.get(name, name)}" for name, count in state.schema_ids.items() if count)
    return f"schema ids under the newest lease: {met}"


def link_table(states: list[LinkState], rows: int = MOST_ROWS) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for state in states:
        parts.append(Text(summary(state), style="bold"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name, justify in (
            ("partition", "left"),
            ("to", "left"),
            ("position", "right"),
            ("end", "right"),
            ("lag", "right"),
            ("records/s", "right"),
            ("bytes/s", "right"),
            ("state", "left"),
        ):
            table.add_column(name, justify=justify, no_wrap=name != "state")  # type: ignore[arg-type]
        shown = sorted(state.partitions, key=_importance)[:rows]
        for p in sorted(shown, key=lambda p: (p.topic, p.partition)):
            table.add_row(
                Text(f"{p.topic}[{p.partition}]"),
                Text(p.target),
                _number(p.position),
                _number(p.end),
                _number(p.lag),
                amount(p.records_per_second),
                amount(p.bytes_per_second),
                _standing(state, p),
            )
        parts.append(table)
        hidden = len(state.partitions) - len(shown)
        if hidden:
            parts.append(Text(f"  and {hidden} quieter partitions"))
        if any(state.schema_ids.values()):
            parts.append(Text(f"  {schema_ids(state)}"))
        parts += [Text(f"  {_told(p)}", style="red") for p in state.faults[:5]]
        parts += [Text(f"  {words}", style="yellow") for words in state.trouble]
    return Group(*parts)


def _standing(state: LinkState, p: PartitionState) -> Any:
    from rich.text import Text

    if p.fault:
        return Text(p.fault, style="red")
    return Text("unknown", style="yellow") if p.end is None or state.state == "unknown" else Text("ok", style="green")


def _told(p: PartitionState) -> str:
    """A fault names its partition, most of the time by itself."""
    where = f"{p.topic}[{p.partition}]"
    return p.message if p.message.startswith(where) else f"{where}: {p.message}"


def _importance(p: PartitionState) -> tuple[bool, int, float]:
    return (not p.fault, -(p.lag or 0), -p.bytes_per_second)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
