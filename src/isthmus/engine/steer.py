"""Steering a running link from outside: pause, resume, limit, deal anew, stop; a line in the link's group.

A task reads it within a second, wherever it runs.

Invariants:
- *take, then read, then write*, by a transactional id of its own: taking it fences whoever is about to write, so what was read is still true when it is
  written, or nothing is written and all is done again. No wish is ever lost to another one. (``delivery: at-least-once`` is for sites without transactions:
  there, two writers at the same moment may overwrite each other.)
- the line stands in the link's control topic too, in the same transaction. Where brokers have forgotten it, the topic says what is asked (lines.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.lines import kept_control, wishes_thing
from isthmus.engine.state import Control
from isthmus.engine.table import ensure_table, explained, read_table, table_records
from isthmus.errors import DataError, UnknownLink
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import commit_group_offsets, group_offsets
from isthmus.kafka.produce import Fenced, Interrupted, Producer, Refused, small_batches

# Writers that meet fence each other; a pause by chance keeps them from meeting again.
ATTEMPTS, AGAIN_SECONDS, LONGEST_SECONDS = 12, 0.1, 3.0
# Until a writer that died is known to be dead, readers of the control topic see nothing behind what it had begun to write.
TRANSACTION_SECONDS = 10.0

Change = Callable[[Control], Control]


async def read_control(target: Cluster, link: str, stable: bool = False) -> Control:
    """What operators have asked for so far."""
    key = (state.status_topic(link), 0)
    committed = await group_offsets(target, state.group(link), [key], stable=stable)
    if key in committed:
        return Control.read(committed[key])
    metadata = await target.metadata([key[0]])
    if metadata.topics[key[0]].error is not None:
        raise UnknownLink(
            f"link {link}: site {target.site.name} holds no state of it; it has never run with this destination"
        )
    return kept_control(await read_table(target, state.control_topic(link)))


async def steer(target: Cluster, link: Link, deal_again: bool = False, **wish: Any) -> Control:
    """Change fields of the link's control; without any, write it anew, as brokers forget it otherwise."""
    return await change(target, link, lambda now: replace(now, deal=now.deal + deal_again, **wish))


async def change(target: Cluster, link: Link, wanted: Change) -> Control:
    """Write what ``wanted`` makes of what is asked of the link. It may be called more than once."""
    await read_control(target, link.name)  # raises if there is nothing to steer
    await ensure_table(target, state.control_topic(link.name))
    exactly_once = link.delivery == "exactly-once"
    topic = (state.control_topic(link.name), 0)
    leaders = Leaders(target, [topic[0]])
    ids = [state.steering_id(link.name)] if exactly_once else []
    writer = Producer(target, leaders, Signal(target.loop), ids, TRANSACTION_SECONDS)
    for attempt in range(ATTEMPTS):
        try:
            return await _attempt(target, link.name, writer, leaders, wanted)
        except Refused as refused:
            raise explained(target, refused.error(refused.words), "WRITE") from None
        except (Fenced, Interrupted, kerrors.ConcurrentTransactionsError) as error:
            if attempt + 1 == ATTEMPTS:
                raise DataError(
                    f"link {link.name}: what is asked of it could not be written, others kept writing it ({error}); give the command again"
                ) from None
            await target.loop.sleep(random.uniform(0, min(LONGEST_SECONDS, AGAIN_SECONDS * 2**attempt)))
    raise AssertionError("the last attempt returns or raises")


async def _attempt(target: Cluster, link: str, writer: Producer, leaders: Leaders, wanted: Change) -> Control:
    group, topic, line = state.group(link), (state.control_topic(link), 0), (state.status_topic(link), 0)
    await writer.begin()
    await leaders.refresh()
    if writer.transactional:
        # What a writer before us left and brokers have forgotten to end would keep everybody from reading what we write.
        await writer.end_orphans([topic], group)
    now = await read_control(target, link, stable=True)
    control = replace(wanted(now), version=now.version + 1)
    for batch in small_batches(await table_records(target, topic[0], wishes_thing(control))):
        writer.produce({topic: batch})
    if writer.transactional:
        await writer.commit(group, {line: control.commit()})
        # The broker answers before it has marked the offset as committed; a stable read waits for the mark.
        await group_offsets(target, group, [line], stable=True)
    else:
        await writer.drain()
        await commit_group_offsets(target, group, {line: control.commit()})
    return control
