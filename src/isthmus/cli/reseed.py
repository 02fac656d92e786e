"""``isthmus reseed``: rebuild a site that was lost with its data."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples
from isthmus.cli.ask import YesOption, agreed
from isthmus.cli.durations import seconds_of
from isthmus.cli.failover import AbandonOption, DryRunOption, TimeoutOption
from isthmus.cli.operation import OperationView
from isthmus.config import load


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus reseed east --from west --dry-run",
            "isthmus reseed east --from west",
            "isthmus reseed east --from west --wipe",
        )
    )(reseed)


def reseed(
    site: Annotated[str, typer.Argument(help="The site to rebuild; it stands empty.")],
    survivor: Annotated[str, typer.Option("--from", metavar="SITE", help="The site that has everything.")],
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Delete what is left of the links' topics at the site first.")
    ] = False,
    verify: Annotated[bool, typer.Option(help="Compare both sites in the end.")] = True,
    timeout: TimeoutOption = "24h",
    dry_run: DryRunOption = False,
    abandon: AbandonOption = False,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Rebuild a site from the survivor, so that both look as before the outage: records born at the lost site come back without an
    origin, the survivor's get it; groups, ACLs and schemas included. Traffic at the survivor goes on meanwhile.

    The links between the two rest, and go on exactly behind what was seeded. Killed anywhere, the same command goes on where it
    stopped. Exits with 0 when both sites are the same, 6 when they are not, or when the site is not empty.
    """
    loaded = load(config)
    seconds = seconds_of("--timeout", timeout)
    from isthmus.recovery.reseed import reseed as carry_out

    warning = f"{site} is rebuilt from {survivor}: what is left there of the links' topics and state is deleted, and {survivor} is taken for the truth"
    if not (dry_run or abandon) and not agreed(warning, f"Rebuild {site}?", yes):
        raise typer.Abort
    view = OperationView(json)
    view.show(
        carry_out(
            loaded,
            site,
            survivor,
            view.tell,
            wipe=wipe,
            verify=verify,
            seconds=seconds,
            dry_run=dry_run,
            abandon=abandon,
        )
    )
