"""``isthmus drill``: rehearse the emergency."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.durations import seconds_of
from isthmus.cli.operation import OperationView
from isthmus.cli.reports import check_reports, write_report
from isthmus.config import load
from isthmus.errors import Damaged, UsageError

if TYPE_CHECKING:
    from isthmus.recovery.drill_report import DrillReport


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus drill",
            "isthmus drill --site east --scenario rebuild --report drill.html",
            "isthmus drill --live --seconds 30s --json",
        )
    )(drill)


def drill(
    site: Annotated[
        str | None,
        typer.Option(metavar="SITE", help="The site that dies; the source of the first link by default."),
    ] = None,
    scenario: Annotated[
        Literal["switch", "return", "rebuild"] | None,
        typer.Option(
            help="switch: planned, there and back. return: it dies and returns with its data (default). rebuild: it returns empty.",
            metavar="SCENARIO",
        ),
    ] = None,
    rate: Annotated[float, typer.Option(metavar="N", help="Records a second that each writer writes.")] = 200.0,
    seconds: Annotated[str, typer.Option(metavar="TIME", help="How long traffic flows before and after.")] = "8s",
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A topic that takes part, where links have expressions; may be given again."),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the report there, as FILE.html or FILE.json; may be given again."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="At the real sites, with a scratch topic: a planned move there and back.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Rehearse the emergency with your configuration, and report how long it took and what it cost.

    Local brokers take the names of your sites; your sites, hooks and secrets are not touched. With --live the real sites are used: a scratch
    topic and a scratch link, which are deleted in the end; nothing is killed. Exits with 0 when the rehearsal is clean, 6 when it is not.
    """
    check_reports(report or [])
    if not 1 <= rate <= 10_000:
        raise UsageError(f"--rate {rate:g}: expected 1 to 10000 records a second")
    length = seconds_of("--seconds", seconds)
    if live and scenario not in (None, "switch"):
        raise UsageError(f"--live kills nothing, so it cannot play {scenario}; it plays switch")
    if live and topic:
        raise UsageError("--live makes a scratch topic of its own; leave --topic out")
    loaded = load(config)
    view = OperationView(json)
    with _ending_cleanly():
        if live:
            from isthmus.recovery.drill_live import live_drill

            found = live_drill(loaded, view.tell, site=site, rate=rate, seconds=length)
        else:
            from isthmus.recovery.drill import drill as rehearse

            found = rehearse(
                loaded,
                view.tell,
                site=site,
                scenario=scenario or "return",
                rate=rate,
                seconds=length,
                topics=tuple(topic or ()),
            )
    from isthmus.recovery.drill_html import page

    for path in report or []:
        write_report(path, lambda: page(found), found.to_json)
    if json:
        output.emit(found.to_json(), json_mode=True)
        raise typer.Exit(0 if found.clean else Damaged.exit_code)
    _show(found)
    if not found.clean:
        raise Damaged(f"the drill was {found.verdict}")


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: whatever was started or made is taken away first."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(found: DrillReport) -> None:
    from isthmus.recovery.drill_html import facts

    output.emit({"drill": found.title, **dict(facts(found))}, json_mode=False)
    if found.sites:
        output.emit(
            [
                {name: row[name] for name in ("site", "held", "missing", "doubled", "out_of_order")}
                for row in found.sites
            ],
            json_mode=False,
        )
    for row in found.verified:
        output.emit(f"link {row['link']}: {row['verdict']}", json_mode=False)
    for note in found.notes:
        output.note(f"note: {note}")
    if found.clean:
        output.note(found.verdict)
