"""How far from the limit: what the brokers alone take for the same bytes.

Reading only: the link's own fetcher, and what it fetched is thrown away. Writing only: batches that were made ready
before the clock started, in transactions as large as the link's. Neither leaves the replicator anything to do but move
bytes, so no replicator on these brokers and this machine can be faster than the slower of the two, nor use less broker CPU.
"""

from __future__ import annotations

import time
from typing import Any

from bench.load import create, delete_all
from bench.meter import cpu_seconds
from isthmus.config import load
from isthmus.engine.copy import BUFFER_BYTES, TRANSACTION_BYTES
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched, Fetcher
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.produce import Producer
from isthmus.records import Outgoing, Transcoder
from isthmus.rules import compile_rules
from isthmus.sandbox import KafkaSite

# What is made ready for writing is held in memory.
MOST_READY_BYTES = 512 << 20


class Limits:
    """Both passes over one topic that was filled before."""

    def __init__(self, east: KafkaSite, west: KafkaSite, topic: str, partitions: int, config: Any) -> None:
        self._east, self._west, self._topic, self._partitions = east, west, topic, partitions
        self._config = load(config)
        self._ready: list[tuple[int, Outgoing]] = []

    def measure(self, count: int, size: int) -> dict[str, Any]:
        reading = self._clocked(self._east, self._read, count)
        self._clocked(self._east, self._make_ready, count)
        delete_all(self._west.bootstrap)
        create(self._west.bootstrap, self._topic, self._partitions)
        written = sum(batch.count for _, batch in self._ready)
        writing = self._clocked(self._west, self._write, written)
        self._ready = []
        return {"payload_bytes": size, "reading": reading, "writing": writing}

    def _clocked(self, site: KafkaSite, work: Any, count: int) -> dict[str, float]:
        loop = Loop()
        cluster = Cluster(self._config.sites[site.name], loop, "bench-limits")
        pids = [broker.pid for broker in site.brokers]
        try:
            loop.run(cluster.connect)
            before, own, began = cpu_seconds(pids), time.process_time(), time.monotonic()
            loop.run(work, cluster, count)
            seconds = time.monotonic() - began
            return {
                "records_per_s": count / seconds,
                "broker_cpu_us_per_record": (cpu_seconds(pids) - before) / count * 1e6,
                "client_cpu_us_per_record": (time.process_time() - own) / count * 1e6,
            }
        finally:
            cluster.close()
            loop.close()

    async def _read(self, cluster: Cluster, count: int) -> None:
        async for _ in self._pieces(cluster, count):
            pass

    async def _make_ready(self, cluster: Cluster, count: int) -> None:
        link = next(iter(self._config.links.values()))
        transcoder = Transcoder(compile_rules(link), link.compression, link.on_corrupt)
        held = 0
        async for piece in self._pieces(cluster, count):
            copied = transcoder.feed(
                piece.data,
                topic=self._topic,
                partition=piece.partition[1],
                position=piece.position,
                aborted=piece.aborted,
                max_bytes=1048588,
            )
            for batch in copied.batches:
                batch.payload = batch.payload.copy()
                self._ready.append((piece.partition[1], batch))
                held += len(batch.payload)
            if held > MOST_READY_BYTES:
                return

    async def _pieces(self, cluster: Cluster, count: int) -> Any:
        leaders = Leaders(cluster, [self._topic])
        await leaders.refresh()
        signal = Signal(cluster.loop)
        fetcher = Fetcher(cluster, leaders, signal, BUFFER_BYTES)
        positions = dict.fromkeys(range(self._partitions), 0)
        for number in positions:
            fetcher.seek((self._topic, number), 0)
        try:
            while sum(positions.values()) < count:
                piece = fetcher.take()
                if isinstance(piece, Fetched):
                    positions[piece.partition[1]] = piece.end
                    yield piece
                elif piece is None:
                    await signal.wait(1.0)
        finally:
            fetcher.stop()

    async def _write(self, cluster: Cluster, _: int) -> None:
        leaders = Leaders(cluster, [self._topic])
        await leaders.refresh()
        signal = Signal(cluster.loop)
        producer = Producer(cluster, leaders, signal, ["bench-limits"], 60.0)
        await producer.begin()
        size = 0
        for number, batch in self._ready:
            producer.produce({(self._topic, number): batch})
            size += len(batch.payload)
            while producer.full:
                await signal.wait(1.0)
                producer.check()
            if size >= TRANSACTION_BYTES:
                await producer.commit("bench-limits", {})
                size = 0
        await producer.commit("bench-limits", {})
