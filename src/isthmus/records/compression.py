"""The four codecs of record batches, into memory that is reused.

Invariant: inflating is bounded. However small the compressed bytes, at most ``MOST_INFLATED`` come out
of one batch, and memory grows by doubling only after the codec has really filled what it had.

What is written can be read by every client: gzip, one zstd frame, snappy in the framing of the Java
client (librdkafka reads it too), and lz4 frames of independent 64 KiB blocks, because the Java client
refuses the linked blocks that most lz4 libraries, cramjam among them, make by default. What is read is
more: raw snappy and any lz4 frame.
"""

from __future__ import annotations

from typing import Any

import cramjam
import numpy as np

from isthmus.records.model import Bytes

#: An array of bytes where a buffer is asked for; the type checker knows only from Python 3.12 on that
#: these are the same.
Buffer = Any

#: Room for the largest batches in use (100 MB compressed are rare enough), and small enough to refuse
#: a few kilobytes that would inflate to fill an executor.
MOST_INFLATED = 512 << 20

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

#: The batches we write are larger than most that we read, so level 1 gives about the size that a
#: producer's level 6 gave, ten times faster.
GZIP_LEVEL = 1
#: The default of the Java client; level 1 was not noticeably faster.
ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK = 32 << 10  # what the Java client writes

# Magic, version 1 with independent blocks, blocks of at most 64 KiB, and the checksum of these two.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 1 << 31  # set in a block's size when the block is not compressed


class InflateError(Exception):
    """Compressed bytes that do not inflate, or that inflate to too much."""


class _OutputFullError(Exception):
    """The output is too small."""


class Inflater:
    """Inflates several batches one after another into one growing buffer."""

    def __init__(self, capacity: int = 8 << 20, most: int = MOST_INFLATED) -> None:
        self._least = capacity
        self._most = most
        self._buffer = np.empty(capacity, np.uint8)
        self._used = 0

    @property
    def used(self) -> int:
        """How many bytes have been inflated since ``clear``."""
        return self._used

    def clear(self) -> None:
        """Forget what was inflated, and give back memory that only a giant batch needed."""
        self._used = 0
        if len(self._buffer) > 8 * self._least:
            self._buffer = np.empty(self._least, np.uint8)

    def inflated(self) -> Bytes:
        """Everything inflated since ``clear``; valid until the next ``inflate``."""
        return self._buffer[: self._used]

    def inflate(self, codec: int, source: Bytes) -> tuple[int, int]:
        """Append what ``source`` inflates to; where it starts and ends. Raises ``InflateError``."""
        start = self._used
        while True:
            room = self._buffer[start : start + self._most]
            try:
                self._used = start + _inflate_into(codec, source, room)
            except _OutputFullError:
                if len(room) >= self._most:
                    raise InflateError(
                        f"it inflates to more than {self._most} bytes (max_inflated on the link)"
                    ) from None
                grown = np.empty(min(2 * len(self._buffer), start + self._most), np.uint8)
                grown[:start] = self._buffer[:start]
                self._buffer = grown
            else:
                return start, self._used


def _inflate_into(codec: int, source: Buffer, out: Buffer) -> int:
    try:
        if codec == GZIP:
            return int(cramjam.gzip.decompress_into(source, out))
        if codec == LZ4:
            return int(cramjam.lz4.decompress_into(source, out))
        if codec == ZSTD:
            return int(cramjam.zstd.decompress_into(source, out))
        return _unsnap_into(source, out)
    except cramjam.DecompressionError as error:
        if "failed to write whole buffer" in str(error):
            raise _OutputFullError from None
        raise InflateError(str(error)) from None


def _unsnap_into(source: Buffer, out: Buffer) -> int:
    if source[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
        return _unsnap_block_into(source, out)
    at, filled = len(_XERIAL_HEADER), 0
    while at < len(source):
        size = int.from_bytes(source[at : at + 4].tobytes(), "big")
        at += 4
        if size > len(source) - at:
            raise InflateError(f"a snappy block of {size} bytes runs past the end")
        filled += _unsnap_block_into(source[at : at + size], out[filled:])
        at += size
    return filled


def _unsnap_block_into(block: Buffer, out: Buffer) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(out):
        raise _OutputFullError
    return int(cramjam.snappy.decompress_raw_into(block, out))


def deflated_bound(size: int) -> int:
    """Room that is enough to compress ``size`` bytes with any codec."""
    return size + size // 4 + 4096


def deflate(codec: int, source: Buffer, out: Buffer) -> int:
    """Compress ``source`` into ``out``, which has ``deflated_bound`` bytes; how many were written."""
    if codec == GZIP:
        return int(cramjam.gzip.compress_into(source, out, level=GZIP_LEVEL))
    if codec == ZSTD:
        return int(cramjam.zstd.compress_into(source, out, level=ZSTD_LEVEL))
    if codec == SNAPPY:
        return _snap_into(source, out)
    return _lz4_into(source, out)


def _put(out: Buffer, at: int, piece: bytes) -> int:
    out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
    return at + len(piece)


def _snap_into(source: Buffer, out: Buffer) -> int:
    at = _put(out, 0, _XERIAL_HEADER)
    for start in range(0, len(source), _XERIAL_BLOCK):
        size = cramjam.snappy.compress_raw_into(source[start : start + _XERIAL_BLOCK], out[at + 4 :])
        at = _put(out, at, size.to_bytes(4, "big")) + size
    return at


def _lz4_into(source: Buffer, out: Buffer) -> int:
    at = _put(out, 0, _LZ4_HEADER)
    for start in range(0, len(source), _LZ4_BLOCK):
        block = source[start : start + _LZ4_BLOCK]
        size = cramjam.lz4.compress_block_into(block, out[at + 4 :], store_size=False)
        if size < len(block):
            at = _put(out, at, size.to_bytes(4, "little")) + size
        else:
            at = _put(out, at, (len(block) | _LZ4_STORED).to_bytes(4, "little"))
            out[at : at + len(block)] = block
            at += len(block)
    return _put(out, at, b"\x00\x00\x00\x00")
