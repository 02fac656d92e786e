"""Read a small topic from a position to its end: state, reports, the offset map."""

from __future__ import annotations

import time

import kafka.errors as kerrors

from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetcher, FetchProblem, end_of
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import EARLIEST, LATEST, Partition, list_offsets

BUFFER_BYTES = 16 << 20

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
    from isthmus.records.arrow import decode  # brings the kernels, which an empty topic does not need

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
            for batch in decode(
                piece.data, topic=partition[0], partition=partition[1], position=position, aborted=piece.aborted
            ):
                pairs += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
            position = end_of(piece.data, position)
            deadline = time.monotonic() + timeout
    finally:
        fetcher.stop()
    return pairs, position
