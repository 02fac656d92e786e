"""The report: sums, verdicts, a page that shows what is wrong and lets nothing through unescaped; and mistakes on the command line."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from verify_tools import pair

from isthmus import cli
from isthmus.config import loads
from isthmus.errors import CorruptBatch
from isthmus.recovery.verify_compare import Judgement, Offender
from isthmus.recovery.verify_html import page
from isthmus.recovery.verify_look import Seen, differences, printable
from isthmus.recovery.verify_read import Errand, Outcome
from isthmus.recovery.verify_report import SHOWN, Report, add_up, shown
from isthmus.rules import Identities

CONFIG = """
sites:
  east: {bootstrap: "127.0.0.1:1"}
  west: {bootstrap: "127.0.0.1:2"}
links:
  orders: {from: east, to: west, topics: [orders], origin: on}
"""


def outcome(number: int, *offenders: Offender, **counts: int) -> Outcome:
    judged = Judgement()
    judged.counts.update(counts)
    judged.offenders = list(offenders)
    return Outcome(number, judged, sum(counts.values()), sum(counts.values()), 1000)


def report(*outcomes: Outcome, **options: object) -> Report:
    made = Report("orders", "east", "west", "2026-01-31T08:00:00+00:00", **options)  # type: ignore[arg-type]
    pairs = [pair([], 10, 10, partition=n, topic="<b>orders</b>") for n in range(2)]
    made.offenders = [shown(*each) for each in add_up(made, pairs, outcomes)]
    return made


def test_sums_and_verdicts() -> None:
    clean = report(outcome(0, compared=5), outcome(0, compared=2, dropped=1), outcome(1, compared=3))
    assert clean.clean
    assert clean.verdict == "10 records are the same on both sides; nothing is wrong"
    (row,) = clean.topics()
    assert (row["partitions"], row["compared"], row["dropped"]) == (2, 10, 1)
    assert [part.counts["compared"] for part in clean.partitions] == [7, 3]
    damaged = report(outcome(0, compared=5, missing=2, out_of_order=1))
    assert damaged.damage == {"missing": 2, "out_of_order": 1}
    assert damaged.verdict == "5 records are the same on both sides; 2 missing, 1 out of order"


def test_what_nobody_can_judge_is_never_called_right() -> None:
    first, second = outcome(0, compared=5, local=2), outcome(0, stranded=3, local=1)
    first.judgement.not_judged = {("local", "destination"): (20, 22, 2)}
    second.judgement.not_judged = {("stranded", "source"): (10, 12, 3), ("local", "destination"): (7, 7, 1)}
    found = report(first, second)
    assert found.clean
    assert found.verdict == "5 records are the same on both sides; no damage found; not judged: 3 stranded, 3 local"
    assert found.not_judged_words == [
        "not judged: t[0] destination offsets 7 to 22: 3 local",
        "not judged: <b>orders</b>[0] source offsets 10 to 12: 3 stranded",
    ]
    assert [(each["kind"], each["records"]) for each in found.to_json()["not_judged"]] == [
        ("local", 3),
        ("stranded", 3),
    ]
    assert "Not judged" in page(found)
    found = report(outcome(0, compared=5, missing=1, local=2))
    assert found.verdict == "5 records are the same on both sides; 1 missing; not judged: 2 local"


def test_copies_that_are_all_gone_are_not_called_right() -> None:
    """Nothing is left at the destination to compare with: retention, or somebody who has deleted it."""
    gone = outcome(0, expired=5)
    gone.judgement.not_judged = {("expired", "source"): (0, 4, 5)}
    found = report(gone)
    assert (found.clean, found.verdict) == (False, "nothing was compared; not judged: 5 expired")
    assert report(gone, outcome(1, compared=1)).clean
    kept = outcome(0, expired=5)  # the source has deleted them, and the copies are there
    kept.judgement.not_judged = {("expired", "destination"): (0, 4, 5)}
    assert report(kept).clean


def test_the_way_home_counts_beside_the_link() -> None:
    made = report(outcome(0, compared=5, returned=2))
    home = outcome(0, Offender("missing", "not there", 7, 9), compared=1, missing=1, dropped=8, local=4, expired=1)
    home.judgement.not_judged = {("expired", "source"): (3, 3, 1), ("local", "destination"): (0, 9, 4)}
    (offender,) = add_up(made, [pair([], 10, 10, home=True)], [home])
    assert made.totals["compared"] == 6
    assert (made.damage, made.totals["dropped"], made.totals["local"]) == ({"missing": 1}, 0, 0)
    assert [row["home"] for row in made.topics()] == [False, True]
    assert shown(*offender).words.startswith("missing: on the way home: t[0] source offset 7 at t[0] offset 9")
    # What is the source on the way home is the link's destination.
    assert made.not_judged_words == ["not judged: t[0] destination offsets 3 to 3: 1 expired"]


def test_what_cannot_be_judged_is_not_clean() -> None:
    broken = outcome(0)
    broken.fault = CorruptBatch("checksum", "orders", 0, 5)
    found = report(broken, outcome(1, compared=1))
    assert not found.clean
    assert "1 partitions could not be judged" in found.verdict
    assert found.faults[0]["offset"] == 5


def test_repeats_that_are_allowed_are_no_damage() -> None:
    assert report(outcome(0, doubled=3), repeats_allowed=True).clean
    assert not report(outcome(0, doubled=3)).clean


def test_the_first_offenders_are_shown() -> None:
    many = [Offender("missing", "not copied", n, -1) for n in range(20, 0, -1)]
    found = report(outcome(1, *many, missing=20), outcome(0, Offender("missing", "not there", 99, 7), missing=1))
    assert [(f.partition, f.source_offset) for f in found.offenders] == [(0, 99), *((1, n) for n in range(1, SHOWN))]
    assert found.offenders[0].words == (
        "missing: <b>orders</b>[0] source offset 99 at t[0] offset 7: nothing stands at the place that the map names"
    )


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_escaped() -> None:
    found = report(
        outcome(0, Offender("altered", "differs", 3, 4, 3), altered=1, compared=4, local=2),
        since="2026-01-01T00:00:00+00:00",
        sample=0.25,
    )
    found.offenders[0].expected = Seen(b"<k>", b"&", 1, (("h", b"<i>"),)).to_json()
    found.offenders[0].found = Seen(b"<k>", None, 1, ()).to_json()
    found.offenders[0].differs = ["value", "offset header"]
    found.notes, found.faults = ["<note>"], [{"message": "<fault>", "error": "CorruptBatch"}]
    text = page(found)
    reader = _Tags()
    reader.feed(text)
    assert reader.open == []
    assert reader.addresses == []
    assert "<script" not in text
    assert all(raw not in text for raw in ("<k>", "<i>", "<note>", "<fault>", "<b>orders"))
    assert all(word in reader.text for word in ("<b>orders</b>", "altered", "local", "25.00%", "<note>", "<fault>"))
    assert "<mark>null</mark>" in text
    assert json.loads(json.dumps(found.to_json()))["damage"] == {"altered": 1}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "null"),
        (b"", ""),
        (b"plain", "plain"),
        ("Grüße".encode(), "Grüße"),
        (b"\x00\x01", "0x0001"),
        (b"\xff", "0xff"),
        (b"a\nb", "0x610a62"),
        (b"x" * 200, "x" * 96 + "... (200 bytes)"),
    ],
)
def test_bytes_are_shown_short_and_printable(data: bytes | None, text: str) -> None:
    assert printable(data) == text


def test_what_differs_is_named() -> None:
    link = loads(CONFIG).links["orders"]
    errand = Errand(link, None, None, Identities(("id-1",), ()), {})  # type: ignore[arg-type]
    source = Seen(b"k", b"v", 1, (("h", b"x"),))

    def added(origin: bytes, offset: int) -> tuple[tuple[str, bytes], ...]:
        return ("h", b"x"), ("isthmus-origin", origin), ("isthmus-offset", offset.to_bytes(8, "big"))

    for origin in (b"east", b"id-1,orders,17"):
        assert differences(source, Seen(b"k", b"v", 1, added(origin, 7)), errand, 7) == []
    assert differences(source, Seen(b"k", b"v", 1, added(b"south", 7)), errand, 7) == ["origin header"]
    assert differences(source, Seen(b"k", b"v", 1, added(b"east", 8)), errand, 7) == ["offset header"]
    other = Seen(None, b"w", 2, added(b"east", 7)[1:])
    assert differences(source, other, errand, 7) == ["key", "value", "timestamp", "headers"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "yesterday"], "--since yesterday"),
        (["--since", "2026-01-31T08:00:00"], "no zone"),
        (["--sample", "0"], "between 0 and 1"),
        (["--sample", "1.5"], "between 0 and 1"),
        (["--report", "report.txt"], ".html or .json"),
        (["--report", "nowhere/report.html"], "no directory"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text(CONFIG)
    assert cli.main(["verify", "orders", *arguments, "--config", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_link_is_a_usage_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text(CONFIG)
    assert cli.main(["verify", "payments", "--config", str(path)]) == 2
    assert "payments" in capsys.readouterr().err
