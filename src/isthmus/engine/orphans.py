"""Transactions that a coordinator takes for ended and that partitions still hold open.

Why: brokers that are lost all at once, as when a data centre dies, may forget on their return to write markers of a transaction that was being ended
(seen with Apache Kafka 4.3.1: "Couldn't find leader endpoint ... these partitions are likely deleted already and hence can be skipped"). Readers of
committed records stand still there for ever, and so do offsets that were committed in it. Some partitions may have got their marker before.

Invariants:
- only transactions of ids that were just taken are ended (pen.py): their coordinator says that nothing of them is open, so what a partition holds open is an
  orphan. It is aborted, and copied again; unless committed progress has passed over it: then it was meant to be committed, as the one after it was, and is;
- in one partition all of a transaction is visible, or nothing. So where copies are visible behind the progress that is committed, progress is moved
  behind them, and the map learns of them: nothing comes twice, nothing is left out. Which source record a copy is of tells its header: without one (``headers: off``), the link stops and says so;
- copies are looked at from where the map that could be read *before* anything was ended knows the last one, however many there are. What stands before that is in the map already, and may be of an
  older incarnation of the source, or of before a reset: it says nothing of what is to be copied now. What stands behind it is written to the map anew: its line may be in what was aborted.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from kafka.protocol.admin.transactions import DescribeProducersRequest

from isthmus.config import Link
from isthmus.control.map_records import MapRecords
from isthmus.control.translation import source_offset
from isthmus.engine.offset_map import ChunkKey, decode_chunk
from isthmus.engine.state import Progress
from isthmus.errors import DataError
from isthmus.kafka.cluster import NO_ID, Cluster
from isthmus.kafka.fetch import Fetched
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.offsets import Committed, Partition, by_topic, log_ranges
from isthmus.kafka.peek import Glimpse, peek, seen_in
from isthmus.kafka.read import read_ranges

# The markers of a transaction that was really being ended are there by then.
SETTLE_SECONDS = 5.0
_LENGTH, _PRODUCER = struct.Struct(">i"), struct.Struct(">q")


async def open_transactions(
    cluster: Cluster, leaders: Leaders, partitions: Collection[Partition], ours: Mapping[int, int]
) -> dict[Partition, dict[int, int]]:
    """Where each of our producer ids (given with our epoch) has an older transaction open, and from which offset on. One of our epoch or a newer one
    is somebody's who works: another attempt that has fenced us. What a broker does not tell (too old, no right) counts as none."""
    if not cluster.supports(DescribeProducersRequest, 0):
        return {}
    led: dict[int, list[Partition]] = defaultdict(list)
    for partition in partitions:
        if leaders.of(partition) >= 0:
            led[leaders.of(partition)].append(partition)
    kind = DescribeProducersRequest.TopicRequest
    asked = [
        cluster.send(
            DescribeProducersRequest(
                topics=[kind(name=topic, partition_indexes=ids) for topic, ids in by_topic(some).items()]
            ),
            node,
        )
        for node, some in led.items()
    ]
    found: dict[Partition, dict[int, int]] = {}
    for future in asked:
        response: Any = await future
        for topic in response.topics:
            for each in topic.partitions:
                starts = {
                    p.producer_id: p.current_txn_start_offset
                    for p in each.active_producers or ()
                    if p.current_txn_start_offset >= 0 and p.producer_epoch < ours.get(p.producer_id, -1)
                }
                if starts:
                    found[topic.name, each.partition_index] = starts
    return found


async def passed_over(
    target: Cluster, link: Link, held: Mapping[Partition, Mapping[int, int]], committed: Mapping[Partition, Committed]
) -> set[int]:
    """Whose open transactions hold records that committed progress counts as copied."""
    found: set[int] = set()
    for who in {who for starts in held.values() for who in starts}:
        at = {key: starts[who] for key, starts in held.items() if who in starts and key in committed}
        for key, glimpse in (await peek(target, at, committed_only=False)).items():
            if not isinstance(glimpse, Glimpse):
                raise glimpse(f"{key[0]}[{key[1]}] at offset {at[key]}")
            first = next((record for record in glimpse.records if record.offset >= at[key]), None)
            source = source_offset(first, _header(target, link)) if first is not None else None
            progress = Progress.read(committed[key])
            if source is not None and progress is not None and source < progress.offset:
                found.add(who)
    return found


def _header(target: Cluster, link: Link) -> str:
    if link.headers.offset is None:
        raise DataError(
            f"link {link.name}: site {target.site.name} has forgotten to end a transaction of this link, and without offset headers nobody can tell which of its "
            f"records are there. Look with `isthmus verify {link.name}`, set each partition with `isthmus reset {link.name} TOPIC:PARTITION --to OFFSET`"
        )
    return link.headers.offset


async def known_ends(target: Cluster, link: Link, committed: Mapping[Partition, Committed]) -> dict[Partition, int]:
    """Behind the last copy in each destination partition, of whatever incarnation of its source, as far as the map can be read now."""
    last: dict[tuple[str | uuid.UUID, int], int] = {}
    for raw, value in await MapRecords(link.name, patience=0).look(target):
        key, chunk = ChunkKey.decode(raw), decode_chunk(value)
        where = (key.topic if chunk.target_id == NO_ID else chunk.target_id, key.partition)
        if len(chunk.runs):
            last[where] = max(last.get(where, 0), int(chunk.runs[-1, 1] + chunk.runs[-1, 2]))
    found: dict[Partition, int] = {}
    for (topic, partition), value_there in committed.items():
        progress = Progress.read(value_there)
        if progress is not None:
            which = progress.source_topic if progress.target_id == NO_ID else progress.target_id
            found[topic, partition] = last.get((which, partition), 0)
    return found


async def seen_beyond(
    target: Cluster,
    link: Link,
    committed: Mapping[Partition, Committed],
    ours: Collection[int],
    known: Mapping[Partition, int],
) -> tuple[dict[Partition, Committed], list[tuple[bytes, bytes]]]:
    """Progress behind what is visible, of partitions in which there are copies behind what the map knew (``known``), and the records of the map that belong to them.

    ``ours`` are the link's producer ids: what others have written there, perhaps with a header of the same name, does not count.
    """
    from isthmus.engine.positions import map_chunks  # which needs the pen, and the pen needs this

    progress = {key: read for key, value in committed.items() if (read := Progress.read(value)) is not None}
    header = _header(target, link)
    logs = await log_ranges(target, progress)
    ranges = {key: (max(start, known.get(key, 0)), end) for key, (start, end) in logs.items()}
    rows: dict[Partition, list[list[int]]] = defaultdict(list)

    def take(piece: Fetched, position: int) -> None:
        for source, there in _copies(piece, position, ours, header):
            add_copy(rows[piece.partition], source, there)

    await read_ranges(target, ranges, take)
    moved: dict[Partition, Committed] = {}
    chunks: list[tuple[bytes, bytes]] = []
    for key, runs in rows.items():
        if runs:
            was = progress[key]
            now = replace(was, offset=max(was.offset, runs[-1][0] + runs[-1][2]))
            moved[key] = now.commit()
            chunks += map_chunks(now, key[1], np.array(runs, np.int64), min(was.offset, runs[0][0]))
    return moved, chunks


def add_copy(runs: list[list[int]], source: int, there: int) -> None:
    """Add one copy behind others of its partition; of several copies of one record the last one counts, as in the map."""
    while runs and runs[-1][0] + runs[-1][2] > source:
        runs[-1][2] = source - runs[-1][0]
        if runs[-1][2] > 0:
            break
        runs.pop()
    if runs and runs[-1][0] + runs[-1][2] == source and runs[-1][1] + runs[-1][2] == there:
        runs[-1][2] += 1
    else:
        runs.append([source, there, 1])


def _copies(piece: Fetched, position: int, ours: Collection[int], header: str) -> Iterator[tuple[int, int]]:
    """Source and destination offsets of visible copies that one of our producers has written."""
    at, size = 0, len(piece.data)
    while at + 61 <= size:
        end = at + 12 + _LENGTH.unpack_from(piece.data, at + 8)[0]
        if _PRODUCER.unpack_from(piece.data, at + 43)[0] in ours:
            for record in seen_in(piece.data[at:end], piece.partition, position, piece.aborted):
                # The link's own header is the last one of its name, and that counts; an older one came with the record.
                source = source_offset(record, header)
                if source is not None:
                    yield source, record.offset
        at = end
