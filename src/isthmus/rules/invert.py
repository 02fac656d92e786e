"""Gives a lost site its records back as they were there: for re-seeding it from a survivor.

    at the survivor                         comes out
    born at the lost site                   without the origin header, and without offset headers behind it
    without an origin header                with the survivor as its origin, and the offset header
    any other origin, or unreadable         as it is, with the offset header

Invariants:
- only headers go that links of ours have added: the first origin header, and offset headers (8 bytes) that stand behind it. All others stay
  as they are, in order;
- a link that lists this rule has no other rule for origins, loops and offsets.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from isthmus.config.built_in_rules import BUILT_IN, STYLES
from isthmus.config.origin import ORIGIN_HEADER, Origin
from isthmus.errors import ConfigError
from isthmus.records.kernels_cache import READ_BYTES, kernel
from isthmus.records.model import Bytes, Longs, Records
from isthmus.records.wire import copy_bytes, read_varint, write_int64
from isthmus.rules import Identities
from isthmus.rules.born import (
    PROVENANCE,
    among,
    as_bytes,
    encode_birth,
    encode_header,
    next_header,
    packed,
    same_bytes,
    split_provenance,
)
from isthmus.rules.encode import encode_number
from isthmus.rules.listed import Lists, options_of

#: Where the rules stand that it replaces: after rules of users and schema ids.
ORDER = 850
LISTED = True


@kernel(
    f"void(int64[::1], {READ_BYTES}, int32[::1], int32[::1], int32[::1], uint8[::1], {READ_BYTES}, int64[::1], int32[::1],"
    f" {READ_BYTES}, boolean, {READ_BYTES}, int64[::1], {READ_BYTES}, {READ_BYTES}, {READ_BYTES},"
    " uint8[::1], int64[::1], int32[::1], int32[::1], int32[::1])"
)
def invert_headers(
    offset: Any,
    data: Any,
    start: Any,
    end: Any,
    count: Any,
    dropped: Any,
    tail: Any,
    tail_start: Any,
    tail_count: Any,
    name: Any,
    parts: Any,
    lost: Any,
    lost_start: Any,
    offset_name: Any,
    origin_header: Any,
    offset_prefix: Any,
    new_tail: Any,
    new_start: Any,
    new_count: Any,
    new_end: Any,
    new_own: Any,
) -> None:
    """New tails, and where a record's own headers end from now on. ``offset_name`` is empty if there is no such header."""
    at = 0
    for row in range(len(start)):
        new_start[row] = at
        new_count[row] = 0
        new_end[row] = end[row]
        new_own[row] = count[row]
        if dropped[row]:
            continue
        found = False  # an origin
        home = False  # of the lost site
        for side in range(2):
            text = data if side == 0 else tail
            place = np.int64(start[row]) if side == 0 else tail_start[row]
            stop = np.int64(end[row]) if side == 0 else tail_start[row + 1]
            headers = count[row] if side == 0 else tail_count[row]
            for number in range(headers):
                key, value, length, after = next_header(text, place, stop)
                size, _ = read_varint(text, place, stop)
                kept = True
                if not found:
                    if size == len(name) and same_bytes(text, key, name, 0, size):
                        found = True
                        id_length = length
                        if parts:
                            id_length, _, _ = split_provenance(text, value, length)
                        home = id_length > 0 and among(text, value, id_length, lost, lost_start)
                        if home and side == 0:
                            new_end[row] = place
                            new_own[row] = number
                        kept = not home
                elif home:
                    kept = not (
                        length == 8
                        and len(offset_name) > 0
                        and size == len(offset_name)
                        and same_bytes(text, key, offset_name, 0, size)
                    )
                # Own headers stay where they are, up to the one that goes.
                if kept and (side == 1 or home):
                    copy_bytes(new_tail, at, text, place, after - place)
                    at += after - place
                    new_count[row] += 1
                place = after
        if home:
            continue
        if not found:
            copy_bytes(new_tail, at, origin_header, 0, len(origin_header))
            at += len(origin_header)
            new_count[row] += 1
        if len(offset_name) > 0:
            copy_bytes(new_tail, at, offset_prefix, 0, len(offset_prefix))
            at = write_int64(new_tail, at + len(offset_prefix), offset[row])
            new_count[row] += 1
    new_start[len(start)] = at


@dataclass(frozen=True)
class Invert:
    """The rule. ``lost`` holds every name under which the lost site stands in headers: its site name, or all its cluster ids."""

    header: str
    style: str
    lost: tuple[str, ...]
    survivor: str
    survivor_id: str = ""
    offset: str | None = None
    _packed: tuple[Bytes, Longs] = field(init=False, repr=False, compare=False)
    touches_records = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_packed", packed(self.lost))

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records as they were at the lost site, or as the link from the survivor would have brought them there."""
        if self.style != "site" and not (self.survivor_id and self.lost):
            raise ValueError(f"the cluster ids are not known that header {self.header} holds")
        now = time.time_ns() // 1_000_000
        birth = encode_birth(self.style, self.survivor, self.survivor_id, records.topic, now)
        origin_header = encode_header(self.header, birth)
        offset_name = (self.offset or "").encode()
        prefix = encode_number(len(offset_name)) + offset_name + encode_number(8)
        count = len(records)
        own = int(np.sum(records.headers_end - records.headers_start, dtype=np.int64))
        room = int(records.tail_start[count]) + own + count * (len(origin_header) + len(prefix) + 8)
        tail = np.empty(room, np.uint8)
        start = np.empty(count + 1, np.int64)
        counts, ends, owns = np.empty((3, count), np.int32)
        invert_headers(
            records.offset,
            records.data,
            records.headers_start,
            records.headers_end,
            records.headers_count,
            records.dropped,
            records.tail,
            records.tail_start,
            records.tail_count,
            as_bytes(self.header.encode()),
            self.style == PROVENANCE,
            *self._packed,
            as_bytes(offset_name),
            origin_header,
            as_bytes(prefix),
            tail,
            start,
            counts,
            ends,
            owns,
        )
        return records.with_columns(
            tail=tail, tail_start=start, tail_count=counts, headers_end=ends, headers_count=owns
        )


class _Headers(Protocol):
    offset: str | None


class _Link(Lists, Protocol):
    source: str
    target: str
    headers: _Headers
    origin: Origin | None


def build(link: _Link, ids: Identities) -> Invert | None:
    """The rule, if the link lists it. What an option does not say is taken from the link. Raises ``ConfigError``."""
    options = options_of(link, "invert", BUILT_IN["invert"])
    if options is None:
        return None
    usual = link.origin or Origin(header=ORIGIN_HEADER)
    for option in ("lost", "survivor", "header"):
        if not isinstance(options.get(option, "text"), str) or options.get(option) == "":
            raise ConfigError(f"rules: invert: {option} is a name")
    style = options.get("value", usual.value)
    if style not in STYLES:
        raise ConfigError(f"rules: invert: value is one of {', '.join(STYLES)}")
    offset = options.get("offset", link.headers.offset)
    if offset in (None, False, "", "off"):
        offset = None
    elif not isinstance(offset, str):
        raise ConfigError("rules: invert: offset is the key of the offset header, or off")
    lost_ids = _ids(options, "lost_ids", ids.target)
    survivor_ids = _ids(options, "survivor_ids", ids.source)
    return Invert(
        header=options.get("header", usual.header),
        style=style,
        lost=(options.get("lost", link.target),) if style == "site" else lost_ids,
        survivor=options.get("survivor", link.source),
        survivor_id=survivor_ids[-1] if survivor_ids and style != "site" else "",
        offset=offset,
    )


def _ids(options: dict[str, Any], option: str, known: Sequence[str]) -> tuple[str, ...]:
    """Cluster ids, oldest first."""
    found = options.get(option, list(known))
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise ConfigError(f"rules: invert: {option} is a list of cluster ids, oldest first")
    return tuple(found)
