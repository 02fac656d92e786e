"""Read a small topic from a position to its end: state, reports, the offset map.

What fits in a few records is decoded by kafka-python: bringing in the kernels would cost a starting command more than it
reads. Both give the same pairs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import kafka.errors as kerrors
from kafka.record import MemoryRecords

from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched, Fetcher, FetchProblem, end_of
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import EARLIEST, LATEST, Partition, list_offsets

BUFFER_BYTES = 16 << 20
FEW_BYTES = 32 << 10

Pair = tuple[bytes | None, bytes | None]


async def read_to_end(
    cluster: Cluster, partition: Partition, position: int | None = None, timeout: float = 60.0
) -> tuple[list[Pair], int]:
    """Keys and values of committed records from ``position`` (``None``: the start), and where it ended."""
    ends = await list_offsets(cluster, {partition: LATEST}, timeout=timeout)
    end = ends[partition]
    if not isinstance(end, int):
        raise end(f"{partition[0]}[{partition[1]}]")
    if position is None:
        starts = await list_offsets(cluster, {partition: EARLIEST}, timeout=timeout)
        start = starts[partition]
        if not isinstance(start, int):
            raise start(f"{partition[0]}[{partition[1]}]")
        position = start
    pairs: list[Pair] = []
    if position >= end:
        return pairs, position
    leaders = Leaders(cluster, [partition[0]])
    await leaders.refresh()
    signal = Signal(cluster.loop)
    fetcher = Fetcher(cluster, leaders, signal, BUFFER_BYTES, wait_ms=100)
    fetcher.seek(partition, position)
    deadline = time.monotonic() + timeout
    try:
        while position < end:
            piece = fetcher.take()
            if piece is None:
                if time.monotonic() > deadline:
                    raise kerrors.KafkaTimeoutError(f"reading {partition[0]}: stuck at offset {position}")
                await signal.wait(0.5)
                continue
            if isinstance(piece, FetchProblem):
                raise piece.error(f"{partition[0]}[{partition[1]}] at offset {position}")
            pairs += _few(piece, position) or _many(piece, position)
            position = end_of(piece.data, position)
            deadline = time.monotonic() + timeout
    finally:
        fetcher.stop()
    return pairs, position


def _few(piece: Fetched, position: int) -> list[Pair]:
    """The pairs of a few plain records; nothing of what is large, compressed, or may hold aborted ones."""
    if len(piece.data) > FEW_BYTES or piece.aborted:
        return []
    pairs: list[Pair] = []
    batches = MemoryRecords(bytes(piece.data))
    while batches.has_next():
        batch = batches.next_batch()
        if batch.magic < 2 or batch.compression_type or not batch.validate_crc():
            return []
        if not batch.is_control_batch:
            pairs += [(record.key, record.value) for record in batch if record.offset >= position]
    return pairs


def _many(piece: Fetched, position: int) -> Iterator[Pair]:
    from isthmus.records.arrow import decode  # brings the kernels

    topic, partition = piece.partition
    for batch in decode(piece.data, topic=topic, partition=partition, position=position, aborted=piece.aborted):
        yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
