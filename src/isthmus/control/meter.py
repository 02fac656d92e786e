"""What the control plane has done and seen in this process: for metrics.

Invariant: counting never fails and never waits; numbers only grow, but for ``blocked``, ``waiting`` and ``tables``, which are how it stands now.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from isthmus.control.change import Change, Outcome

# The name of a change that is about a resource as a whole.
EVERYTHING = "*"


@dataclass(slots=True)
class Tally:
    """Numbers of one resource of one link, of one group, or of levels that were set: how often, how many, how long."""

    done: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    errors: int = 0
    blocked: int = 0
    plans: int = 0
    plan_seconds: float = 0.0
    applies: int = 0
    apply_seconds: float = 0.0


def group_of(name: str) -> str:
    """The group of a change that may be about one of its partitions: ``GROUP topic[3]``."""
    return name.rpartition(" ")[0] if " " in name and name.endswith("]") else name


class Meter:
    """One a process; several threads count in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resources: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
        self._groups: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
        self._levels: defaultdict[str, Tally] = defaultdict(Tally)
        self._waiting: dict[tuple[str, str, int], float] = {}
        self._tables: dict[tuple[str, str], tuple[int, int]] = {}

    def waits(self, partition: tuple[str, str, int], since: float) -> None:
        """The next record to copy (by link, topic and partition) is of this time: a backlog that is older than the run."""
        with self._lock:
            self._waiting[partition] = since

    def copied(self, partition: tuple[str, str, int]) -> None:
        """The backlog of a partition is copied."""
        with self._lock:
            self._waiting.pop(partition, None)

    def waiting(self) -> dict[tuple[str, str, int], float]:
        with self._lock:
            return dict(self._waiting)

    def planned(self, link: str, resource: str, changes: Iterable[Change], seconds: float) -> None:
        with self._lock:
            tally = self._resources[link, resource]
            tally.plans += 1
            tally.plan_seconds += seconds
            tally.blocked = 0
            for change in changes:
                tally.blocked += change.action == "blocked"
                # Of all there is: the comparison could not be made, such as when a registry is down.
                tally.errors += change.action == "blocked" and change.name == EVERYTHING
                if resource == "groups" and (change.to_do or change.action == "blocked"):
                    group = self._groups[link, change.name if change.to_do else group_of(change.name)]
                    group.plans += 1
                    group.plan_seconds += seconds
                    group.done["translated"] += len(change.diff)
                    group.blocked += change.action == "blocked"

    def applied(self, link: str, resource: str, outcomes: Iterable[Outcome], seconds: float) -> None:
        with self._lock:
            tally = self._resources[link, resource]
            tally.applies += 1
            tally.apply_seconds += seconds
            for outcome in outcomes:
                change = outcome.change
                if outcome.done:
                    tally.done[change.action] += 1
                    for diff in change.diff if resource == "schemas" else ():
                        tally.done["versions"] += diff.key.startswith("version") and diff.before is None
                else:
                    tally.errors += 1
                if resource == "groups":
                    group = self._groups[link, change.name]
                    group.applies += 1
                    group.apply_seconds += seconds
                    group.done["committed"] += len(change.diff) if outcome.done else 0
                    group.errors += not outcome.done

    def set_level(self, link: str, done: bool, seconds: float) -> None:
        """A compatibility level was copied to the destination, or taken away there; or it was refused."""
        with self._lock:
            tally = self._levels[link]
            tally.applies += 1
            tally.apply_seconds += seconds
            tally.done["set"] += done
            tally.errors += not done

    def saw(self, site: str, topic: str, forged: int, bad: int) -> None:
        """A table of state was read: so many of its records were written by somebody else, so many cannot be read."""
        with self._lock:
            self._tables[site, topic] = forged, bad

    def tables(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Forged and bad records, by site and topic."""
        with self._lock:
            return dict(self._tables)

    def levels(self) -> dict[str, Tally]:
        """Compatibility levels, by link."""
        with self._lock:
            return dict(self._levels)

    def resources(self) -> dict[tuple[str, str], Tally]:
        """By link and resource."""
        with self._lock:
            return dict(self._resources)

    def groups(self) -> dict[tuple[str, str], Tally]:
        """By link and group."""
        with self._lock:
            return dict(self._groups)


METER = Meter()
