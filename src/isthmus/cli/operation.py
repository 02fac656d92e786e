"""How an operation of recovery is shown: its steps as they go, then the report. With ``--json``, the report alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from isthmus.cli import output
from isthmus.cli.ask import on_terminal

if TYPE_CHECKING:
    from isthmus.config import Config
    from isthmus.recovery.operation import Telling


def offer_to_unfence(config: Config, report: dict[str, Any]) -> None:
    """An operation that was abandoned may have left a fence: on a terminal it can be lifted at once."""
    for site in report.get("fenced", []):
        if on_terminal() and typer.confirm(f"Let writers in at {site} again?", default=False, err=True):
            from isthmus.recovery.unfencing import lift

            lift(config, site)
            output.note(f"{site} is not fenced any more")


class OperationView:
    """Tells an operation's steps on stderr, so that stdout carries the report alone."""

    def __init__(self, json: bool) -> None:
        self._json = json

    def tell(self, telling: Telling) -> None:
        now = time.strftime("%H:%M:%S")
        if telling.state == "begins":
            output.note(f"{now}  {telling.step}: {telling.words}")
        elif telling.state == "done":
            output.note(f"{now}  {telling.step}: done in {telling.seconds:.1f} s{_short(telling.found)}")
        elif telling.state == "before":
            output.note(f"{now}  {telling.step}: done before")
        else:
            output.note(f"{now}  {telling.step + ': ' if telling.step else ''}{telling.words}")

    def show(self, report: dict[str, Any]) -> None:
        if self._json:
            output.emit(report, json_mode=True)
        elif report.get("dry_run"):
            self._preview(report)
        else:
            output.emit(_summary(report), json_mode=False)

    def _preview(self, report: dict[str, Any]) -> None:
        rows = []
        for number, step in enumerate(report["steps"], 1):
            for place, line in enumerate(step["now"] or [""]):
                first = place == 0
                rows.append(
                    {
                        "": number if first else "",
                        "step": step["step"] if first else "",
                        "what it does": step["does"] if first else "",
                        "now": line,
                    }
                )
        output.emit(rows, json_mode=False)
        output.note("nothing was changed; without --dry-run it is done")


def _short(found: dict[str, Any] | None) -> str:
    """What a step found that is worth a line."""
    words = []
    for key in ("rpo_records", "rpo_seconds", "records", "partitions", "incarnation"):
        if found and key in found and not isinstance(found[key], (list, dict)):
            words.append(f"{key.replace('_', ' ')} {found[key]}")
    return f" ({', '.join(words)})" if words else ""


def _beyond(report: dict[str, Any]) -> str:
    """How far the number of an emergency can be wrong."""
    if report["at_most"]:
        return "nothing: the old site was fenced, and every partition answered after that"
    from isthmus.recovery.losses import clock

    if report["known_until"] is None:
        return "not known: no report tells when the old site was last asked"
    more = len(report["unknown"]) + report["unknown_more"]
    named = f"; of {more} partitions less is known (declare, above)" if more else ""
    return f"not known: what was acknowledged after {clock(report['known_until'])}{named}"


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    """The report as two columns that people read."""
    shown: dict[str, Any] = {
        "operation": " ".join(filter(None, (report["mode"], report["operation"], "of", report["site"]))),
        "other site": report["to"],
        "took": f"{report['seconds']:.1f} s in {len(report['steps'])} steps",
    }
    if report["abandoned"]:
        shown["state"] = "abandoned: what was done stays done, and the next operation begins anew"
    names = {
        "rto_seconds": "ready after (RTO)",
        "outage_seconds": "since the old site was last heard",
        "rpo_records": "seen there and not copied (RPO)",
        "rpo_seconds": "behind by (RPO)",
        "stranded_records": "stranded records",
    }
    for key, name in names.items():
        if report.get(key) is not None:
            shown[name] = f"{report[key]:.1f} s" if key.endswith("_seconds") else report[key]
    if report["mode"] == "emergency" and "at_most" in report:
        shown["lost beyond that"] = _beyond(report)
    clients = report.get("clients")
    if clients:
        shown["clients connect to"] = clients["bootstrap"]
        if clients["registry"]:
            shown["schema registry"] = clients["registry"]
        shown["groups ready"] = ", ".join(clients["groups"]) or "none"
    return shown
