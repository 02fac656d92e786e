"""What a link has put at its destination besides records, remembered there: `_isthmus.LINK.control`, compacted.

Invariant: *remember, then do*. A crash in between leaves a memory of something that was not done, which does no harm:
only what is remembered **and** found as it is remembered is ever taken away. What somebody else put there is never
remembered, so it is never removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import kafka.errors as kerrors

from isthmus.control.rights import right
from isthmus.engine import state
from isthmus.errors import AuthorisationFailed
from isthmus.kafka.admin import NewTopic, create_topics, wait_for_topics
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.produce import Producer, Refused, small_batches
from isthmus.kafka.read import read_to_end

# Kind ("config", "acl", ...) and name of a thing -> what is known of it.
Memory = dict[tuple[str, str], Any]


async def recall(target: Cluster, link: str) -> Memory:
    """All that the link remembers; nothing if it has never put anything there."""
    topic = state.control_topic(link)
    metadata = await target.metadata([topic])
    error = metadata.topics[topic].error
    if error is kerrors.UnknownTopicOrPartitionError:
        return {}
    if error is not None:
        raise _explained(target, error(topic))
    pairs, _ = await read_to_end(target, (topic, 0))
    found: Memory = {}
    for key, value in pairs:
        kind, _, name = (key or b"").decode().partition("/")
        if value is None:
            found.pop((kind, name), None)
        else:
            found[kind, name] = json.loads(value)
    return found


def of_kind(memory: Memory, kind: str) -> dict[str, Any]:
    return {name: value for (its, name), value in memory.items() if its == kind}


async def remember(target: Cluster, link: str, things: Mapping[tuple[str, str], Any]) -> None:
    """Write these (``None`` forgets); readable by everybody when this returns."""
    if not things:
        return
    topic = state.control_topic(link)
    await _ensure(target, topic)
    leaders = Leaders(target, [topic])
    await leaders.refresh()
    producer = Producer(target, leaders, Signal(target.loop), None)
    records = [
        (f"{kind}/{name}".encode(), None if value is None else json.dumps(value, separators=(",", ":")).encode())
        for (kind, name), value in things.items()
    ]
    for batch in small_batches(records):
        producer.produce({(topic, 0): batch})
    try:
        await producer.drain()
    except Refused as refused:
        raise _explained(target, refused.error(refused.words)) from None


async def _ensure(target: Cluster, topic: str) -> None:
    metadata = await target.metadata([topic])
    if metadata.topics[topic].error is not kerrors.UnknownTopicOrPartitionError:
        return
    factor = min(3, max(1, len(metadata.brokers)))
    outcome = await create_topics(target, [NewTopic(topic, 1, factor, state.STATE_TOPIC_CONFIG)])
    for why in outcome.values():
        if why is not None:
            raise _explained(target, why.error(why.words))
    await wait_for_topics(target, [topic])


def _explained(target: Cluster, error: Exception) -> Exception:
    if not isinstance(error, kerrors.AuthorizationError):
        return error
    needs = [str(right(target.site, op, "topic", STATE_PREFIX, prefixed=True)) for op in ("CREATE", "READ", "WRITE")]
    words = (
        f"site {target.site.name}: not authorised for the link's own topics; grant ALLOW CREATE, READ and WRITE on them"
    )
    return AuthorisationFailed(words, target.site.name, "\n".join(needs))
