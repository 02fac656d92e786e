"""Replaces the schema ids that records carry by the destination's.

A serialised key or value begins with a zero byte and its schema's id, 4 bytes, big-endian; what follows (Protobuf's message
indexes too) belongs to the payload and is left alone.

Invariants:
- only those 4 bytes change, so no length and no other byte of a record does;
- what does not begin like that is no schema payload: it passes, and is counted;
- an id is replaced only by what the table says. Ids that are not in it stop the batch (``UnknownSchemaIds``) until somebody
  has asked the registries; those that are nowhere to be had then stop the partition, pass, or are left out with their
  record, as the link says.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.config.built_in_rules import BUILT_IN, POLICIES
from isthmus.errors import ConfigError, UnknownSchemaIds
from isthmus.records.kernels_cache import kernel
from isthmus.records.model import Ints, Longs, Records
from isthmus.records.wire import read_uint32
from isthmus.rules import Identities
from isthmus.rules.listed import Lists, options_of

#: After rules of users, which see what the source has written; before the offset header.
ORDER = 700
LISTED = True

#: What the registries did not have is asked for again after this long: it may be registered at any time.
ABSENT_SECONDS = 60.0
#: An error names so many ids.
NAMED = 10

TRANSLATED, NOT_SCHEMA, MALFORMED, UNKNOWN = range(4)
COUNTS = ("translated", "not_schema", "malformed", "unknown")


@kernel("void(uint8[::1], int32[::1], int32[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def replace_ids(
    data: Any, start: Any, length: Any, dropped: Any, known: Any, becomes: Any, unknown: Any, counts: Any
) -> None:
    """Replace ids in place. ``known`` ascends; ``unknown`` gets the id of each row that has one which is not there, else
    -1."""
    for row in range(len(start)):
        unknown[row] = -1
        size = length[row]
        if size <= 0 or dropped[row]:
            continue
        at = start[row]
        if data[at] != 0:
            counts[NOT_SCHEMA] += 1
            continue
        if size < 5:
            counts[MALFORMED] += 1
            continue
        wanted = read_uint32(data, at + 1)
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            if known[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        if low < len(known) and known[low] == wanted:
            new = becomes[low]
            for place in range(4):
                data[at + 1 + place] = np.uint8((new >> (24 - 8 * place)) & 0xFF)
            counts[TRANSLATED] += 1
        else:
            unknown[row] = wanted
            counts[UNKNOWN] += 1


class IdTable:
    """Source id -> destination id, as far as it is known here. It grows while its task runs."""

    def __init__(self, ids: Mapping[int, int] | None = None) -> None:
        self._ids: dict[int, int] = {}
        self._absent: dict[int, float] = {}
        self.counts = np.zeros(len(COUNTS), np.int64)
        self.learn(ids or {})

    def learn(self, ids: Mapping[int, int | None]) -> None:
        """Take over what was found; None: it is nowhere to be had."""
        self._ids |= {source: target for source, target in ids.items() if target is not None}
        until = time.monotonic() + ABSENT_SECONDS
        self._absent |= {source: until for source, target in ids.items() if target is None}
        order = sorted(self._ids)
        self.known: Longs = np.array(order, np.int64)
        self.becomes: Longs = np.array([self._ids[id_] for id_ in order], np.int64)

    def counted(self) -> dict[str, int]:
        """How many keys and values were translated, were no schema payloads, had a broken prefix, or an unknown id."""
        return dict(zip(COUNTS, self.counts.tolist(), strict=True))

    def not_asked(self, ids: Iterable[int]) -> list[int]:
        """Those of them that nobody has looked for, lately."""
        now = time.monotonic()
        return [id_ for id_ in ids if id_ not in self._ids and self._absent.get(id_, 0.0) < now]


@dataclass(frozen=True)
class SchemaIds:
    """The rule. ``table`` is filled by the task that runs it."""

    keys: bool = True
    values: bool = True
    unknown: str = "stop"
    table: IdTable = field(default_factory=IdTable, compare=False, repr=False)
    touches_records = True

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records with the destination's ids. Raises ``UnknownSchemaIds``."""
        data = records.data.copy()
        counts = np.zeros(len(COUNTS), np.int64)
        parts: list[Longs] = []
        columns: list[tuple[Ints, Ints]] = []
        if self.keys:
            columns.append((records.key_start, records.key_length))
        if self.values:
            columns.append((records.value_start, records.value_length))
        for start, length in columns:
            unknown = np.empty(len(records), np.int64)
            replace_ids(data, start, length, records.dropped, self.table.known, self.table.becomes, unknown, counts)
            parts.append(unknown)
        dropped = self._judge(records, parts) if counts[UNKNOWN] else None
        self.table.counts += counts
        if dropped is not None:
            return records.with_columns(data=data, dropped=dropped)
        return records.with_columns(data=data) if counts[TRANSLATED] else records

    def _judge(self, records: Records, parts: Sequence[Longs]) -> Any:
        """What becomes of records with unknown ids; the new mask, if that changes."""
        rows = np.zeros(len(records), bool)
        for unknown in parts:
            rows |= unknown >= 0
        ids = [int(id_) for id_ in np.unique(np.concatenate(parts)) if id_ >= 0]
        if self.unknown == "stop" or self.table.not_asked(ids):
            first = int(records.offset[int(np.argmax(rows))])
            named = ", ".join(map(str, ids[:NAMED])) + (f" and {len(ids) - NAMED} more" if len(ids) > NAMED else "")
            raise UnknownSchemaIds(
                f"{records.topic}-{records.partition}: from offset {first} on, records carry schema ids that are not to be"
                f" had: {named}. Include their subjects in `sync.schemas`, or set `unknown: pass` (or `skip`) on the rule"
                " schema_ids; where keys or values are no schema payloads, switch it off for them.",
                records.topic,
                records.partition,
                first,
                ids,
            )
        if self.unknown == "skip":
            return records.dropped | rows.astype(np.uint8)
        return None


def build(link: Lists, ids: Identities) -> SchemaIds | None:
    """The rule, if the link lists it. Raises ``ConfigError`` for options that it does not have."""
    options = options_of(link, "schema_ids", BUILT_IN["schema_ids"])
    if options is None:
        return None
    for name in ("keys", "values"):
        if not isinstance(options.get(name, True), bool):
            raise ConfigError(f"rules: schema_ids: {name} is true or false")
    if options.get("unknown", "stop") not in POLICIES:
        raise ConfigError(f"rules: schema_ids: unknown is one of {', '.join(POLICIES)}")
    return SchemaIds(**options)
