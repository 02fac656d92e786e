"""Fetched bytes of one partition -> batches ready for Produce.

    Reader ─┬─► a batch that passes unopened ──────┐
            └─► records ─► rules ─► Writer ────────┴─► Outgoing

Invariant: order is the source's order, and every offset below ``Copied.next_offset`` is accounted for:
in a batch, dropped by a rule, aborted, skipped, or never a record. ``feed`` does not raise for bad data:
what stopped it is a value, and what was before it has been copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from isthmus.errors import PartitionFault
from isthmus.records import faults, layout, scan
from isthmus.records.compression import MOST_INFLATED
from isthmus.records.gather import KEEP_CODEC
from isthmus.records.model import Bytes, Longs, Records, read_only
from isthmus.records.outgoing import Outgoing
from isthmus.records.read import Fetched, Group, Reader
from isthmus.records.rule import Rule
from isthmus.records.write import Writer, write_header

#: The brokers' default of ``message.max.bytes``.
DEFAULT_MAX_BYTES = 1048588


@dataclass(slots=True)
class Copied:
    """What became of fetched bytes."""

    next_offset: int
    """The position after everything that was dealt with; where the fault is, if there is one."""
    batches: list[Outgoing] = field(default_factory=list)
    records: int = 0
    """Records in ``batches``."""
    source_bytes: int = 0
    """Bytes of the source batches that were dealt with."""
    dropped: int = 0
    """Records that rules dropped."""
    skipped: int = 0
    """Corrupt or old *batches* that were left out."""
    aborted: int = 0
    """Records of aborted transactions."""
    fault: PartitionFault | None = None


class Transcoder:
    """Turns fetched bytes into batches to produce. One for each task; not for several threads.

    ``compression`` is ``keep`` or a codec's name; ``on_corrupt`` is ``stop`` or ``skip``; ``max_inflated``, what a batch may become.
    """

    def __init__(
        self,
        rules: tuple[Rule, ...],
        compression: str = "keep",
        on_corrupt: str = "stop",
        max_inflated: int = MOST_INFLATED,
    ) -> None:
        if compression != "keep" and compression not in layout.CODECS:
            raise ValueError(f"compression is keep or one of {layout.CODECS}, not {compression!r}")
        if on_corrupt not in ("stop", "skip"):
            raise ValueError(f"on_corrupt is stop or skip, not {on_corrupt!r}")
        self._rules = tuple(rule for rule in rules if rule.touches_records)
        self._codec = KEEP_CODEC if compression == "keep" else layout.CODECS.index(compression)
        self._reader = Reader(on_corrupt == "skip", max_inflated)
        self._writer = Writer()

    def feed(
        self,
        data: bytes | bytearray | memoryview,
        *,
        topic: str,
        partition: int,
        position: int,
        aborted: Sequence[tuple[int, int]] = (),
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> Copied:
        """Copy every complete batch of ``data``, from source offset ``position`` on.

        ``aborted`` holds (producer id, first offset) of aborted transactions as Fetch returns them, and
        ``max_bytes`` is what the destination topic takes in one batch.
        """
        copied = Copied(next_offset=position)
        source = read_only(np.frombuffer(data, np.uint8))
        fetched = Fetched(topic, partition, position, source, aborted)
        for group in self._reader.groups(fetched, not self._rules, self._codec, max_bytes):
            if group.unopened is not None:
                self._pass(source, group.unopened, copied)
            elif group.records is not None and len(group.records):
                self._rewrite(group.records, group, max_bytes, copied)
            if copied.fault is not None:  # a rule failed, or a record is too large
                break
            copied.next_offset = group.next_offset
            copied.source_bytes += group.source_bytes
            copied.skipped += group.skipped
            copied.aborted += group.aborted
            copied.fault = group.fault
        return copied

    def _pass(self, source: Bytes, row: Longs, copied: Copied) -> None:
        """Copy a batch unopened."""
        payload = source[row[scan.AT] : row[scan.END]].copy()
        base_offset, count = int(row[scan.BASE_OFFSET]), int(row[scan.COUNT])
        codec = int(row[scan.ATTRIBUTES]) & layout.CODEC_BITS
        write_header(payload, codec, count, int(row[scan.BASE_TIMESTAMP]), int(row[scan.MAX_TIMESTAMP]))
        runs = np.array([[base_offset, count]], np.int64)
        copied.batches.append(Outgoing(payload, count, runs, base_offset + count))
        copied.records += count

    def _rewrite(self, indexed: Records, group: Group, max_bytes: int, copied: Copied) -> None:
        """Apply the rules and write what is left."""
        records = indexed
        for rule in self._rules:
            try:
                records = rule.apply(records)
                if not isinstance(records, Records):
                    raise TypeError(f"expected Records, found {type(records).__name__}")
            except PartitionFault as fault:
                copied.fault = fault
                return
            except Exception as error:
                copied.fault = faults.rule_failed(repr(rule), indexed, f"{type(error).__name__}: {error}")
                return
        codec = group.codec if self._codec == KEEP_CODEC else self._codec
        written = 0
        for item in self._writer.batches(records, codec, max_bytes, group.next_offset):
            if isinstance(item, PartitionFault):
                copied.fault = item
                copied.next_offset = item.offset
                break
            copied.batches.append(item)
            written += item.count
        else:
            copied.next_offset = group.next_offset
        copied.records += written
        copied.dropped += int(np.searchsorted(indexed.offset, copied.next_offset)) - written
