"""Which site serves instead of another, and since when, as the one that serves remembers it.

Invariant: from where on records there are its own is fixed when it first takes over (or has rebuilt the other one), and stays so until work is
home again, however often a command is given meanwhile, refused or abandoned. A later mark would leave out what was written in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.recovery.journal import Entry, came_home

# By topic and partition, in text: what a journal can hold.
Marks = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Service:
    """What made ``to`` serve instead of ``site``, oldest first; ``over`` is when work came home again, if it did, and ``home`` how."""

    entries: tuple[Entry, ...]
    over: float = 0.0
    home: Entry | None = None

    @property
    def newest(self) -> Entry:
        return self.entries[-1]

    @property
    def since(self) -> Marks:
        """From where on the records of the serving site are its own."""
        marks: Marks = {}
        for entry in self.entries:
            rebuilt = entry.found("cut").get("positions")
            if rebuilt is not None:  # the other site has all before that
                _put(marks, rebuilt, replace=True)
            else:
                _put(marks, entry.since, replace=False)
                _put(marks, entry.found("promote").get("ends") or {}, replace=False)
        return marks

    @property
    def moved(self) -> Entry | None:
        """The failover that is done and still stands."""
        done = [e for e in self.entries if e.kind == "failover" and e.ended]
        return done[-1] if done and not self.over else None


def service(known: Mapping[tuple[str, str], Entry], site: str, to: str) -> Service | None:
    """By the operations that ``to`` keeps; None if it knows of none."""
    mine = [e for e in known.values() if (e.site, e.to) == (site, to)]
    moves = sorted((e for e in mine if e.kind in ("failover", "reseed") and e.done), key=lambda e: e.began)
    if not moves:
        return None
    over = came_home(mine)
    # An operation knows what had come home when it was opened; the clocks of two operators' machines may differ.
    since = [e for e in moves if e.began > over or (over and e.home >= over)]
    if since:
        return Service(tuple(since))
    return Service(tuple(moves), over, next((e for e in mine if e.kind == "failback" and e.ended == over), None))


def merged(first: Marks, later: Marks) -> Marks:
    """``later``, but for what was marked before."""
    marks: Marks = {}
    _put(marks, first, replace=False)
    _put(marks, later, replace=False)
    return marks


def _put(marks: Marks, found: Mapping[str, Mapping[str, int]], replace: bool) -> None:
    for topic, partitions in found.items():
        mine = marks.setdefault(topic, {})
        for partition, offset in partitions.items():
            if replace or partition not in mine:
                mine[partition] = offset
