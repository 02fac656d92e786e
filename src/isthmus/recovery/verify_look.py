"""A closer look at single records that are wrong: what should stand there, and what does.

Invariant: at most a few records are looked at, whatever the damage; what is shown of a record is short and printable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import kafka.errors as kerrors
import numpy as np

from isthmus.errors import IsthmusError, PartitionFault
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import FetchProblem
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import Partition
from isthmus.records.model import Bytes, Records
from isthmus.recovery.verify_compare import Offender
from isthmus.recovery.verify_read import Errand, Side, apply_rules, rules_of
from isthmus.recovery.verify_report import Found, shown
from isthmus.recovery.verify_units import Pair
from isthmus.rules import Rule

LONGEST = 96
LOOK_SECONDS = 10.0

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A record, whole."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers

    def to_json(self) -> dict[str, str]:
        headers = "; ".join(f"{name}={printable(value)}" for name, value in self.headers)
        return {
            "key": printable(self.key),
            "value": printable(self.value),
            "timestamp": str(self.timestamp),
            "headers": headers if len(headers) <= 4 * LONGEST else headers[: 4 * LONGEST] + "...",
        }


def printable(data: bytes | None) -> str:
    """Bytes as short text: as UTF-8 where they are that, else in hexadecimal."""
    if data is None:
        return "null"
    try:
        text = data.decode()
        good = text.isprintable()
    except UnicodeDecodeError:
        good = False
    if not good:
        text = "0x" + data[:LONGEST].hex()
    if len(text) > LONGEST:
        return f"{text[:LONGEST]}... ({len(data)} bytes)"
    return text


async def look(
    source: Cluster, target: Cluster, errand: Errand, offenders: Iterable[tuple[Pair, Offender]]
) -> list[Found]:
    """Each of these, shown."""
    chosen = list(offenders)
    if not chosen:
        return []
    signal = Signal(source.loop)
    here = _Eye(Side(source, {pair.topic for pair, _ in chosen}, signal, errand.link), signal, rules_of(errand))
    there = _Eye(Side(target, {pair.target_topic for pair, _ in chosen}, signal, errand.link), signal, ())
    try:
        return [await _show(here, there, errand, pair, offender) for pair, offender in chosen]
    finally:
        here.side.fetcher.stop()
        there.side.fetcher.stop()


async def _show(here: _Eye, there: _Eye, errand: Errand, pair: Pair, offender: Offender) -> Found:
    found = shown(pair, offender)
    try:
        expected = await here.see(pair.source, found.source_offset) if found.source_offset >= 0 else None
        present = await there.see(pair.target, found.target_offset) if found.target_offset >= 0 else None
    except (IsthmusError, kerrors.KafkaError, OSError):
        return found  # the verdict stands without the picture
    found.expected = expected.to_json() if expected is not None else {}
    found.found = present.to_json() if present is not None else {}
    if expected is not None and present is not None and offender.kind in ("altered", "out_of_order"):
        found.differs = differences(expected, present, errand, found.source_offset)
    return found


def differences(expected: Seen, present: Seen, errand: Errand, offset: int) -> list[str]:
    """Which parts of a copy are not what they should be."""
    link = errand.link
    headers = list(expected.headers)
    own: list[str] = []
    left = list(present.headers)
    if link.origin is not None and all(name != link.origin.header for name, _ in headers):
        stamped = next((n for n, (name, _) in enumerate(left) if name == link.origin.header), None)
        value = left.pop(stamped)[1] if stamped is not None else None
        born = (value or b"").split(b",")[0].decode(errors="replace")
        if born not in (link.source, *errand.identities.source):
            own.append("origin header")
    if link.headers.offset is not None:
        last = next((n for n in reversed(range(len(left))) if left[n][0] == link.headers.offset), None)
        value = left.pop(last)[1] if last is not None else None
        if value != offset.to_bytes(8, "big"):
            own.append("offset header")
    parts = [name for name in ("key", "value", "timestamp") if getattr(expected, name) != getattr(present, name)]
    return parts + (["headers"] if headers != left else []) + own


class _Eye:
    """Reads single records of one side."""

    def __init__(self, side: Side, signal: Signal, rules: tuple[Rule, ...]) -> None:
        self.side, self._signal, self._rules = side, signal, rules
        self._started = False

    async def see(self, partition: Partition, offset: int) -> Seen | None:
        """The record at an offset, after the rules; None if there is none."""
        fetcher = self.side.fetcher
        if not self._started:
            self._started = True
            await self.side.start()
        fetcher.seek(partition, offset)
        deadline = time.monotonic() + LOOK_SECONDS
        try:
            while time.monotonic() < deadline:
                piece = fetcher.take()
                if piece is None:
                    await self._signal.wait(0.2)
                elif isinstance(piece, FetchProblem):
                    return None
                else:
                    for group in self.side.groups(piece):
                        records = group.records
                        if records is not None and len(records) and records.offset[-1] >= offset:
                            return self._one(records, offset)
                        if group.next_offset > offset or group.fault is not None:
                            return None
        finally:
            fetcher.drop(partition)
        return None

    def _one(self, records: Records, offset: int) -> Seen | None:
        if int(records.offset[np.searchsorted(records.offset, offset)]) != offset:
            return None
        try:
            made = apply_rules(self._rules, records)
        except PartitionFault:
            return None
        at = int(np.searchsorted(made.offset, offset))
        if at >= len(made) or made.offset[at] != offset:
            made, at = records, int(np.searchsorted(records.offset, offset))  # rules drop it: as it is, then
        return record_of(made, at)


def record_of(records: Records, row: int) -> Seen:
    """One row of columns as a record."""

    def part(start: int, length: int) -> bytes | None:
        return None if length < 0 else records.data[start : start + length].tobytes()

    headers, at = [], int(records.headers_start[row])
    for _ in range(int(records.headers_count[row])):
        length, at = _number(records.data, at)
        name, at = records.data[at : at + length].tobytes().decode(errors="replace"), at + length
        length, at = _number(records.data, at)
        headers.append((name, part(at, length)))
        at += max(0, length)
    return Seen(
        part(int(records.key_start[row]), int(records.key_length[row])),
        part(int(records.value_start[row]), int(records.value_length[row])),
        int(records.timestamp[row]),
        tuple(headers),
    )


def _number(data: Bytes, at: int) -> tuple[int, int]:
    """The zigzag varint at a place, and the place after it."""
    bits = shift = 0
    while True:
        byte = int(data[at])
        at += 1
        bits |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (bits >> 1) ^ -(bits & 1), at
