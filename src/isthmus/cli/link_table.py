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
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for state in states:
        parts.append(Text(summary(state), style="bold"))
        shown = sorted(state.partitions, key=_importance)[:rows]
        ordered = sorted(shown, key=lambda p: (p.topic, p.partition))
        parts.append(PartitionTable(ordered, known=state.state != "unknown"))
        hidden = len(state.partitions) - len(shown)
        if hidden:
            parts.append(Text(f"  and {hidden} quieter partitions"))
        if any(state.schema_ids.values()):
            parts.append(Text(f"  {schema_ids(state)}"))
        parts += [Text(f"  {_told(p)}", style="red") for p in state.faults[:5]]
        parts += [Text(f"  {words}", style="yellow") for words in state.all_trouble]
    return Group(*parts)


class PartitionTable:
    """The partitions of a link, made anew for the width that there is: numbers and states are never cut. Names give way first, in the middle; then
    columns go, the least telling first."""

    def __init__(self, partitions: list[PartitionState], known: bool = True) -> None:
        self._partitions, self._known = partitions, known

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        columns = self._columns()
        width = options.max_width
        for name in ("to", "bytes/s", "records/s", "end", "position"):
            if _width(columns, _NARROW) <= width:
                break
            if name != "to" or _width(columns, _SHORTEST) > width or all(p.target == p.topic for p in self._partitions):
                del columns[name]
        longest = max(_SHORTEST, _longest(columns, width))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            left = name in ("partition", "to", "state")
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for row, p in enumerate(self._partitions):
            cells = []
            for name, values in columns.items():
                text = values[row]
                if name == "partition":
                    number = f"[{p.partition}]"
                    text = shortened(p.topic, max(1, longest - len(number))) + number
                elif name == "to":
                    text = shortened(p.target, longest)
                style = ("red" if p.fault else "green" if text == "ok" else "yellow") if name == "state" else ""
                cells.append(Text(text, style=style))
            table.add_row(*cells)
        yield table

    def _columns(self) -> dict[str, list[str]]:
        them = self._partitions
        return {
            "partition": [f"{p.topic}[{p.partition}]" for p in them],
            "to": [p.target for p in them],
            "position": [_number(p.position) for p in them],
            "end": [_number(p.end) for p in them],
            "lag": [_number(p.lag) for p in them],
            "records/s": [amount(p.records_per_second) for p in them],
            "bytes/s": [amount(p.bytes_per_second) for p in them],
            "state": [self._state(p) for p in them],
        }

    def _state(self, p: PartitionState) -> str:
        if p.fault or p.trouble:
            return p.fault or f"{p.hidden} behind an open transaction"
        return "ok" if self._known and p.end is not None else "unknown"


# What stands between two columns; how short a name may get while columns can go instead, and how short at all.
_BETWEEN, _NARROW, _SHORTEST = 3, 20, 8
_NAMES = ("partition", "to")


def _width(columns: dict[str, list[str]], longest: int) -> int:
    """How wide a table is whose names are no longer than this."""
    widths = [max([len(name), *map(len, values)]) for name, values in columns.items() if name not in _NAMES]
    widths += [
        max(len(name), min(longest, max(map(len, values), default=0)))
        for name, values in columns.items()
        if name in _NAMES
    ]
    return sum(widths) + _BETWEEN * len(widths)


def _longest(columns: dict[str, list[str]], width: int) -> int:
    """How long names may be in a table that fits."""
    most = max((len(text) for name in _NAMES for text in columns.get(name, ())), default=0)
    while most > _SHORTEST and _width(columns, most) > width:
        most -= 1
    return most


def shortened(text: str, length: int) -> str:
    """A text with its middle left out, if it is longer than this: names mostly differ at their ends."""
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - (length - head - 1) :]}" if length > 1 else "…"


def _told(p: PartitionState) -> str:
    """A fault names its partition, most of the time by itself."""
    where = f"{p.topic}[{p.partition}]"
    return p.message if p.message.startswith(where) else f"{where}: {p.message}"


def _importance(p: PartitionState) -> tuple[bool, int, float]:
    return (not (p.fault or p.trouble), -(p.lag or 0), -p.bytes_per_second)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
