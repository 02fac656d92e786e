"""``isthmus state``: what Isthmus keeps at the sites, and whose word it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.ask import YesOption, agreed
from isthmus.config import Config, Site, load
from isthmus.errors import ConfigError, DataError

app = typer.Typer(no_args_is_help=True)
SitesArgument = Annotated[list[str] | None, typer.Argument(metavar="[SITE]...", help="The sites; without any, all.")]
SHOWN = 60


def _sites(config: Config, names: list[str] | None) -> list[Site]:
    return [config.site(name) for name in names] if names else list(config.sites.values())


@app.command(epilog=examples("isthmus state show", "isthmus state show west --json"))
def show(sites: SitesArgument = None, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Show each record that Isthmus keeps in its tables at the sites: operations, fences, what links have set up, what is asked of them.

    Says who signed it, and whether it counts. Without `state.secret` nothing is signed, and everything counts. Exits with 6 if something is
    there that does not count: it was written by somebody else, or by a version that did not sign.
    """
    loaded = load(config)
    from isthmus.cli.connect import connected
    from isthmus.control.kept import kept, shown, tables

    rows: list[dict[str, Any]] = []
    more = 0
    for site in _sites(loaded, sites):
        with connected(site) as (cluster,):
            for topic in cluster.call(tables, cluster):
                look = cluster.call(kept, cluster, topic)
                rows += [{"site": site.name, **each} for each in shown(topic, look)]
                more += look.forged - len(look.strangers) if look.signed else 0
    odd = more + sum(not row["counts"] for row in rows)
    if not json:
        for row in rows:
            row["counts"] = "yes" if row["counts"] else "no"
            row["value"] = "-" if row["value"] is None else row["value"][:SHOWN]
    output.emit(rows if rows or json else "nothing is kept", json)
    if more:
        output.note(f"{more} more records that are not signed by us are not shown")
    if odd:
        if json:
            raise typer.Exit(DataError.exit_code)
        raise DataError(
            f"{odd} records do not count. If they are yours, from before state was signed, `isthmus state sign` signs them; if not, "
            "somebody else can write these topics: find out who, and take the right away"
        )


@app.command(epilog=examples("isthmus state sign", "isthmus state sign west --yes"))
def sign(
    sites: SitesArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="In tables that are signed, sign also what is not: a secret was lost.")
    ] = False,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Sign what Isthmus keeps at the sites with `state.secret`: once when the secret is set, and after each change of it.

    Look at it first with `isthmus state show`: what is signed is believed. A site that keeps nothing yet gets a table that is signed, so that nobody
    else can begin it. Links may run meanwhile. Given again, it changes nothing.
    """
    loaded = load(config)
    if loaded.state is None:
        raise ConfigError(f"{config}: there is no secret to sign with: set state.secret")
    from isthmus.cli.connect import connected
    from isthmus.control.kept import check, kept, sign_all, tables, to_sign
    from isthmus.engine.state import SITES_TOPIC

    rows: list[dict[str, Any]] = []
    for site in _sites(loaded, sites):
        with connected(site) as (cluster,):
            found = {topic: cluster.call(kept, cluster, topic) for topic in cluster.call(tables, cluster)}
            for topic, look in found.items():
                check(cluster, topic, look, everything)
            count = sum(len(to_sign(look, everything)) for look in found.values())
            warning = f"site {site.name}: {count} records are signed, and believed from then on"
            if count and not agreed(warning, "Have you looked at them, and are they yours?", yes):
                raise typer.Abort
            for topic in {**found, SITES_TOPIC: None}:
                signed = cluster.call(sign_all, cluster, topic, everything)
                rows.append({"site": site.name, "topic": topic, "signed": len(signed)})
    output.emit(rows if rows or json else "nothing is kept", json)


@app.command(epilog=examples("isthmus state forget west _isthmus.sites site/east"))
def forget(
    site: Annotated[str, typer.Argument(help="The site that keeps it.")],
    topic: Annotated[str, typer.Argument(help="The table, as `isthmus state show` names it.")],
    key: Annotated[str, typer.Argument(help="The record's key.")],
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Take one record away from a table: one that cannot be read, or that somebody else wrote.

    What it said is forgotten: a fence would not be lifted any more, an operation not be gone on with. Exits with 2 if there is no such record.
    """
    loaded = load(config)
    from isthmus.cli.connect import connected
    from isthmus.control.kept import forget as take_away

    place = loaded.site(site)
    if not agreed(f"{topic} at site {site} forgets {key}", "Take the record away?", yes):
        raise typer.Abort
    with connected(place) as (cluster,):
        cluster.call(take_away, cluster, topic, key)
    output.emit({"site": site, "topic": topic, "forgotten": key}, json)
