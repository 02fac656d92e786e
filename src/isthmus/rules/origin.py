"""Stamps where a record was born, as a header.

Invariants:
- a record that has a header of this name keeps it, whatever it holds, and gets no other: the first origin wins and travels on;
- the header comes after all others that the record has; the offset header comes after it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from isthmus.config.origin import Origin
from isthmus.records.kernels_cache import READ_BYTES, kernel
from isthmus.records.model import Records
from isthmus.records.wire import copy_bytes
from isthmus.rules import Identities
from isthmus.rules.born import as_bytes, encode_birth, encode_header, find_header
from isthmus.rules.listed import Lists, is_listed

#: After rules of users, which see what the source has; right before the offset header.
ORDER = 800


@kernel(
    f"int64({READ_BYTES}, int32[::1], int32[::1], int32[::1], uint8[::1], {READ_BYTES}, int64[::1], int32[::1],"
    f" {READ_BYTES}, {READ_BYTES}, uint8[::1], int64[::1], int32[::1])"
)
def append_origin(
    data: Any,
    start: Any,
    end: Any,
    count: Any,
    dropped: Any,
    tail: Any,
    tail_start: Any,
    tail_count: Any,
    name: Any,
    header: Any,
    new_tail: Any,
    new_start: Any,
    new_count: Any,
) -> int:
    """Each tail, then ``header`` where the record has none of this ``name``; how many got it."""
    at = 0
    stamped = 0
    for row in range(len(start)):
        new_start[row] = at
        new_count[row] = tail_count[row]
        if dropped[row]:
            new_count[row] = 0
            continue
        size = tail_start[row + 1] - tail_start[row]
        if size > 0:
            copy_bytes(new_tail, at, tail, tail_start[row], size)
            at += size
        if count[row] > 0:
            found, _, _, _ = find_header(data, start[row], end[row], count[row], name)
            if found >= 0:
                continue
        if tail_count[row] > 0:
            found, _, _, _ = find_header(tail, tail_start[row], tail_start[row + 1], tail_count[row], name)
            if found >= 0:
                continue
        copy_bytes(new_tail, at, header, 0, len(header))
        at += len(header)
        new_count[row] += 1
        stamped += 1
    new_start[len(start)] = at
    return stamped


@dataclass(frozen=True)
class OriginHeader:
    """The rule: the header, its style, and the site whose records it stamps. ``cluster_id`` is empty where the style needs none,
    or where it is not known yet."""

    header: str
    style: str
    site: str
    cluster_id: str = ""
    touches_records = True

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records that all have an origin."""
        if self.style != "site" and not self.cluster_id:
            raise ValueError(f"the cluster id of site {self.site} is not known, which header {self.header} is to hold")
        name = as_bytes(self.header.encode())
        now = time.time_ns() // 1_000_000
        header = encode_header(self.header, encode_birth(self.style, self.site, self.cluster_id, records.topic, now))
        count = len(records)
        tail = np.empty(int(records.tail_start[count]) + count * len(header), np.uint8)
        start = np.empty(count + 1, np.int64)
        counts = np.empty(count, np.int32)
        stamped = append_origin(
            records.data,
            records.headers_start,
            records.headers_end,
            records.headers_count,
            records.dropped,
            records.tail,
            records.tail_start,
            records.tail_count,
            name,
            header,
            tail,
            start,
            counts,
        )
        return records.with_columns(tail=tail, tail_start=start, tail_count=counts) if stamped else records


class _Link(Lists, Protocol):
    source: str
    origin: Origin | None


def build(link: _Link, ids: Identities) -> OriginHeader | None:
    """The rule of a link that stamps, unless it re-seeds a site."""
    if link.origin is None or is_listed(link, "invert"):
        return None
    needs_id = link.origin.value != "site"
    cluster_id = ids.source[-1] if needs_id and ids.source else ""
    return OriginHeader(link.origin.header, link.origin.value, link.source, cluster_id)
