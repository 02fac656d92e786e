"""``isthmus plan``: what would change at the destinations, and why. Changes nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.links import chosen_links
from isthmus.config import load


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus plan", "isthmus plan orders-link --all", "isthmus plan --json"))(plan)


def plan(
    links: Annotated[
        list[str] | None, typer.Argument(metavar="[LINK]...", help="Links to plan; all by default.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    everything: Annotated[bool, typer.Option("--all", help="Also list what is left alone.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what would change at the destination: topics, their settings, ACLs, schemas, consumer groups; and why.

    Exits with 0 when there is nothing to do, 20 when there are changes for `isthmus apply`, and 21 when something should
    change and cannot.
    """
    loaded = load(config)
    chosen = chosen_links(loaded, links)
    from isthmus.cli.changes import exit_code, missing_rights, show_plan, summary
    from isthmus.control.resources import plan_links

    plans = plan_links(loaded, chosen)
    code = exit_code(change for each in plans for change in each.changes)
    if json:
        document = [
            {
                "link": each.link.name,
                "from": each.link.source,
                "to": each.link.target,
                "summary": summary(each.changes),
                "missing_rights": missing_rights(each.changes),
                "changes": [change.to_json() for change in each.changes],
            }
            for each in plans
        ]
        output.emit(document, json_mode=True)
    else:
        for each in plans:
            show_plan(each.link, each.changes, everything)
    if code:
        raise typer.Exit(code)
