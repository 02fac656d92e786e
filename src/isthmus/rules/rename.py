"""Gives destination topics another name.

Invariant: different source topics get different destination topics, because the pattern holds
``{topic}`` exactly once. Records are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from isthmus.errors import ConfigError
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
    pattern = link.rename
    if pattern.count(PLACE) != 1:
        raise ConfigError(f"rename: {pattern!r} has to hold {PLACE} exactly once, for example 'eu.{PLACE}'")
    return None if pattern == PLACE else Rename(pattern)
