"""A drill's report as one page that needs nothing else: no network, no script.

Invariant: everything that comes from a configuration or a cluster is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from isthmus.recovery.drill_report import SCENARIOS, DrillReport
from isthmus.recovery.timeline import svg

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2330; background: #fff; max-width: 78rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.verdict { padding: .8rem 1rem; border-radius: .4rem; font-size: 1.1rem }
.clean { background: #e3f4e6; border-left: .4rem solid #2e7d3a } .dirty { background: #fbe6e4; border-left: .4rem solid #b3261e }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem; margin: 1rem 0 }
.fact { border: 1px solid #dde1e8; border-radius: .4rem; padding: .6rem .9rem } .fact b { display: block; font-size: 1.35rem }
table { border-collapse: collapse; margin: .6rem 0; display: block; overflow-x: auto }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #dde1e8; vertical-align: top }
th { background: #f3f5f8; font-weight: 600 } td.n { text-align: right; font-variant-numeric: tabular-nums }
.quiet { color: #5d6675 } svg { margin: .6rem 0 }
@media (prefers-color-scheme: dark) {
  body { background: #14171d; color: #dfe3ea } th { background: #20252e } th, td, .fact { border-color: #343b47 }
  .clean { background: #16301b } .dirty { background: #3a1a18 } .quiet { color: #9aa4b3 }
}
"""


def facts(report: DrillReport) -> list[tuple[str, str]]:
    """What people ask first, in words and numbers."""
    loss, readers = report.loss, report.readers
    found = [
        ("in service elsewhere after (RTO)", _seconds(report.rto_seconds)),
        ("declared: seen and not copied (RPO)", f"{loss.declared_records} records, {loss.declared_seconds:.1f} s"),
        ("had not arrived, counted (RPO)", f"{loss.true_records} records, {loss.true_seconds:.1f} s"),
    ]
    if not loss.at_most:
        found.insert(2, ("and what came after that is not known", _window(loss.unknown_since_seconds)))
    if report.stranded is not None:
        found.append(("found stranded, and brought home", f"{report.stranded} records"))
    if report.scenario == "rebuild":
        found.append(("lost with the site's data", f"{report.gone} records"))
    return [
        *found,
        ("the way home took writers", _seconds(report.home_rto_seconds)),
        ("acknowledged in all", f"{sum(report.acknowledged.values())} records"),
        ("read twice by the group", f"{readers.read_twice} records"),
        ("skipped by the group", f"{len(readers.skipped)} records"),
    ]


def page(report: DrillReport) -> str:
    """The whole page."""
    ended = report.timeline.ended or report.began
    where = (
        "at the real sites, with a scratch topic; nothing was killed"
        if report.live
        else "on this machine, with local brokers that took the sites' names"
    )
    body = [
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="quiet">{escape(SCENARIOS[report.scenario])}; {where}. It took {ended - report.began:.0f} s; '
        f"links {escape(', '.join(report.links))}; {report.rate:g} records/s.</p>",
        f'<p class="verdict {"clean" if report.clean else "dirty"}">{escape(report.verdict)}</p>',
        '<div class="facts">',
        *(f'<div class="fact"><b>{escape(value)}</b>{escape(name)}</div>' for name, value in facts(report)),
        "</div>",
        "<h2>When</h2>",
        svg(report.timeline, report.title),
        "<h2>Each record at each site</h2>",
        _table(
            ("site", "held", "missing", "twice", "out of order"),
            [(s["site"], s["held"], s["missing"], s["doubled"], s["out_of_order"]) for s in report.sites],
        ),
        "<h2>Compared</h2>",
        _table(("link", "verdict"), [(v["link"], v["verdict"]) for v in report.verified]),
        "<h2>Steps</h2>",
    ]
    for operation in report.operations:
        name = " ".join(filter(None, (operation["mode"], operation["operation"])))
        rows = [
            (step["step"], f"{step['at'] - report.began:.1f} s", f"{step['seconds']:.2f} s")
            for step in operation["steps"]
        ]
        body += [f"<h3>{escape(name)}: {operation['seconds']:.1f} s</h3>", _table(("step", "began at", "took"), rows)]
    if report.notes:
        body += ["<h2>Notes</h2>", "<ul>", *(f"<li>{escape(note)}</li>" for note in report.notes), "</ul>"]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(report.title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        "<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _window(seconds: float | None) -> str:
    if seconds is None:
        return "never asked"
    return f"the last {math.ceil(seconds * 100) / 100:.2f} s before the command"


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f} s"


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["<table><thead><tr>", *(f"<th>{escape(name)}</th>" for name in header), "</tr></thead><tbody>"]
    for row in rows:
        cells = (
            f'<td class="n">{cell}</td>' if isinstance(cell, int) else f"<td>{escape(str(cell))}</td>" for cell in row
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*lines, "</tbody></table>"])
