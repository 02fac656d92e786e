"""``isthmus failover``: move work from a site to another."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples
from isthmus.cli.ask import YesOption, agreed
from isthmus.cli.durations import seconds_of
from isthmus.cli.operation import OperationView, offer_to_unfence
from isthmus.config import load
from isthmus.errors import UsageError

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show each step and what it would do; change nothing.")]
AbandonOption = Annotated[
    bool, typer.Option("--abandon", help="Give up an unfinished operation; what was done stays done.")
]
FenceOption = Annotated[
    Literal["acls", "hook", "none"] | None,
    typer.Option(
        help="How writers are kept away: by its ACLs, by its hook, or not (you have stopped them). By default, what there is.",
        metavar="HOW",
    ),
]
TimeoutOption = Annotated[str, typer.Option(metavar="TIME", help="How long to wait for links to catch up.")]


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus failover east --to west --planned --dry-run",
            "isthmus failover east --to west --planned",
            "isthmus failover east --to west --planned --fence none",
            "isthmus failover east --to west --emergency",
        )
    )(failover)


def failover(
    site: Annotated[str, typer.Argument(help="The site that work leaves.")],
    to: Annotated[str, typer.Option("--to", metavar="SITE", help="The site that takes over.")],
    planned: Annotated[bool, typer.Option("--planned", help="Both sites live: drain first, lose nothing.")] = False,
    emergency: Annotated[
        bool, typer.Option("--emergency", help="The old site is dead, or must count as such: declare what is lost.")
    ] = False,
    fence: FenceOption = None,
    timeout: TimeoutOption = "10m",
    dry_run: DryRunOption = False,
    abandon: AbandonOption = False,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Move work from a site to another: fence, drain or declare what is lost, groups, promote, and tell clients what they need.

    Each step is written down at the site that takes over. Killed anywhere, the same command goes on where it stopped. Exits with 0
    when the other site is in service, 4 when it cannot be reached, 6 when going on would lose what a planned move must not lose.
    """
    if planned == emergency:
        raise UsageError("say --planned (both sites live, nothing is lost) or --emergency (the old site is gone)")
    loaded = load(config)
    seconds = seconds_of("--timeout", timeout)
    from isthmus.recovery.failover import failover as carry_out

    view = OperationView(json)
    mode: Literal["planned", "emergency"] = "planned" if planned else "emergency"
    report = carry_out(
        loaded,
        site,
        to,
        mode,
        view.tell,
        fence=fence,
        seconds=seconds,
        dry_run=dry_run,
        abandon=abandon,
        agree=lambda warning: agreed(warning, "Declare as lost what it has not sent, and go on?", yes),
    )
    view.show(report)
    offer_to_unfence(loaded, report)
