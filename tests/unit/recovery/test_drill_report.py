"""A drill's report: what makes it clean, and a page that holds all of it, escaped."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from isthmus.recovery.drill_html import page
from isthmus.recovery.drill_report import DrillReport, Loss, Readers
from isthmus.recovery.timeline import Timeline

NASTY = "<script>alert('x')</script>&"


def a_report() -> DrillReport:
    timeline = Timeline(["east", NASTY])
    timeline.mark("east", f"{NASTY} killed", "bad")
    timeline.close()
    made = DrillReport(
        "rebuild", "east", NASTY, False, timeline, Readers(NASTY, 10, 2), [NASTY], {"east": [NASTY]}, 200.0
    )
    made.loss, made.rto_seconds, made.gone = Loss(3, 0.5, 2.0, 2, 0.25), 5.25, 2
    made.acknowledged = {"east-1": 100}
    made.sites = [{"site": NASTY, "held": 98, "missing": 0, "doubled": 0, "out_of_order": 0}]
    made.notes.append(NASTY)
    return made


def operation(**found: Any) -> dict[str, Any]:
    steps = [
        {"step": "check", "at": 1.0, "seconds": 0.5, "found": {}},
        {"step": "verify", "at": 2.0, "seconds": 4.0, "found": found},
    ]
    return {"operation": "failback", "mode": None, "seconds": 4.5, "steps": steps}


def test_comparisons_are_kept_apart() -> None:
    report = a_report()
    report.add(
        operation(there={"verdict": "fine", "damage": {}}, back={"verdict": "1 missing", "damage": {"missing": 1}})
    )
    assert [(row["link"], row["clean"]) for row in report.verified] == [("there", True), ("back", False)]
    assert report.clean
    report.problems.append("link back: 1 missing")
    assert not report.clean
    assert "1 missing" in report.verdict


def test_the_page_is_whole_and_escaped() -> None:
    report = a_report()
    report.add(operation(there={"verdict": NASTY, "damage": {}}))

    class Tags(HTMLParser):
        opened: list[str] = []
        closed: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            self.closed.append(tag)

    text, parser = page(report), Tags()
    parser.feed(text)
    assert "script" not in parser.opened
    assert sorted(set(parser.opened) - {"meta"}) == sorted(set(parser.closed))
    for words in ("5.2 s", "3 records, 0.5 s", "2 records, 0.2 s", "clean", "failback", "verify"):
        assert words in text, words


def test_the_data_is_plain() -> None:
    document = json.loads(json.dumps(a_report().to_json()))
    assert document["rpo"]["true_records"] == 2
    assert document["clean"]
    assert document["group"]["skipped"] == 0
    assert document["timeline"]["marks"][0]["lane"] == "east"
