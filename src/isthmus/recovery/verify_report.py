"""What a comparison found, in numbers and with the first offenders of each class by name.

Invariant: plain data; ``to_json`` is all of it. Sums of topics are sums of their partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from isthmus.recovery.verify_compare import (
    CLASSES,
    DAMAGE,
    EXPLAINED,
    HERE,
    NOT_JUDGED,
    THERE,
    WHY,
    Offender,
    together,
)
from isthmus.recovery.verify_read import Outcome
from isthmus.recovery.verify_units import Pair

#: What the way home counts; all else there is the link's.
OF_HOME = ("compared", *DAMAGE, "expired", "compacted")
#: So many offenders of each class are shown, the first ones by topic, partition and offset.
SHOWN = 5


@dataclass(slots=True)
class Found:
    """One record that is wrong, shown. Offsets are -1 where there is none."""

    kind: str
    topic: str
    partition: int
    target: str
    source_offset: int
    target_offset: int
    why: str
    expected: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    home: bool = False
    """Whether it was found on the way home; then source and target are turned round."""

    @property
    def words(self) -> str:
        where = f"{self.topic}[{self.partition}]"
        here = f" source offset {self.source_offset}" if self.source_offset >= 0 else ""
        there = f" at {self.target}[{self.partition}] offset {self.target_offset}" if self.target_offset >= 0 else ""
        differs = f" (differs: {', '.join(self.differs)})" if self.differs else ""
        home = " on the way home:" if self.home else ""
        return f"{words_of(self.kind)}:{home} {where}{here}{there}: {self.why}{differs}"


def words_of(kind: str) -> str:
    """A class as people write it."""
    return kind.replace("_", " ")


def copy_of(row: dict[str, Any]) -> str:
    """What a row of a table says of where copies are."""
    return f"{row['target']} (way home)" if row["home"] else str(row["target"])


@dataclass(slots=True)
class PartitionReport:
    topic: str
    partition: int
    target: str
    first: int
    watermark: int
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    source_records: int = 0
    target_records: int = 0
    home: bool = False
    """Whether this is the way home: what the destination wrote while it served."""
    not_judged: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    """What nobody could judge: class, side, the first and the last offset, how many records."""


@dataclass(slots=True)
class Report:
    """The outcome of a comparison."""

    link: str
    source: str
    target: str
    started: str
    seconds: float = 0.0
    since: str | None = None
    sample: float = 1.0
    units: int = 0
    bytes: int = 0
    repeats_allowed: bool = False
    """Whether the link may repeat records: then doubled ones are counted, and are no damage."""
    partitions: list[PartitionReport] = field(default_factory=list)
    offenders: list[Found] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    """Partitions that could not be judged."""
    notes: list[str] = field(default_factory=list)
    waiting: int = 0
    """How many source offsets wait to be copied, and could not be compared."""

    @property
    def totals(self) -> dict[str, int]:
        return {kind: sum(p.counts[kind] for p in self.partitions) for kind in CLASSES}

    @property
    def damage(self) -> dict[str, int]:
        """Classes of damage of which there is some."""
        totals = self.totals
        kinds = [kind for kind in DAMAGE if not (kind == "doubled" and self.repeats_allowed)]
        return {kind: totals[kind] for kind in kinds if totals[kind]}

    @property
    def clean(self) -> bool:
        return not self.damage and not self.faults and not self.unproven

    @property
    def unproven(self) -> bool:
        """Whether nothing at all was compared although there is something to copy, or something was copied that the destination has no more."""
        return (self.waiting > 0 and not any(self.totals.values())) or (self.lost > 0 and not self.totals["compared"])

    @property
    def lost(self) -> int:
        """How many records that were copied the destination does not hold any more, and the source does."""
        gone = ("expired", "compacted")
        return sum(e["records"] for e in self.not_judged if e["kind"] in gone and not e["home"] and e["side"] == HERE)

    @property
    def verdict(self) -> str:
        """One sentence."""
        compared = f"{self.totals['compared']} records are the same on both sides"
        totals = self.totals
        left = ", ".join(f"{totals[kind]} {words_of(kind)}" for kind in NOT_JUDGED if totals[kind])
        behind = [f"not judged: {left}"] if left else []
        waiting = f"{self.waiting} record{'s wait' if self.waiting > 1 else ' waits'} to be copied"
        if self.waiting:
            behind.append(waiting)
        if self.clean:
            return "; ".join([compared, "no damage found" if behind else "nothing is wrong", *behind])
        if self.unproven and not self.faults and not self.damage:
            return "; ".join(["nothing was compared", *behind])
        wrong = [f"{count} {words_of(kind)}" for kind, count in self.damage.items()]
        if self.faults:
            wrong.append(f"{len(self.faults)} partitions could not be judged")
        return "; ".join([compared, ", ".join(wrong), *behind])

    @property
    def not_judged(self) -> list[dict[str, Any]]:
        """Where records are that nobody could judge: there is no other side to compare them with."""
        other = {HERE: THERE, THERE: HERE}
        return [
            {
                "topic": part.topic if side == HERE else part.target,
                "partition": part.partition,
                "side": other[side] if part.home else side,
                "kind": kind,
                "first": first,
                "last": last,
                "records": records,
                "home": part.home,
            }
            for part in self.partitions
            for kind, side, first, last, records in part.not_judged
        ]

    @property
    def not_judged_words(self) -> list[str]:
        return [
            f"not judged: {each['topic']}[{each['partition']}] {each['side']} offsets {each['first']} to {each['last']}: "
            f"{each['records']} {words_of(each['kind'])}"
            for each in self.not_judged
        ]

    def topics(self) -> list[dict[str, Any]]:
        """One row a topic: its counts."""
        rows: dict[tuple[str, bool], dict[str, Any]] = {}
        for part in self.partitions:
            row = rows.setdefault(
                (part.topic, part.home),
                {
                    "topic": part.topic,
                    "target": part.target,
                    "home": part.home,
                    "partitions": 0,
                    **dict.fromkeys(CLASSES, 0),
                },
            )
            row["partitions"] += 1
            for kind, count in part.counts.items():
                row[kind] += count
        return list(rows.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "link": self.link,
            "from": self.source,
            "to": self.target,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "since": self.since,
            "sample": self.sample,
            "units": self.units,
            "bytes": self.bytes,
            "clean": self.clean,
            "verdict": self.verdict,
            "totals": self.totals,
            "damage": self.damage,
            "topics": self.topics(),
            "partitions": [asdict(part) for part in self.partitions],
            "offenders": [asdict(found) for found in self.offenders],
            "faults": self.faults,
            "not_judged": self.not_judged,
            "notes": self.notes,
            "waiting": self.waiting,
        }


def explained_kinds(report: Report) -> list[str]:
    """Classes that are no damage, of which there is some."""
    totals = report.totals
    return [kind for kind in EXPLAINED if totals[kind]]


def add_up(report: Report, pairs: list[Pair], outcomes: Iterable[Outcome]) -> list[tuple[Pair, Offender]]:
    """Put outcomes into the report, behind what is there; the offenders to be shown."""
    parts = [PartitionReport(p.topic, p.partition, p.target_topic, p.first, p.watermark, home=p.home) for p in pairs]
    report.partitions += parts
    left: list[dict[tuple[str, str], tuple[int, int, int]]] = [{} for _ in pairs]
    named: dict[str, list[tuple[Pair, Offender]]] = {kind: [] for kind in DAMAGE}
    for outcome in outcomes:
        part = parts[outcome.number]
        report.bytes += outcome.bytes
        part.source_records += outcome.source_records
        part.target_records += outcome.target_records
        for kind, count in outcome.judgement.counts.items():
            if not part.home or kind in OF_HOME:
                part.counts[kind] += count
        for place, span in outcome.judgement.not_judged.items():
            if not part.home or place[0] in OF_HOME:
                left[outcome.number][place] = together(left[outcome.number].get(place), span)
        if outcome.fault is not None:
            report.faults.append(outcome.fault.to_json())
        for offender in outcome.judgement.offenders:
            named[offender.kind].append((pairs[outcome.number], offender))
    for part, spans in zip(parts, left, strict=True):
        part.not_judged = [(*place, *span) for place, span in sorted(spans.items())]
    named_first: list[tuple[Pair, Offender]] = []
    for found in named.values():
        found.sort(key=lambda each: (each[0].topic, each[0].partition, each[1].source, each[1].target))
        named_first += found[:SHOWN]
    return named_first


def shown(pair: Pair, offender: Offender) -> Found:
    """An offender as the report has it, before anybody has looked at the records themselves."""
    source = offender.source if offender.source >= 0 else (offender.claims if offender.kind == "doubled" else -1)
    why = WHY[offender.why]
    if offender.kind == "out_of_order":
        why += f", source offset {offender.claims}" if offender.claims >= 0 else ""
    return Found(
        offender.kind, pair.topic, pair.partition, pair.target_topic, source, offender.target, why, home=pair.home
    )
