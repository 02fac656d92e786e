"""Read ranges of logs once: some partitions between two offsets each, or a small topic (state, reports, the offset map) to its end.

Of small topics, what fits in a few records is decoded by kafka-python: bringing in the kernels would cost a starting command more than it
reads. Both give the same pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import kafka.errors as kerrors
from kafka.record import MemoryRecords

from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched, Fetcher, FetchProblem, end_of, size_before
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import EARLIEST, LATEST, Partition, list_offsets

BUFFER_BYTES = 16 << 20
FEW_BYTES = 32 << 10


class Row(NamedTuple):
    """A committed record of a small topic."""

    offset: int
    key: bytes | None
    value: bytes | None


Pair = tuple[bytes | None, bytes | None]
Range = tuple[int, int]
Take = Callable[[Fetched, int], None]


async def read_ranges(
    cluster: Cluster,
    ranges: Mapping[Partition, Range],
    take: Take,
    buffer_bytes: int = BUFFER_BYTES,
    timeout: float = 60.0,
) -> dict[Partition, int]:
    """Show ``take`` the batches of these ranges of offsets in the order of each log, and from which offset on they count; where each ended.

    Batches come whole: the last one may reach beyond its range. Nothing new for ``timeout`` is an error.
    """
    at = {key: first for key, (first, _) in ranges.items()}
    left = {key: end for key, (first, end) in ranges.items() if first < end}
    if not left:
        return at
    leaders = Leaders(cluster, sorted({topic for topic, _ in left}))
    await leaders.refresh()
    signal = Signal(cluster.loop)
    fetcher = Fetcher(cluster, leaders, signal, buffer_bytes, wait_ms=100)
    for key in left:
        fetcher.seek(key, at[key])
    deadline = time.monotonic() + timeout
    try:
        while left:
            piece = fetcher.take()
            if piece is None:
                if time.monotonic() > deadline:
                    topic, partition = next(iter(left))
                    words = f"reading {topic}[{partition}]: stuck at offset {at[topic, partition]}"
                    raise kerrors.KafkaTimeoutError(words)
                await signal.wait(0.5)
                continue
            key = piece.partition
            if key not in left:
                continue
            if isinstance(piece, FetchProblem):
                raise piece.error(f"{key[0]}[{key[1]}] at offset {at[key]}")
            deadline = time.monotonic() + timeout
            reached = end_of(piece.data, at[key])
            if reached > left[key]:
                # Batches that begin behind the end are left out; compaction may have left nothing before it.
                piece.data = piece.data[: size_before(piece.data, left[key])]
                reached = max(left[key], end_of(piece.data, at[key]))
            take(piece, at[key])
            at[key] = reached
            if at[key] >= left[key]:
                del left[key]
                fetcher.drop(key)
    finally:
        fetcher.stop()
    return at


async def read_to_end(
    cluster: Cluster, partition: Partition, position: int | None = None, timeout: float = 60.0
) -> tuple[list[Pair], int]:
    """Keys and values of committed records from ``position`` (``None``: the start), and where it ended."""
    pairs: list[Pair] = []
    end = await each_row(cluster, partition, lambda row: pairs.append((row.key, row.value)), position, timeout)
    return pairs, end


async def each_row(
    cluster: Cluster,
    partition: Partition,
    take: Callable[[Row], None],
    position: int | None = None,
    timeout: float = 60.0,
) -> int:
    """The same with offsets, one by one: nothing is kept of what ``take`` does not keep."""
    end = await _bound(cluster, partition, LATEST, timeout)
    if position is None:
        position = await _bound(cluster, partition, EARLIEST, timeout)

    def take_all(piece: Fetched, at: int) -> None:
        for row in _few(piece, at) or _many(piece, at):
            take(row)

    return (await read_ranges(cluster, {partition: (position, end)}, take_all, timeout=timeout))[partition]


async def _bound(cluster: Cluster, partition: Partition, which: int, timeout: float) -> int:
    found = (await list_offsets(cluster, {partition: which}, timeout=timeout))[partition]
    if not isinstance(found, int):
        raise found(f"{partition[0]}[{partition[1]}]")
    return found


def _few(piece: Fetched, position: int) -> list[Row]:
    """The rows of a few plain records; nothing of what is large, compressed, or may hold aborted ones."""
    if len(piece.data) > FEW_BYTES or piece.aborted:
        return []
    rows: list[Row] = []
    batches = MemoryRecords(bytes(piece.data))
    while batches.has_next():
        batch = batches.next_batch()
        if batch.magic < 2 or batch.compression_type or not batch.validate_crc():
            return []
        if not batch.is_control_batch:
            rows += [Row(r.offset, r.key, r.value) for r in batch if r.offset >= position]
    return rows


def _many(piece: Fetched, position: int) -> Iterator[Row]:
    from isthmus.records.arrow import decode  # brings the kernels

    topic, partition = piece.partition
    for batch in decode(piece.data, topic=topic, partition=partition, position=position, aborted=piece.aborted):
        columns = (batch.column(name).to_pylist() for name in Row._fields)
        yield from (Row(*each) for each in zip(*columns, strict=True))
