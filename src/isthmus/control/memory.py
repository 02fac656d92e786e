"""What a link has put at its destination besides records, remembered there: `_isthmus.LINK.control`, compacted.

Invariant: *remember, then do*. A crash in between leaves a memory of something that was not done, which does no harm:
only what is remembered **and** found as it is remembered is ever taken away. What somebody else put there is never
remembered, so it is never removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from isthmus.engine import state
from isthmus.engine.table import Table, read_table, write_table
from isthmus.errors import BadState
from isthmus.kafka.cluster import Cluster

# Kind ("config", "acl", ...) and name of a thing.
Thing = tuple[str, str]
Things = dict[Thing, Any]
Ranges = list[list[int]]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Memory:
    """What a link remembers. Asking for what cannot be read raises ``BadState`` (table.py)."""

    table: Table = field(default_factory=Table)

    def __contains__(self, thing: Thing) -> bool:
        return "/".join(thing) in self.table

    def get(self, thing: Thing, how: Callable[[str, Any], _Value]) -> _Value | None:
        return self.table.read("/".join(thing), how) if thing in self else None


async def recall(target: Cluster, link: str) -> Memory:
    """All that the link remembers; nothing if it has never put anything there."""
    return Memory(await read_table(target, state.control_topic(link)))


def of_kind(memory: Memory, kind: str, how: Callable[[str, Any], _Value]) -> dict[str, _Value]:
    """All things of a kind by their names, each made of its name and what is known of it."""
    return memory.table.kind(f"{kind}/", how)


def sorted_out(
    memory: Memory, kind: str, how: Callable[[str, Any], _Value]
) -> tuple[dict[str, _Value], dict[str, BadState]]:
    """The same, and apart from them those that cannot be read, for whoever can do without one."""
    return memory.table.sorted_out(f"{kind}/", how)


def ranges(_: str, value: Any) -> Ranges:
    """Ranges of offsets, as things of some kinds have them."""
    found: Ranges = value["ranges"]
    for first, end in found:
        if type(first) is not int or type(end) is not int or not 0 <= first <= end < 1 << 63:
            raise ValueError(f"no range of offsets: {first!r} to {end!r}"[:120])
    return found


async def remember(target: Cluster, link: str, things: Mapping[Thing, Any]) -> None:
    """Write these (``None`` forgets); readable by everybody when this returns."""
    await write_table(
        target, state.control_topic(link), {f"{kind}/{name}": value for (kind, name), value in things.items()}
    )
