"""Leaves records out by their offsets, for the links that only recovery makes: what is not ``within`` a part of a link, and what the way home has
``without``, since the link itself has put it there.

Invariants:
- a partition that ``within`` does not name is left out whole; one that ``without`` does not name stays whole;
- no file can ask for this: the ranges are fields of links that only recovery makes (config/part.py, config/turned.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isthmus.config.part import Within
from isthmus.config.turned import Without
from isthmus.records.model import Records
from isthmus.rules import Identities

#: Before all others: what is left out costs them nothing.
ORDER = 100

NOTHING = (0, 0)


@dataclass(frozen=True)
class Ranges:
    """The rule. ``within`` is None where every offset is wanted."""

    within: Within | None
    without: Without
    touches_records = True

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """Records, some of them marked as dropped."""
        offset = records.offset
        out = np.zeros(len(records), np.bool_)
        if self.within is not None:
            first, end = self.within.get(records.topic, {}).get(records.partition, NOTHING)
            out |= (offset < first) | (offset >= end)
        spans = np.array(self.without.get(records.topic, {}).get(records.partition, []), np.int64).reshape(-1, 2)
        if len(spans):
            at = np.searchsorted(spans[:, 0], offset, side="right") - 1
            out |= (at >= 0) & (offset < spans[np.maximum(at, 0), 1])
        if not out.any():
            return records
        return records.with_columns(dropped=records.dropped | out.astype(np.uint8))


def build(link: object, ids: Identities) -> Ranges | None:
    """The rule of a link that has ranges."""
    within: Within | None = getattr(link, "within", None)
    without: Mapping[str, dict[int, list[tuple[int, int]]]] = getattr(link, "without", {})
    return Ranges(within, dict(without)) if within is not None or without else None
