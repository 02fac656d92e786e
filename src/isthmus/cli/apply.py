"""``isthmus apply``: carry out what ``isthmus plan`` shows. Idempotent; a crash half-way needs only another apply."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.links import chosen_links
from isthmus.config import load
from isthmus.errors import AuthorisationFailed, IsthmusError


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus apply", "isthmus apply orders-link --json"))(apply)


def apply(
    links: Annotated[
        list[str] | None, typer.Argument(metavar="[LINK]...", help="Links to apply; all by default.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Bring the destination in step: topics, their settings, ACLs, schemas, consumer groups.

    A second run changes nothing. Exits with 0 when all is done, 1 when something failed (5 when a right is missing), and
    21 when something should change and cannot.
    """
    loaded = load(config)
    chosen = chosen_links(loaded, links)
    from isthmus.cli.changes import BLOCKED, missing_rights, show_outcomes, show_plan, show_rights
    from isthmus.control.resources import apply_link

    document, failed, stuck, unauthorised = [], 0, 0, False
    for link in chosen:
        said, outcomes = apply_link(loaded, link)
        told = [change for change in said if change.told]
        blocked = [change for change in said if change.action == "blocked"]
        failures = [outcome for outcome in outcomes if not outcome.done]
        failed, stuck = failed + len(failures), stuck + len(blocked)
        unauthorised |= any(outcome.needs for outcome in failures)
        needs = missing_rights([*blocked, *failures])
        document.append(
            {
                "link": link.name,
                "from": link.source,
                "to": link.target,
                "outcomes": [outcome.to_json() for outcome in outcomes],
                "left": [change.to_json() for change in told],
                "missing_rights": needs,
            }
        )
        if json:
            continue
        if told:
            show_plan(link, told, everything=True)
        show_outcomes(outcomes)
        show_rights(failures)
        output.note(
            f"link {link.name}: {len(outcomes) - len(failures)} done, {len(failures)} failed, {len(blocked)} blocked"
        )
    if json:
        output.emit(document, json_mode=True)
    if failed:
        raise typer.Exit(AuthorisationFailed.exit_code if unauthorised else IsthmusError.exit_code)
    if stuck:
        raise typer.Exit(BLOCKED)
