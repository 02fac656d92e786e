"""What a link has put at its destination besides records, remembered there: `_isthmus.LINK.control`, compacted.

Invariant: *remember, then do*. A crash in between leaves a memory of something that was not done, which does no harm:
only what is remembered **and** found as it is remembered is ever taken away. What somebody else put there is never
remembered, so it is never removed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import kafka.errors as kerrors

from isthmus.engine import state
from isthmus.engine.table import read_table, write_table
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.produce import Interrupted

AGAIN_SECONDS, FIRST_PAUSE = 15.0, 0.05

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
    await write_down(
        target, state.control_topic(link), {f"{kind}/{name}": value for (kind, name), value in things.items()}
    )


async def write_down(cluster: Cluster, topic: str, things: Mapping[str, Any]) -> None:
    """Write to a table, again if need be: a leader that has moved, or of a topic just made, is met anew. What is written twice is
    the same as written once."""
    deadline, pause = time.monotonic() + AGAIN_SECONDS, FIRST_PAUSE
    while True:
        try:
            await write_table(cluster, topic, things)
            return
        except Interrupted as error:
            if time.monotonic() > deadline:
                raise cluster.explain(kerrors.KafkaConnectionError(str(error)), f"writing to {topic}") from error
            await cluster.loop.sleep(pause)
            pause *= 2
