"""``isthmus failback``: bring work home."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples
from isthmus.cli.durations import seconds_of
from isthmus.cli.failover import AbandonOption, DryRunOption, FenceOption, TimeoutOption
from isthmus.cli.operation import OperationView, offer_to_unfence
from isthmus.config import load


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus failback east --dry-run",
            "isthmus failback east",
            "isthmus failback east --stranded set-aside",
        )
    )(failback)


def failback(
    site: Annotated[str, typer.Argument(help="The site that has returned, with its data.")],
    away: Annotated[
        str | None,
        typer.Option("--from", metavar="SITE", help="The site that serves instead; as remembered by default."),
    ] = None,
    stranded: Annotated[
        Literal["append", "set-aside"],
        typer.Option(
            help="Records that never made it across: append them there, or set them aside in TOPIC.stranded.",
            metavar="POLICY",
        ),
    ] = "append",
    verify: Annotated[bool, typer.Option(help="Compare both sites in the end.")] = True,
    fence: FenceOption = None,
    timeout: TimeoutOption = "24h",
    dry_run: DryRunOption = False,
    abandon: AbandonOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Bring work home to a site that has returned with its data: only what was written since is copied, nothing comes twice.

    For a site that returned without its data, see `isthmus reseed`. Killed anywhere, the same command goes on where it stopped.
    Exits with 0 when work is home and both sites are the same, 6 when they are not, or when the site has lost data.
    """
    loaded = load(config)
    seconds = seconds_of("--timeout", timeout)
    from isthmus.recovery.failback import failback as carry_out

    view = OperationView(json)
    report = carry_out(
        loaded,
        site,
        view.tell,
        away=away,
        policy=stranded,
        fence=fence,
        verify=verify,
        seconds=seconds,
        dry_run=dry_run,
        abandon=abandon,
    )
    view.show(report)
    offer_to_unfence(loaded, report)
