"""Record batches made and read by code that Isthmus does not share.

Invariant: nothing here uses the kernels. ``make`` and ``read_plain`` are the format written down as
plainly as possible; the other readers and makers belong to kafka-python and aiokafka; the codecs are
other libraries than the one under test wherever there is one.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import aiokafka.record.default_records as aio
import google_crc32c
import lz4.frame
import pyarrow as pa
import zstandard
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
HEAD = struct.Struct(">qiibIhiqqqhii")
Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Rec:
    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[Header, ...] = ()


def varint(value: int) -> bytes:
    bits = (value << 1) ^ (value >> 63)
    bits &= (1 << 64) - 1
    encoded = bytearray()
    while bits > 0x7F:
        encoded.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*encoded, bits])


def sized(piece: bytes | None) -> bytes:
    return varint(-1) if piece is None else varint(len(piece)) + piece


def wrapped(number: int) -> int:
    """A sum as 64 bits have it, which is how Java adds times; Python's numbers do not run over."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def record_bytes(rec: Rec, base_offset: int, base_timestamp: int) -> bytes:
    delta = wrapped(rec.timestamp - base_timestamp)
    body = b"\0" + varint(delta) + varint(rec.offset - base_offset) + sized(rec.key) + sized(rec.value)
    body += varint(len(rec.headers))
    for key, value in rec.headers:
        body += sized(key) + sized(value)
    return varint(len(body)) + body


def snappy_xerial(data: bytes) -> bytes:
    pieces = [b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), 32768):
        block = pa.compress(data[start : start + 32768], codec="snappy", asbytes=True)
        pieces.append(struct.pack(">i", len(block)) + block)
    return b"".join(pieces)


COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: lambda data: gzip.compress(data, mtime=0),
    2: snappy_xerial,
    3: lambda data: lz4.frame.compress(data, block_linked=False, store_size=False),  # as Java: no size
    4: lambda data: zstandard.ZstdCompressor().compress(data),
}


def decompress(codec: int, data: bytes) -> bytes:
    if codec == 0:
        return data
    if codec == 1:
        return gzip.decompress(data)
    if codec == 3:
        return lz4.frame.decompress(data)
    if codec == 4:
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    at, pieces = 16, []
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        block = data[at + 4 : at + 4 + size]
        length, shift, byte = 0, 0, 0
        while True:  # pyarrow wants the length that the block starts with
            length |= (block[byte] & 0x7F) << shift
            if block[byte] < 0x80:
                break
            shift, byte = shift + 7, byte + 1
        pieces.append(pa.decompress(block, decompressed_size=length, codec="snappy", asbytes=True))
        at += 4 + size
    return b"".join(pieces)


def seal(
    region: bytes,
    *,
    base_offset: int = 0,
    last_delta: int,
    count: int,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch around a records region, with a right checksum."""
    head = HEAD.pack(
        base_offset,
        len(region) + 49,
        7,
        2,
        0,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        *producer,
        count,
    )
    return reseal(head + region)


def reseal(batch: bytes) -> bytes:
    """The batch with the checksum that its bytes give."""
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def make(
    records: Sequence[Rec],
    *,
    codec: int = 0,
    base_offset: int | None = None,
    last_offset: int | None = None,
    log_append_time: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compress: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """A batch with any offsets, times and attributes, also those that no client would send."""
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    base_timestamp = records[0].timestamp if records else -1
    max_timestamp = max((rec.timestamp for rec in records), default=-1)
    attributes |= codec
    if log_append_time is not None:
        max_timestamp, attributes = log_append_time, attributes | 0x08
    region = b"".join(record_bytes(rec, base_offset, base_timestamp) for rec in records)
    return seal(
        (compress or COMPRESS[codec])(region),
        base_offset=base_offset,
        last_delta=last_offset - base_offset,
        count=len(records),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer=producer,
    )


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    rec = Rec(offset, 5, struct.pack(">hh", 0, 1 if commit else 0), struct.pack(">hi", 0, 1))
    return make([rec], attributes=0x30, producer=(producer_id, 0, -1))


def make_kafka_python(records: Sequence[Rec], codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
    for delta, rec in enumerate(records):
        headers = [(key.decode(), value) for key, value in rec.headers]
        assert builder.append(delta, rec.timestamp, rec.key, rec.value, headers)
    return struct.pack(">q", records[0].offset) + bytes(builder.build())[8:]


def make_aiokafka(records: Sequence[Rec], codec: int = 0) -> bytes:
    builder = aio.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for delta, rec in enumerate(records):
        headers = [(key.decode(), value) for key, value in rec.headers]
        assert builder.append(delta, rec.timestamp, rec.key, rec.value, headers) is not None
    return struct.pack(">q", records[0].offset) + bytes(builder.build())[8:]


def _encoded(headers: Iterable[tuple[str, bytes | None]]) -> tuple[Header, ...]:
    return tuple((key.encode(), None if value is None else bytes(value)) for key, value in headers)


def read_kafka_python(batch: bytes) -> list[Rec]:
    batches = MemoryRecords(batch)
    read = batches.next_batch()
    assert read.validate_crc()
    records = [Rec(rec.offset, wrapped(rec.timestamp), rec.key, rec.value, _encoded(rec.headers)) for rec in read]
    assert not batches.has_next()
    return records


def read_aiokafka(batch: bytes) -> list[Rec]:
    read = aio.DefaultRecordBatch(batch)
    assert read.validate_crc()
    return [Rec(rec.offset, rec.timestamp, rec.key, rec.value, _encoded(rec.headers)) for rec in read]


class _Bytes:
    """A cursor over a records region."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        bits = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (bits >> 1) ^ -(bits & 1)
            shift += 7

    def piece(self) -> bytes | None:
        size = self.number()
        if size < 0:
            assert size == -1
            return None
        found = self.data[self.at : self.at + size]
        assert len(found) == size
        self.at += size
        return found


def read_plain(batch: bytes) -> list[Rec]:
    """Also reads keys of headers that are not text, which the other two refuse."""
    (base, length, _, magic, crc, attributes, last, base_ts, max_ts, _, _, _, count) = HEAD.unpack_from(batch)
    assert magic == 2
    assert length == len(batch) - 12
    assert crc == google_crc32c.value(batch[21:])
    region = _Bytes(decompress(attributes & 7, batch[61:]))
    records = []
    for _ in range(count):
        size = region.number()
        start = region.at
        assert region.data[region.at] == 0
        region.at += 1
        timestamp = wrapped(base_ts + region.number())
        if attributes & 8:
            timestamp = max_ts
        offset = base + region.number()
        key, value = region.piece(), region.piece()
        headers = []
        for _ in range(region.number()):
            name = region.piece()
            assert name is not None
            headers.append((name, region.piece()))
        assert region.at == start + size
        records.append(Rec(offset, timestamp, key, value, tuple(headers)))
    assert region.at == len(region.data)
    assert not records or records[-1].offset <= base + last
    return records


READERS = (read_plain, read_kafka_python, read_aiokafka)


def renumbered(records: Iterable[Rec]) -> list[Rec]:
    """As they are in one outgoing batch: offsets from 0."""
    return [replace(rec, offset=offset) for offset, rec in enumerate(records)]


def with_offset_header(records: Iterable[Rec], name: bytes) -> list[Rec]:
    return [replace(rec, headers=(*rec.headers, (name, struct.pack(">q", rec.offset)))) for rec in records]


def runs_of(offsets: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and runs[-1][0] + runs[-1][1] == offset:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    return runs
