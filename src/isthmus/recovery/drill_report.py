"""What a drill found: plain data, and whether it was clean.

Invariant: a drill is clean exactly when ``problems`` is empty; each of them is a sentence that says what was expected.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from isthmus.recovery.timeline import Timeline

SCENARIOS = {
    "switch": "a planned move there and back",
    "return": "the site dies, the other one takes over, the site returns with its data",
    "rebuild": "the site dies, the other one takes over, the site returns empty and is rebuilt",
}


@dataclass(slots=True)
class Loss:
    """What a disaster has cost: as the operation declared it, and as the drill, which wrote the records, knows it. ``beyond`` is what was lost and
    is not within what was declared: neither counted as seen nor acknowledged after what was known."""

    declared_records: int = 0
    declared_seconds: float = 0.0
    unknown_since_seconds: float | None = 0.0
    true_records: int = 0
    true_seconds: float = 0.0
    at_most: bool = True
    known_until: float | None = None
    beyond: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "declared_records": self.declared_records,
            "declared_seconds": self.declared_seconds,
            "unknown_since_seconds": self.unknown_since_seconds,
            "true_records": self.true_records,
            "true_seconds": round(self.true_seconds, 3),
            "at_most": self.at_most,
            "known_until": self.known_until,
            "beyond": self.beyond,
        }


@dataclass(slots=True)
class Readers:
    """What became of the consumer group."""

    group: str
    read: int = 0
    read_twice: int = 0
    skipped: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.group,
            "read": self.read,
            "read_twice": self.read_twice,
            "skipped": len(self.skipped),
            "first_skipped": self.skipped[:3],
        }


@dataclass(slots=True)
class DrillReport:
    """The outcome of a drill."""

    scenario: str
    site: str
    survivor: str
    live: bool
    timeline: Timeline
    readers: Readers
    links: list[str]
    topics: dict[str, list[str]] = field(default_factory=dict)
    rate: float = 0.0
    rto_seconds: float | None = None
    home_rto_seconds: float | None = None
    loss: Loss = field(default_factory=Loss)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """By writer."""
    stranded: int | None = None
    gone: int = 0
    """Records that are nowhere any more: lost with a site's data."""
    sites: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    verified: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    @property
    def clean(self) -> bool:
        return not self.problems

    @property
    def verdict(self) -> str:
        if self.clean:
            return "clean: nothing was lost beyond what was declared, doubled, reordered or skipped"
        return f"not clean: {'; '.join(self.problems)}"

    @property
    def title(self) -> str:
        where = "at the real sites" if self.live else "on this machine"
        return f"Drill {where}: {self.scenario}, {self.site} to {self.survivor}"

    def add(self, operation: dict[str, Any]) -> dict[str, Any]:
        """An operation that is done; what its last step compared is kept apart."""
        self.operations.append(operation)
        for step in operation["steps"]:
            if step["step"] == "verify":
                self.verified += [
                    {"link": link, "verdict": found["verdict"], "clean": not found["damage"]}
                    for link, found in step["found"].items()
                ]
        return operation

    def to_json(self) -> dict[str, Any]:
        ended = self.timeline.ended or time.time()
        return {
            "drill": self.scenario,
            "what": SCENARIOS[self.scenario],
            "site": self.site,
            "survivor": self.survivor,
            "live": self.live,
            "clean": self.clean,
            "verdict": self.verdict,
            "problems": self.problems,
            "notes": self.notes,
            "began": self.began,
            "seconds": round(ended - self.began, 3),
            "links": self.links,
            "topics": self.topics,
            "rate": self.rate,
            "rto_seconds": self.rto_seconds,
            "home_rto_seconds": self.home_rto_seconds,
            "rpo": self.loss.to_json(),
            "acknowledged": self.acknowledged,
            "stranded_records": self.stranded,
            "gone_records": self.gone,
            "sites": self.sites,
            "group": self.readers.to_json(),
            "verify": self.verified,
            "operations": self.operations,
            "timeline": self.timeline.to_json(),
        }
