"""Leaves out what the destination has already, by birth: for the parts of links with which recovery brings a site what it lacks (config/part.py).

A birth is an origin and a number there: the first offset header behind the origin header, which the link has written that took the record away from
home. A record without an origin header was born where it lies, and its number is its offset.

Invariants:
- of each origin a site holds a beginning of the births, so one number says what is there: all before it;
- a record whose birth cannot be told is neither copied nor left out: the part stops at it;
- no file can ask for this: the numbers are a field of links that only recovery makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.config.part import OWN, Had
from isthmus.records.kernels_cache import READ_BYTES, kernel
from isthmus.records.model import Longs, Records
from isthmus.records.wire import read_int64, read_varint
from isthmus.rules import Identities
from isthmus.rules.born import PROVENANCE, as_bytes, next_header, packed, same_bytes, split_provenance

#: After the loop rule: what that leaves out need not be known.
ORDER = 210

HERE, UNKNOWN = -1, -2
"""Who has a record: born where it lies; nobody knows where, or with which number."""


@kernel(
    f"void({READ_BYTES}, int32[::1], int32[::1], int32[::1], {READ_BYTES}, boolean, {READ_BYTES}, {READ_BYTES}, int64[::1], int64[::1],"
    " int64[::1], int64[::1])"
)
def tell_births(
    data: Any,
    start: Any,
    end: Any,
    count: Any,
    name: Any,
    parts: Any,
    offset_name: Any,
    places: Any,
    places_start: Any,
    offset: Any,
    who: Any,
    number: Any,
) -> None:
    """Of each record the place of birth, as a number among ``places``, and its number there."""
    for row in range(len(start)):
        who[row] = HERE
        number[row] = offset[row]
        place, stop = np.int64(start[row]), np.int64(end[row])
        found = False
        for _ in range(count[row]):
            key, value, length, after = next_header(data, place, stop)
            size, _ = read_varint(data, place, stop)
            if not found:
                if size == len(name) and same_bytes(data, key, name, 0, size):
                    found = True
                    who[row] = UNKNOWN
                    number[row] = -1
                    id_length = np.int64(length)
                    if parts:
                        id_length, _, _ = split_provenance(data, value, length)
                    for each in range(len(places_start) - 1):
                        width = places_start[each + 1] - places_start[each]
                        if width == id_length and same_bytes(data, value, places, places_start[each], width):
                            who[row] = each
            elif length == 8 and size == len(offset_name) and same_bytes(data, key, offset_name, 0, size):
                number[row] = read_int64(data, value)
                break
            place = after
        if number[row] < 0:
            who[row] = UNKNOWN


@dataclass(frozen=True, slots=True)
class Marks:
    """By which headers births are told: the origin's name and style, and the offset's name."""

    header: str
    style: str
    offset: str

    def births(self, records: Records, places: tuple[str, ...]) -> tuple[Longs, Longs]:
        """The place of birth of each record, as its index in ``places`` (or ``HERE``, ``UNKNOWN``), and its number there."""
        who, number = np.empty((2, len(records)), np.int64)
        tell_births(
            records.data,
            records.headers_start,
            records.headers_end,
            records.headers_count,
            as_bytes(self.header.encode()),
            self.style == PROVENANCE,
            as_bytes(self.offset.encode()),
            *packed(places),
            records.offset,
            who,
            number,
        )
        return who, number


@dataclass(frozen=True)
class HadRule:
    """The rule. ``had`` says, by topic, partition and place of birth, before which number all is at the destination."""

    marks: Marks
    had: Had
    touches_records = True

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records, some of them marked as dropped. Raises ``ValueError`` for one of which nothing is known."""
        before = self.had.get(records.topic, {}).get(records.partition)
        if before is None:
            return records
        places = tuple(name for name in before if name != OWN)
        who, number = self.marks.births(records, places)
        wanted = records.dropped == 0
        if (unknown := wanted & (who == UNKNOWN)).any():
            raise ValueError(f"where the record at offset {records.offset[unknown][0]} was born cannot be told")
        first = np.array([*(before[name] for name in places), before.get(OWN, 0)], np.int64)  # HERE is the last one
        out = wanted & (number < first[np.maximum(who, HERE)])
        return records.with_columns(dropped=records.dropped | out.astype(np.uint8)) if out.any() else records


def build(link: Any, ids: Identities) -> HadRule | None:
    """The rule of a part that has such numbers."""
    had: Had = getattr(link, "had", {})
    if not had:
        return None
    return HadRule(Marks(link.origin.header, link.origin.value, link.headers.offset), had)
