"""A batch that is ready for Produce, and the stamp that says who produces it.

Invariant: importing this brings no kernel, so that whoever only writes a few records of its own starts fast.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import google_crc32c

from isthmus.records import layout
from isthmus.records.model import Bytes, Longs

_PRODUCER_FIELDS = struct.Struct(">qhi")
_CHECKSUM = struct.Struct(">I")


@dataclass(slots=True)
class Outgoing:
    """One batch, ready for Produce but for what ``stamp`` writes."""

    payload: Bytes
    count: int
    runs: Longs
    """(first source offset, length) of runs of consecutive source offsets, in batch order."""
    next_offset: int
    """Every source offset below this is accounted for once the batch is in."""


def stamp(payload: Any, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool) -> None:
    """Write who produces the batch, then its checksum. May be done again with other values."""
    buffer = memoryview(payload)
    _PRODUCER_FIELDS.pack_into(buffer, layout.PRODUCER_ID, producer_id, producer_epoch, base_sequence)
    low = layout.ATTRIBUTES + 1  # the flag is in the second of the two bytes
    if transactional:
        buffer[low] |= layout.TRANSACTIONAL_BIT
    else:
        buffer[low] &= ~layout.TRANSACTIONAL_BIT & 0xFF
    _CHECKSUM.pack_into(buffer, layout.CRC, google_crc32c.value(payload[layout.ATTRIBUTES :]))
