"""Appends the source offset to each record, as a header.

Invariant: the header comes after every other one and holds the source offset as 8 bytes, big-endian; a
record's own headers are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from isthmus.records.kernels_cache import READ_BYTES, kernel
from isthmus.records.model import Records
from isthmus.records.wire import copy_bytes, write_int64
from isthmus.rules import Identities
from isthmus.rules.encode import encode_number
from isthmus.rules.listed import Lists, is_listed

#: After every rule that may look at a record's headers or drop it.
ORDER = 900


@kernel(f"void(int64[::1], {READ_BYTES}, {READ_BYTES}, int64[::1], int32[::1], uint8[::1], int64[::1], int32[::1])")
def append_offsets(
    offset: Any,
    prefix: Any,
    tail: Any,
    tail_start: Any,
    tail_count: Any,
    new_tail: Any,
    new_start: Any,
    new_count: Any,
) -> None:
    """Each tail, then ``prefix``, then the offset."""
    at = 0
    for row in range(len(offset)):
        new_start[row] = at
        size = tail_start[row + 1] - tail_start[row]
        if size > 0:
            copy_bytes(new_tail, at, tail, tail_start[row], size)
            at += size
        copy_bytes(new_tail, at, prefix, 0, len(prefix))
        at = write_int64(new_tail, at + len(prefix), offset[row])
        new_count[row] = tail_count[row] + 1
    new_start[len(offset)] = at


@dataclass(frozen=True)
class OffsetHeader:
    """The rule, with the header's name."""

    name: str
    touches_records = True

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records with one more header each."""
        name = self.name.encode()
        prefix = np.frombuffer(encode_number(len(name)) + name + encode_number(8), np.uint8)
        count = len(records)
        tail = np.empty(int(records.tail_start[count]) + count * (len(prefix) + 8), np.uint8)
        start = np.empty(count + 1, np.int64)
        counts = np.empty(count, np.int32)
        append_offsets(
            records.offset, prefix, records.tail, records.tail_start, records.tail_count, tail, start, counts
        )
        return records.with_columns(tail=tail, tail_start=start, tail_count=counts)


class _Headers(Protocol):
    offset: str | None


class _Link(Lists, Protocol):
    headers: _Headers


def build(link: _Link, ids: Identities) -> OffsetHeader | None:
    """The rule of a link, unless its header is switched off, or the link re-seeds a site."""
    name = None if is_listed(link, "invert") else link.headers.offset
    return OffsetHeader(name) if name else None
