"""What a link keeps in its group, whole: what brokers have forgotten of it is taken from the link's own topics.

Why: a broker forgets a group's offsets some time after they were committed (``offsets.retention.minutes``, a week by default), and an operator may delete the group.

Invariants:
- that a line is absent from the group says nothing. The claim and what is asked of the link stand in the control topic too, written in the same
  transaction; where a partition goes on stands in the map;
- the group wins where it has a line: a planner's claim is readable there before it fences anybody, so who finds none has not been replaced since it
  was forgotten, and what the topic says still holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.held import by_source
from isthmus.engine.offset_map import POSITION, ChunkKey, PartitionMap, build_maps, encode_chunk
from isthmus.engine.state import Claim, Control, Progress
from isthmus.engine.table import Table, read_table
from isthmus.errors import ConfigError
from isthmus.kafka.cluster import NO_ID, Cluster
from isthmus.kafka.offsets import Committed, Partition, group_offsets
from isthmus.kafka.read import read_to_end

CLAIM, WISHES = "link/claim", "link/wishes"


def claim_thing(claim: Committed) -> dict[str, Any]:
    """A claim as it stands in the control topic."""
    return {CLAIM: {"number": claim.offset, **json.loads(claim.metadata)}}


def wishes_thing(control: Control) -> dict[str, Any]:
    """What is asked of a link, likewise. What is not set is left out: an older version reads what it knows."""
    return {WISHES: {key: value for key, value in control.lasting.items() if value or key not in ("stop", "reset")}}


def kept_claim(table: Table) -> Claim | None:
    return (
        table.read(CLAIM, lambda _, body: Claim.read(Committed(int(body["number"]), json.dumps(body))))
        if CLAIM in table
        else None
    )


def kept_control(table: Table) -> Control:
    return table.read(WISHES, _control) if WISHES in table else Control()


def _control(_: str, body: Any) -> Control:
    control = replace(Control(), **body)
    for each in fields(Control):
        value, usual = getattr(control, each.name), getattr(Control(), each.name)
        if type(value) is not type(usual) and not (each.name == "rate_limit" and type(value) is int):
            raise TypeError(f"{each.name} is a {type(value).__name__}")
    return control


def position_record(progress: Progress, partition: int) -> tuple[bytes, bytes]:
    """A record of the map that says where copying goes on, and nothing else: brokers forget progress. What was copied before stays in the map."""
    key = ChunkKey(progress.source_topic, partition, progress.source_id, POSITION)
    nothing = np.empty((0, 3), np.int64)
    return key.encode(), encode_chunk(nothing, progress.offset, progress.offset, progress.target_id)


async def lines(target: Cluster, link: str, committed: Mapping[Partition, Committed]) -> tuple[Claim | None, Control]:
    """The claim and what is asked of the link, of which ``committed`` is what its group says; no claim: it has never run with this destination."""
    at, asked = committed.get((state.map_topic(link), 0)), committed.get((state.status_topic(link), 0))
    if at is not None and asked is not None:
        return Claim.read(at), Control.read(asked)
    table = await read_table(target, state.control_topic(link))
    claim = Claim.read(at) if at is not None else kept_claim(table)
    if claim is None and await read_maps(target, link):
        # Older versions kept the claim in the group alone. Who has a map has run; a topic that holds only markers is no map.
        claim = Claim(0, "", started=True)
    return claim, Control.read(asked) if asked is not None else kept_control(table)


async def committed_of(
    target: Cluster, link: Link, stable: bool = True, complete: bool = True, timeout: float = 75.0
) -> dict[Partition, Committed]:
    """Like ``group_offsets`` of the link's group, with all that was ever in it.

    Partitions may be forgotten one by one: only the map tells. Unless ``complete``, it is asked only when the claim is gone, which a running link
    writes most often. While tasks write, what the map says may be older than what was forgotten, never newer.
    """
    committed = await group_offsets(target, state.group(link.name), stable=stable, timeout=timeout)
    map_key, status_key = (state.map_topic(link.name), 0), (state.status_topic(link.name), 0)
    claim, control = await lines(target, link.name, committed)
    if claim is None:
        return committed
    found = {**committed, map_key: claim.commit()}
    if status_key not in committed and control != Control():
        found[status_key] = control.commit()
    if complete or map_key not in committed:
        found |= {
            key: each.commit() for key, each in (await forgotten_progress(target, link, claim, committed)).items()
        }
    return found


async def forgotten_progress(
    target: Cluster, link: Link, claim: Claim, committed: Mapping[Partition, Committed]
) -> dict[Partition, Progress]:
    """Progress that only the map knows any more, of topics that are still those that were copied to: what brokers forget with a deleted topic
    stays forgotten."""
    found = from_map(link, claim, committed, await read_maps(target, link.name))
    there = (await target.metadata(sorted({topic for topic, _ in found}))).topics if found else {}
    return {
        (topic, p): each
        for (topic, p), each in found.items()
        if there[topic].error is None
        and p in there[topic].partitions
        and (NO_ID in (there[topic].id, each.target_id) or there[topic].id == each.target_id)
    }


def from_map(
    link: Link, claim: Claim, committed: Mapping[Partition, Committed], maps: Mapping[Partition, PartitionMap]
) -> dict[Partition, Progress]:
    """What the map says of partitions that have no progress, by destination partition."""
    known = by_source(committed)
    found: dict[Partition, Progress] = {}
    for (topic, partition), mapped in maps.items():
        if (topic, partition) in known or mapped.next_offset < 0 or not link.topics.matches(topic):
            continue
        try:
            there = link.destination_topic(topic)
        except ConfigError:  # a name that cannot be any more: nothing is copied to it
            continue
        found[there, partition] = Progress(
            mapped.next_offset, topic, claim.source_cluster, mapped.source_id, mapped.target_id
        )
    return found


async def read_maps(target: Cluster, link: str) -> dict[Partition, PartitionMap]:
    """The link's map; empty if it has none."""
    try:
        pairs, _ = await read_to_end(target, (state.map_topic(link), 0))
    except kerrors.UnknownTopicOrPartitionError:
        return {}
    return build_maps((key, value) for key, value in pairs if key is not None)
