"""A small table kept in a compacted topic of ours: keys are text, values are JSON, a tombstone forgets.

Invariant: what ``write_table`` was given is readable by everybody when it returns: also where somebody's transaction stands open before it. Writers of
different keys do not disturb each other; of two writers of one key, the later one wins.
"""

from __future__ import annotations

import json
import time
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
from isthmus.kafka.offsets import LATEST, list_offsets
from isthmus.kafka.produce import Interrupted, Producer, Refused, small_batches
from isthmus.kafka.read import read_to_end

Table = dict[str, Any]
AGAIN_SECONDS, FIRST_PAUSE = 15.0, 0.05
# Whoever left a transaction open is known to be dead by then.
READABLE_SECONDS = 90.0


async def read_table(cluster: Cluster, topic: str) -> Table:
    """What stands in the table now; nothing if there is none."""
    error = (await cluster.metadata([topic])).topics[topic].error
    if error is kerrors.UnknownTopicOrPartitionError:
        return {}
    if error is not None:
        raise explained(cluster, error(topic), "READ")
    pairs, _ = await read_to_end(cluster, (topic, 0))
    found: Table = {}
    for key, value in pairs:
        name = (key or b"").decode()
        if value is None:
            found.pop(name, None)
        else:
            found[name] = json.loads(value)
    return found


async def write_table(cluster: Cluster, topic: str, things: Mapping[str, Any]) -> None:
    """Write these (``None`` forgets). Again if need be: a leader that has moved, or of a topic just made, is met anew, and what is written
    twice is the same as written once."""
    if not things:
        return
    await ensure_table(cluster, topic)
    deadline, pause = time.monotonic() + AGAIN_SECONDS, FIRST_PAUSE
    while True:
        try:
            await _write(cluster, topic, things)
            return
        except Interrupted as error:
            if time.monotonic() > deadline:
                cause = error.cause or kerrors.KafkaConnectionError(str(error))
                raise cluster.explain(cause, f"writing to {topic}") from error
            await cluster.loop.sleep(pause)
            pause *= 2


async def _write(cluster: Cluster, topic: str, things: Mapping[str, Any]) -> None:
    leaders = Leaders(cluster, [topic])
    await leaders.refresh()
    producer = Producer(cluster, leaders, Signal(cluster.loop))
    records = [
        (key.encode(), None if value is None else json.dumps(value, separators=(",", ":")).encode())
        for key, value in things.items()
    ]
    for batch in small_batches(records):
        producer.produce({(topic, 0): batch})
    try:
        await producer.drain()
    except Refused as refused:
        raise explained(cluster, refused.error(refused.words), "WRITE") from None
    await _readable(cluster, topic, max(sent.base_offset + sent.count for sent in producer.sent))


async def _readable(cluster: Cluster, topic: str, end: int) -> None:
    deadline, pause = time.monotonic() + READABLE_SECONDS, FIRST_PAUSE
    while True:
        stable = (await list_offsets(cluster, {(topic, 0): LATEST}))[topic, 0]
        if isinstance(stable, int) and stable >= end:
            return
        if time.monotonic() > deadline:
            words = (
                f"{topic}[0] is readable up to offset {stable} and not to {end}: a transaction before that does not end"
            )
            raise cluster.explain(kerrors.KafkaTimeoutError(words), f"writing to {topic}")
        await cluster.loop.sleep(pause)
        pause = min(1.0, pause * 2)


async def ensure_table(cluster: Cluster, topic: str) -> None:
    """The table's topic is there when this returns."""
    metadata = await cluster.metadata([topic])
    if metadata.topics[topic].error is not kerrors.UnknownTopicOrPartitionError:
        return
    factor = min(3, max(1, len(metadata.brokers)))
    outcome = await create_topics(cluster, [NewTopic(topic, 1, factor, state.STATE_TOPIC_CONFIG)])
    for why in outcome.values():
        if why is not None:
            raise explained(cluster, why.error(why.words), "CREATE")
    await wait_for_topics(cluster, [topic])


def explained(cluster: Cluster, error: Exception, operation: str) -> Exception:
    """The error of whoever did this and was refused: it names that right, and no other."""
    if not isinstance(error, kerrors.AuthorizationError):
        return error
    need = right(cluster.site, operation, "topic", STATE_PREFIX, prefixed=True)
    words = f"site {need.site}: not authorised to {operation.lower()} the link's own topics; grant {need}"
    return AuthorisationFailed(words, need.site, str(need))
