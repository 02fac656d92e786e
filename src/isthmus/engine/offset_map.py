"""The exact offset map: which source offset became which destination offset.

Form: *runs*. A run (source, target, length) says that ``length`` records with consecutive source offsets from
``source`` on stand at consecutive destination offsets from ``target`` on. Runs of one source partition are
kept in *chunks*: records of the link's compacted map topic, written in the transaction that writes the records
they describe. A chunk is rewritten under the same key while it is short, so compaction leaves one record for
many transactions.

Invariants:
- a run is in the map exactly if its records are in the destination: same transaction;
- within a chunk, source and target both ascend;
- a chunk hides every older chunk's runs at or after its own first source offset (an older chunk is one that
  stands earlier in the map topic): after a reset to an earlier position, the last copy is the one meant;
- what one transaction has to say of a partition is one chunk, or, where that would be too large for a record, several that
  ascend and stand in this order: the first hides what the whole would hide, each of the others only what lies behind its predecessor;
- a *position* (a chunk without runs, under the key ``POSITION``) says where copying goes on and hides nothing: a position may be set, and set
  back, before a record is copied from there;
- ``next`` of the newest chunk or position is the position from which copying goes on: the map alone can restore a link's
  progress when the broker has expired it.

Look-up of source offset o: the run that holds o gives its exact target; where o fell in a hole (compacted,
aborted, dropped), the next run's start does: the next record that exists. At or after the end, the answer is
the destination offset that follows the last copied record, and ``Place.copied`` is False.
"""

from __future__ import annotations

import struct
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import cramjam
import numpy as np
import numpy.typing as npt

from isthmus.kafka.cluster import NO_ID

Runs = npt.NDArray[np.int64]
_HEAD = struct.Struct(">B16sqqI")
_FORMAT = 1
# A chunk is rewritten by each transaction until it has this many runs: bounds both what a transaction writes
# for the map (about 200 bytes a partition) and what compaction leaves (some 3 bytes a run).
CHUNK_RUNS = 64
# Stands for the first offset in the key of a position: a partition has one of them at most.
POSITION = -1
# A chunk is one record; larger ones are cut, so that any topic takes them.
CHUNK_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class ChunkKey:
    topic: str
    partition: int
    source_id: uuid.UUID
    first: int

    def encode(self) -> bytes:
        return f"{self.topic}/{self.partition}/{self.source_id.hex}/{self.first}".encode()

    @classmethod
    def decode(cls, key: bytes) -> ChunkKey:
        topic, partition, source_id, first = key.decode().rsplit("/", 3)
        return cls(topic, int(partition), uuid.UUID(hex=source_id), int(first))


def encode_chunk(runs: Runs, first: int, next_offset: int, target_id: uuid.UUID) -> bytes:
    """Runs as differences, which are small and alike, then zstd."""
    flat = np.empty((len(runs), 3), np.int64)
    if len(runs):
        ends = runs[:-1, :2] + runs[:-1, 2:3]
        flat[0] = (runs[0, 0] - first, runs[0, 1], runs[0, 2])
        flat[1:, :2] = runs[1:, :2] - ends
        flat[1:, 2] = runs[1:, 2]
    body = bytes(cramjam.zstd.compress(np.ascontiguousarray(flat.T).tobytes(), level=1))
    return _HEAD.pack(_FORMAT, target_id.bytes, first, next_offset, len(runs)) + body


@dataclass(slots=True)
class Chunk:
    first: int
    next_offset: int
    target_id: uuid.UUID
    runs: Runs


def decode_chunk(value: bytes) -> Chunk:
    form, target_id, first, next_offset, count = _HEAD.unpack_from(value)
    if form != _FORMAT:
        raise ValueError(f"offset map written in form {form}; this version reads form {_FORMAT}")
    raw = bytes(cramjam.zstd.decompress(value[_HEAD.size :], output_len=count * 24)) if count else b""
    flat = np.frombuffer(raw, np.int64).reshape(3, count).T.copy()
    if count:
        # value[i] = end of run i-1 + difference = sum of differences and lengths so far
        lengths = np.concatenate(([0], np.cumsum(flat[:-1, 2])))
        flat[:, 0] = np.cumsum(flat[:, 0]) + lengths + first
        flat[:, 1] = np.cumsum(flat[:, 1]) + lengths
    return Chunk(first, next_offset, uuid.UUID(bytes=target_id), flat)


def join_runs(parts: list[Runs]) -> Runs:
    """One array of runs; runs that continue each other on both sides become one."""
    runs = np.concatenate(parts) if len(parts) > 1 else parts[0]
    if len(runs) < 2:
        return runs
    gap = (runs[1:, :2] != runs[:-1, :2] + runs[:-1, 2:3]).any(axis=1)
    starts = np.concatenate(([True], gap))
    heads = np.flatnonzero(starts)
    joined = runs[heads].copy()
    joined[:, 2] = np.add.reduceat(runs[:, 2], heads)
    return joined


class ChunkWriter:
    """Builds the map of one partition as transactions commit. Owned by one task for one lease."""

    def __init__(self, topic: str, partition: int, source_id: uuid.UUID, target_id: uuid.UUID) -> None:
        self._topic, self._partition = topic, partition
        self._source_id, self._target_id = source_id, target_id
        self._committed: list[Runs] = []
        self._rows = 0
        self._first: int | None = None
        self._staged: tuple[int, Runs] | None = None

    def stage(self, parts: list[Runs], position: int, next_offset: int) -> list[tuple[bytes, bytes]]:
        """The records to write for runs copied from ``position`` on; ``committed`` or ``forget`` must follow."""
        first = position if self._first is None else self._first
        runs = join_runs([*self._committed, *parts])
        self._staged = (first, runs)
        return self._cut(runs, first, next_offset)

    def _cut(self, runs: Runs, first: int, next_offset: int) -> list[tuple[bytes, bytes]]:
        body = encode_chunk(runs, first, next_offset, self._target_id)
        if len(body) > CHUNK_BYTES and len(runs) > 1:
            half = len(runs) // 2
            behind = int(runs[half, 0])
            return [*self._cut(runs[:half], first, behind), *self._cut(runs[half:], behind, next_offset)]
        return [(ChunkKey(self._topic, self._partition, self._source_id, first).encode(), body)]

    def committed(self) -> None:
        if self._staged is None:
            return
        first, runs = self._staged
        self._staged = None
        if len(runs) >= CHUNK_RUNS:
            self._first, self._committed = None, []
        else:
            self._first, self._committed = first, [runs]

    def forget(self) -> None:
        """The transaction failed or its end is unknown: the next one starts a chunk of its own."""
        self._staged = None
        self._first, self._committed = None, []


@dataclass(slots=True)
class Place:
    """Where a source offset is at the destination."""

    offset: int
    exact: bool
    copied: bool


@dataclass(slots=True)
class PartitionMap:
    """The map of one source partition in memory: ascending runs without overlap."""

    topic: str
    partition: int
    source_id: uuid.UUID = NO_ID
    target_id: uuid.UUID = NO_ID
    runs: Runs = field(default_factory=lambda: np.empty((0, 3), np.int64))
    next_offset: int = -1

    def translate(self, offset: int) -> Place:
        """One look-up, by bisection in place: it costs the same however long the map is."""
        runs = self.runs
        if not len(runs):
            return Place(-1, False, False)
        at = bisect_right(runs[:, 0], offset) - 1
        if at >= 0:
            source, target, length = runs[at].tolist()
            if offset < source + length:
                return Place(target + offset - source, True, True)
        if at + 1 < len(runs):
            return Place(int(runs[at + 1, 1]), False, True)
        return Place(int(runs[-1, 1] + runs[-1, 2]), False, False)

    def translate_many(
        self, offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Destination offsets, whether each is that very record, and whether it was copied at all."""
        runs = self.runs
        if not len(runs):
            nothing = np.zeros(len(offsets), np.bool_)
            return np.full(len(offsets), -1, np.int64), nothing, nothing
        at = np.searchsorted(runs[:, 0], offsets, side="right") - 1
        held = at >= 0
        safe = np.maximum(at, 0)
        inside = held & (offsets < runs[safe, 0] + runs[safe, 2])
        after = np.minimum(at + 1, len(runs) - 1)
        beyond = (at + 1 >= len(runs)) & ~inside
        end = runs[-1, 1] + runs[-1, 2]
        answer = np.where(inside, runs[safe, 1] + offsets - runs[safe, 0], np.where(beyond, end, runs[after, 1]))
        return answer, inside, ~beyond


def build_maps(
    records: Iterable[tuple[bytes, bytes | None]], only: Mapping[tuple[str, int], uuid.UUID] | None = None
) -> dict[tuple[str, int], PartitionMap]:
    """Maps from the map topic's records, in the order in which they stand in it; of the newest incarnation of each source topic, or of these."""
    newest: dict[bytes, tuple[int, bytes]] = {}
    for order, (raw, value) in enumerate(records):
        if value is None:
            newest.pop(raw, None)
        else:
            newest[raw] = (order, value)
    chunks: dict[tuple[str, int], list[tuple[int, ChunkKey, Chunk]]] = {}
    for raw, (order, body) in newest.items():
        key = ChunkKey.decode(raw)
        if only is not None and only.get((key.topic, key.partition)) != key.source_id:
            continue
        chunks.setdefault((key.topic, key.partition), []).append((order, key, decode_chunk(body)))
    maps: dict[tuple[str, int], PartitionMap] = {}
    for (topic, partition), found in chunks.items():
        found.sort(key=lambda entry: entry[0])
        source_id = found[-1][1].source_id
        parts: list[Runs] = []
        next_offset, target_id = -1, NO_ID
        for _, key, chunk in found:
            if key.source_id != source_id:
                continue  # an earlier incarnation of the source topic: its offsets mean other records
            while key.first != POSITION and parts and parts[-1][-1, 0] + parts[-1][-1, 2] > chunk.first:
                kept = _before(parts.pop(), chunk.first)
                if len(kept):
                    parts.append(kept)
                    break
            if len(chunk.runs):
                parts.append(chunk.runs)
            next_offset, target_id = chunk.next_offset, chunk.target_id
        runs = np.concatenate(parts) if parts else np.empty((0, 3), np.int64)
        maps[topic, partition] = PartitionMap(topic, partition, source_id, target_id, runs, next_offset)
    return maps


def _before(runs: Runs, offset: int) -> Runs:
    """The part of these runs that lies before a source offset."""
    kept = runs[runs[:, 0] < offset].copy()
    if len(kept):
        kept[-1, 2] = min(kept[-1, 2], offset - kept[-1, 0])
    return kept
