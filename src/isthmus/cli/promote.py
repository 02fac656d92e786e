"""``isthmus promote`` and ``isthmus demote``: who may write at a link's destination. The source is not asked."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.config import load

LinkArgument = Annotated[str, typer.Argument(metavar="LINK", help="The link whose destination it is.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus promote orders-link", "isthmus promote orders-link --dry-run --json"))(promote)
    app.command(epilog=examples("isthmus demote orders-link", "isthmus demote orders-link --json"))(demote)


def promote(
    link: LinkArgument, dry_run: DryRun = False, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False
) -> None:
    """Let clients write at a link's destination: grant the ACLs that were staged there, and open its registry.

    It works without the source: everything is remembered at the destination. A second run changes nothing. Exits with 0 when
    all is done, 1 when something failed (5 when a right is missing).
    """
    _switch(link, True, dry_run, config, json)


def demote(
    link: LinkArgument, dry_run: DryRun = False, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False
) -> None:
    """Make a link's destination a standby again: take back what the link let clients write with, and close its registry.

    What is taken is staged for the next promotion. Exits as `isthmus promote` does.
    """
    _switch(link, False, dry_run, config, json)


def _switch(name: str, promoted: bool, dry_run: bool, config: ConfigOption, json: bool) -> None:
    loaded = load(config)
    link = loaded.link(name)
    from isthmus.cli.changes import missing_rights, show_outcomes, show_plan, show_rights
    from isthmus.cli.connect import connected
    from isthmus.control import promote as verbs
    from isthmus.control.change import Change, Outcome
    from isthmus.errors import AuthorisationFailed, IsthmusError

    changes: list[Change] = []
    outcomes: list[Outcome] = []
    with connected(loaded.sites[link.target]) as (target,):
        if dry_run:
            changes = target.call(verbs.plan_promotion if promoted else verbs.plan_demotion, target, link)
        else:
            outcomes = target.call(verbs.promote if promoted else verbs.demote, target, link)
    failures = [outcome for outcome in outcomes if not outcome.done]
    if json:
        document = {
            "link": name,
            "site": link.target,
            "promoted": promoted,
            "dry_run": dry_run,
            "changes": [each.to_json() for each in (changes if dry_run else outcomes)],
            "missing_rights": missing_rights([*changes, *outcomes]),
        }
        output.emit(document, json_mode=True)
    elif dry_run and changes:
        show_plan(link, changes, everything=True)
    else:
        show_outcomes(outcomes)
        show_rights(failures)
        state = "promoted" if promoted else "a standby"
        words = f"{len(outcomes) - len(failures)} changed, {len(failures)} failed" if outcomes else "nothing to change"
        output.note(f"site {link.target} {'would be' if dry_run else 'is'} {state} for link {name}: {words}")
    if failures:
        unauthorised = any(outcome.needs for outcome in failures)
        raise typer.Exit(AuthorisationFailed.exit_code if unauthorised else IsthmusError.exit_code)
