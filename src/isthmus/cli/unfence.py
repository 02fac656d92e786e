"""``isthmus unfence``: let writers in again at a site that an operation has fenced."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.ask import YesOption, agreed
from isthmus.config import load


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus unfence east", "isthmus unfence east --yes --json"))(unfence)


def unfence(
    site: Annotated[str, typer.Argument(help="The site whose fence is lifted.")],
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Lift a site's fence: give back the ACLs that were taken away, and run its hook `unfence`.

    For a fence that an abandoned operation has left. A failover lifts the fence of the site that takes over by itself, and leaves the other
    one fenced on purpose: where another site is in service, lifting it lets clients write at both. Given again, it changes nothing. Exits
    with 0 when the site is not fenced any more, 6 while an operation that needs the fence is unfinished.
    """
    loaded = load(config)
    loaded.site(site)
    from isthmus.recovery.unfencing import lift, serving_instead

    other = serving_instead(loaded, site)
    warning = f"{other} is in service instead of {site}: with the fence lifted, clients can write at both"
    if other and not agreed(warning, f"Lift the fence of {site} all the same?", yes):
        raise typer.Abort
    back = lift(loaded, site)
    output.emit({"site": site, "fenced": False, "given_back": back if json else ", ".join(back) or "nothing"}, json)
