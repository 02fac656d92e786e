"""What is known of a source that is gone: reports, cut or incomplete, never say more than what was asked."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from isthmus.engine import report as reports_module
from isthmus.engine.report import Reports, Seen, Sight, SlotReport, SourceReport, name_of
from isthmus.engine.state import Claim, Progress
from isthmus.recovery.losses import _behind, known_until, told
from isthmus.recovery.standing import Known, Standing

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def slot(number: int, lease: int, seen: Sight | None, shares: int = 2) -> SlotReport:
    return SlotReport(number, "run", lease, 0.0, 0, 0, 0, 0.0, 0.0, heard=999.0, seen=seen, shares=shares)


def stood(*records: tuple[bytes, bytes], **progress: int) -> Standing:
    reports = Reports()
    reports.take(records)
    at = {(name[0], int(name[1:])): Progress(offset, name[0], "") for name, offset in progress.items()}
    return Standing(at, {}, Claim(1, "run"), reports)


def test_a_sight_says_when_each_was_asked() -> None:
    seen = {A: Seen(5, 9, 100.0), B: Seen(7, 7, 100.5), C: Seen(5, 1000, 40.0, anew=True)}
    sight = Sight.of(seen)
    assert sight == Sight(100.0, {"t/0": 9, "u/0": 1000}, {"u/0": 40.0}, ["u/0"])
    again = stood(slot(0, 1, sight, 1).record()).known()
    assert (again.until, again.late, again.ends, again.anew) == (100.0, {C: 40.0}, {A: 9, C: 1000}, {C})


def test_a_list_that_is_cut_stays_true(monkeypatch: Any) -> None:
    monkeypatch.setattr(reports_module, "NAMED_PARTITIONS", 2)
    seen = {("t", n): Seen(0, n, 100.0 - 10 * n) for n in range(6)}
    sight = Sight.of(seen)
    assert sight.late == {"t/5": 50.0, "t/4": 60.0}
    assert sight.asked == 70.0  # the earliest of those that are not named
    assert sight.ends == {"t/5": 5, "t/4": 4}
    assert (sight.left_out, sight.rest) == (3, 1 + 2 + 3)
    for key, one in seen.items():
        assert sight.until(name_of(key)) <= one.asked


def test_only_when_all_slots_have_told_their_word_counts() -> None:
    deal = SourceReport("run", 2, 10.0, Sight(11.0, {"t/0": 8}), ["u/0"]).record("deal")
    first, second = slot(0, 2, Sight(50.0)).record(), slot(1, 2, Sight(40.0, {"t/1": 3}, {"t/1": 20.0})).record()
    # Of the lease before: its slot had other partitions.
    old = slot(1, 1, Sight(45.0)).record()
    half = stood(deal, old, first).known()
    assert (half.until, half.ends) == (11.0, {A: 8})
    whole = stood(deal, first, second).known()
    assert (whole.until, whole.discovered) == (40.0, 10.0)
    # In nobody's lease: nobody asked for it since it was dealt.
    assert whole.late == {B: 20.0, C: 11.0}
    nobody = stood(slot(0, 3, None).record(), slot(1, 3, None).record()).known()
    assert (nobody.until, nobody.discovered) == (0.0, 0.0)


def test_what_appeared_since_was_empty_when_all_was_dealt() -> None:
    deal = SourceReport("run", 2, 10.0, Sight(11.0)).record("deal")
    look = SourceReport("run", 2, 30.0, Sight.of({C: Seen(-1, 70, 30.0)})).record("look")
    known = stood(deal, slot(0, 2, Sight(50.0), 1).record(), look).known()
    assert (known.until, known.late, known.ends, known.discovered) == (50.0, {C: 10.0}, {C: 70}, 30.0)


def test_losses_are_counted_from_what_is_committed_now() -> None:
    now = stood(t0=8, t1=5)
    lost = _behind(now, Known(1.0, ends={A: 8, B: 9, C: 7}, anew={B}))
    assert [(each.topic, each.partition, each.position, each.most) for each in lost] == [("t", 1, 0, 9), ("u", 0, 0, 7)]


def declared(**changes: Any) -> dict[str, Any]:
    return {
        "records": 2,
        "counted": True,
        "left_out": {"partitions": 0, "records": 0},
        "known_until": 1000.239,
        "unknown": [],
        "unknown_more": 0,
        "unknown_more_since": None,
        "topics_known_until": 1000.239,
        "at_most": False,
        **changes,
    }


def test_it_says_how_far_it_can_be_wrong() -> None:
    (words,) = told(declared(), "east", 1000.3)
    assert words.startswith("Seen at east and not copied: 2. What east acknowledged after ")
    assert words.endswith(".23 (0.07 s before this command) is not known.")  # never 0 s, and no time that is too late
    (words,) = told(declared(at_most=True), "east", 1000.3)
    assert (
        words
        == "Seen at east and not copied: 2. No more is lost: east was fenced, and every partition answered after that."
    )
    one = {"topic": "t", "partition": 1, "since": 400.0, "why": "it stands still: RecordTooLarge"}
    more = {"unknown_more": 3, "unknown_more_since": 0.0, "topics_known_until": 900.0}
    lines = told(declared(unknown=[one], known_until=None, counted=False, **more), "east", 1000.0)
    assert "by offsets" in lines[0]
    assert "no report tells when it was last asked for" in lines[0]
    assert lines[1].startswith("What t[1] acknowledged after ")
    assert lines[1].endswith("(10 min before this command) is not known: it stands still: RecordTooLarge.")
    assert lines[2].startswith("What 3 more partitions acknowledged is not known")
    assert "were made at east after" in lines[3]
    assert known_until(declared(unknown=[one]), ("t", 1)) == 400.0
    assert known_until(declared(**more), ("t", 2)) == 0.0


def test_reports_of_the_version_before_are_read() -> None:
    body = asdict(slot(0, 1, None))
    del body["seen"], body["shares"]
    reports = Reports()
    reports.take([(b"slot/0", json.dumps({**body, "ends": {"t/0": 4}}).encode())])
    assert reports.slots[0].seen is None
    assert stood((b"slot/0", json.dumps(body).encode())).known().until == 0.0
