"""Both sides of a partition in memory: records as batches, digested and judged as a task does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from batch_tools import Rec, make

from isthmus.records import read
from isthmus.records.model import Records, read_only
from isthmus.recovery.verify_compare import Expectations, Judgement, judge, together
from isthmus.recovery.verify_digest import SEEDED, SOURCE, TARGET, Digested, Digester, identity_of, nothing
from isthmus.recovery.verify_read import apply_rules
from isthmus.recovery.verify_units import Pair, Unit, cut
from isthmus.rules import Rule

OFFSET, ORIGIN = "isthmus-offset", "isthmus-origin"
PLAIN = Expectations(True, False, (identity_of("east"),), (identity_of("west"),))


def with_offset(rec: Rec, source: int) -> tuple[tuple[bytes, bytes | None], ...]:
    return (*rec.headers, (OFFSET.encode(), source.to_bytes(8, "big")))


def copied(rec: Rec, target: int, **changes: Any) -> Rec:
    """A record as a link copies it."""
    made = {"timestamp": rec.timestamp, "key": rec.key, "value": rec.value, "headers": with_offset(rec, rec.offset)}
    return Rec(offset=target, **{**made, **changes})


def columns(records: Sequence[Rec]) -> Records:
    """Records as columns."""
    data = make(records, base_offset=records[0].offset) if records else b""
    fetched = read.Fetched("t", 0, 0, read_only(np.frombuffer(data, np.uint8)))
    (group,) = read.Reader(skip_corrupt=False).groups(fetched)
    assert group.records is not None
    assert group.fault is None
    return group.records


def digest(records: Sequence[Rec], mode: int, rules: tuple[Rule, ...] = ()) -> tuple[Digested, Any]:
    if not records:
        return nothing(), np.empty(0, np.bool_)
    made = apply_rules(rules, columns(records))
    return Digester(OFFSET, ORIGIN).digest(made, mode), made.dropped == 0


def pair(runs: Sequence[Sequence[int]], watermark: int, end: int, **changes: Any) -> Pair:
    """A pair whose logs begin at 0."""
    known: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "target_topic": "t",
        "first": 0,
        "target_first": 0,
        "watermark": watermark,
        "explained": end,
        "source_start": 0,
        "source_end": watermark,
        "target_start": 0,
        "target_end": end,
        "runs": np.array(runs, np.int64).reshape(-1, 3),
    }
    return Pair(**{**known, **changes})


def judge_pair(
    known: Pair,
    source: Sequence[Rec],
    target: Sequence[Rec],
    link: Expectations = PLAIN,
    rules: tuple[Rule, ...] = (),
    size: int = 10**6,
) -> Judgement:
    """All units of a pair, judged; what they found is added up."""
    total = Judgement()
    for unit in cut(known, 0, size):
        here = [r for r in source if max(unit.first, known.source_start) <= r.offset < unit.end]
        there = [r for r in target if max(unit.target_first, known.target_start) <= r.offset < unit.target_end]
        found = _judge(unit, here, there, link, rules)
        total.offenders += found.offenders
        for place, span in found.not_judged.items():
            total.not_judged[place] = together(total.not_judged.get(place), span)
        for kind, count in found.counts.items():
            total.counts[kind] += count
    return total


def _judge(
    unit: Unit, here: Sequence[Rec], there: Sequence[Rec], link: Expectations, rules: tuple[Rule, ...]
) -> Judgement:
    seeded = unit.seeded
    digested, kept = digest(here, SEEDED if seeded else SOURCE, () if seeded else rules)
    return judge(unit, digested, kept, digest(there, SEEDED if seeded else TARGET)[0], link)


def counts(judgement: Judgement) -> dict[str, int]:
    return {kind: count for kind, count in judgement.counts.items() if count}
