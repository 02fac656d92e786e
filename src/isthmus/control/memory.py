"""What a link has put at its destination besides records, remembered there: `_isthmus.LINK.control`, compacted.

Invariant: *remember, then do*. A crash in between leaves a memory of something that was not done, which does no harm:
only what is remembered **and** found as it is remembered is ever taken away. What somebody else put there is never
remembered, so it is never removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.engine import state
from isthmus.engine.table import read_table, write_table
from isthmus.kafka.cluster import Cluster

# Kind ("config", "acl", ...) and name of a thing -> what is known of it.
Memory = dict[tuple[str, str], Any]


async def recall(target: Cluster, link: str) -> Memory:
    """All that the link remembers; nothing if it has never put anything there."""
    found: Memory = {}
    for key, value in (await read_table(target, state.control_topic(link))).items():
        kind, _, name = key.partition("/")
        found[kind, name] = value
    return found


def of_kind(memory: Memory, kind: str) -> dict[str, Any]:
    return {name: value for (its, name), value in memory.items() if its == kind}


async def remember(target: Cluster, link: str, things: Mapping[tuple[str, str], Any]) -> None:
    """Write these (``None`` forgets); readable by everybody when this returns."""
    await write_table(
        target, state.control_topic(link), {f"{kind}/{name}": value for (kind, name), value in things.items()}
    )
