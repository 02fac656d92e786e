"""Gives destination topics another name.

Invariant: different source topics get different destination topics: the configuration has seen to it that the pattern holds
``{topic}``, unless the link copies one topic only. Records are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from isthmus.records.model import Records
from isthmus.rules import Identities

ORDER = 100

PLACE = "{topic}"


@dataclass(frozen=True)
class Rename:
    """The rule, with its pattern."""

    pattern: str
    touches_records = False

    def topic(self, name: str) -> str:
        """The name with the pattern around it."""
        return self.pattern.replace(PLACE, name)

    def apply(self, records: Records) -> Records:
        """Records stay as they are."""
        return records


class _Link(Protocol):
    rename: str


def build(link: _Link, ids: Identities) -> Rename | None:
    """The rule of a link, unless its topics keep their names."""
    return None if link.rename == PLACE else Rename(link.rename)
