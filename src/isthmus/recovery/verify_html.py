"""The report as one page that needs nothing else: no network, no script.

Invariant: everything that comes from records, topics or configurations is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from isthmus.recovery.verify_compare import DAMAGE
from isthmus.recovery.verify_report import Found, Report, copy_of, explained_kinds, words_of

MEANINGS = {
    "compared": "the same on both sides",
    "missing": "wanted, before the watermark, and not at its place",
    "doubled": "a second copy of a source offset, outside of the map",
    "out_of_order": "at its place stands another record of the same source partition",
    "altered": "at its place stands something else: key, value, headers or time",
    "looped": "born at the destination, and come back",
    "unexpected": "copied by no link, where only links write",
    "expired": "deleted by retention, or by somebody, on one side",
    "compacted": "superseded, and deleted by compaction on one side",
    "dropped": "left out by the link's rules",
    "before_start": "written before the link began",
    "stranded": "set aside at a failback",
    "others": "copied by another link, or from an earlier topic of this name",
    "local": "written at the destination by applications",
    "returned": "written at the destination while it served, and brought home: judged on the way home",
}

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2330; background: #fff; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.verdict { padding: .8rem 1rem; border-radius: .4rem; font-size: 1.1rem }
.clean { background: #e3f4e6; border-left: .4rem solid #2e7d3a } .damaged { background: #fbe6e4; border-left: .4rem solid #b3261e }
table { border-collapse: collapse; margin: .6rem 0; display: block; overflow-x: auto }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #dde1e8; vertical-align: top }
th { background: #f3f5f8; font-weight: 600 } td.n { text-align: right; font-variant-numeric: tabular-nums }
td.bad { color: #b3261e; font-weight: 600 } code { font-size: .88em; word-break: break-all }
.card { border: 1px solid #dde1e8; border-radius: .4rem; padding: .6rem 1rem; margin: .7rem 0 } .quiet { color: #5d6675 }
mark { background: #ffe3a6 }
@media (prefers-color-scheme: dark) {
  body { background: #14171d; color: #dfe3ea } th { background: #20252e } th, td, .card { border-color: #343b47 }
  .clean { background: #16301b } .damaged { background: #3a1a18 } td.bad { color: #ff8a80 } .quiet { color: #9aa4b3 } mark { background: #6b5210; color: inherit }
}
"""


def page(report: Report) -> str:
    """The whole page."""
    title = f"Verify: link {report.link}, {report.source} to {report.target}"
    kind = "clean" if report.clean else "damaged"
    facts = [
        f"started {report.started}",
        f"took {report.seconds:.1f} s",
        f"{len(report.partitions)} partitions in {report.units} units",
        f"{report.bytes / 1e6:.1f} MB read",
    ]
    if report.since:
        facts.append(f"records since {report.since}")
    if report.sample < 1:
        facts.append(f"a sample: {report.sample:.2%} of the ranges")
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(", ".join(facts))}</p>',
        f'<p class="verdict {kind}">{escape(report.verdict)}</p>',
        "<h2>By class</h2>",
        _classes(report),
        "<h2>By topic</h2>",
        _topics(report),
    ]
    if report.offenders:
        body += ["<h2>The first of each class</h2>", *(_card(found) for found in report.offenders)]
    if report.faults:
        rows = [
            (fault.get("error"), fault.get("topic"), fault.get("partition"), fault["message"])
            for fault in report.faults
        ]
        body += ["<h2>Could not be judged</h2>", _table(("error", "topic", "partition", "why"), rows)]
    if report.not_judged:
        words = "Records of one side only: whether something is missing or too many among them, nobody can tell."
        places = [f"<li>{escape(each)}</li>" for each in report.not_judged_words]
        body += ["<h2>Not judged</h2>", f"<p>{words}</p>", "<ul>", *places, "</ul>"]
    if report.notes:
        body += ["<h2>Notes</h2>", "<ul>", *(f"<li>{escape(note)}</li>" for note in report.notes), "</ul>"]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        "<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _kinds(report: Report) -> list[str]:
    return ["compared", *DAMAGE, *explained_kinds(report)]


def _classes(report: Report) -> str:
    totals = report.totals
    return _table(
        ("class", "records", "means"),
        [(words_of(kind), totals[kind], MEANINGS[kind]) for kind in _kinds(report)],
        DAMAGE,
    )


def _topics(report: Report) -> str:
    kinds = _kinds(report)
    rows = [(row["topic"], copy_of(row), row["partitions"], *(row[kind] for kind in kinds)) for row in report.topics()]
    return _table(("topic", "copy", "partitions", *map(words_of, kinds)), rows, DAMAGE)


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]], damage: Sequence[str] = ()) -> str:
    bad = {words_of(kind) for kind in damage}
    lines = ["<table><thead><tr>", *(f"<th>{escape(name)}</th>" for name in header), "</tr></thead><tbody>"]
    for row in rows:
        lines.append("<tr>")
        for name, cell in zip(header, row, strict=True):
            number = isinstance(cell, int)
            wrong = number and bool(cell) and (name in bad or row[0] in bad)
            css = " ".join((["n"] if number else []) + (["bad"] if wrong else []))
            lines.append(f'<td class="{css}">{escape(str(cell))}</td>' if css else f"<td>{escape(str(cell))}</td>")
        lines.append("</tr>")
    return "".join([*lines, "</tbody></table>"])


def _card(found: Found) -> str:
    head = f'<div class="card"><b>{escape(found.words)}</b>'
    if not found.expected and not found.found:
        return head + "</div>"
    marked = {"headers" if part.endswith("header") else part for part in found.differs}
    lines = []
    for part in ("key", "value", "timestamp", "headers"):
        cells = []
        for side in (found.expected, found.found):
            text = escape(side.get(part, ""))
            cells.append(f"<td><code>{f'<mark>{text}</mark>' if part in marked and text else text}</code></td>")
        lines.append(f"<tr><th>{part}</th>{''.join(cells)}</tr>")
    table = f"<table><tr><th></th><th>expected</th><th>found</th></tr>{''.join(lines)}</table>"
    return f"{head}{table}</div>"
