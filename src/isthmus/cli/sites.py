"""``isthmus sites``: which clusters the sites are and were, as the sites themselves know it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.config import Config, load
from isthmus.errors import ConnectionFailed, DataError, IsthmusError

app = typer.Typer(no_args_is_help=True)
REACH_SECONDS = 5.0


def _look(config: Config) -> tuple[dict[str, str], dict[str, dict[str, list[str]]], dict[str, str]]:
    """Cluster ids of the sites that answer, what each of them knows, and why others do not answer."""
    from isthmus.cli.connect import connected
    from isthmus.engine.identity import incarnations

    ids: dict[str, str] = {}
    tables: dict[str, dict[str, list[str]]] = {}
    away: dict[str, str] = {}
    for name, site in config.sites.items():
        try:
            with connected(site, timeout=REACH_SECONDS) as (cluster,):
                ids[name] = cluster.cluster_id
                tables[name] = cluster.call(incarnations, cluster)
        except IsthmusError as error:
            away[name] = error.message
    return ids, tables, away


@app.command("list", epilog=examples("isthmus sites list", "isthmus sites list --json"))
def list_sites(config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Show each site: the cluster that answers, its incarnation, and the clusters that it was before.

    Exits with 6 if a site answers as another cluster than the one that is known.
    """
    loaded = load(config)
    from isthmus.engine.identity import newest

    ids, tables, away = _look(loaded)
    known = newest(*tables.values())
    rows: list[dict[str, Any]] = []
    for name in loaded.sites:
        now, were = ids.get(name, ""), known.get(name, [])
        fine = not now or not were or were[-1] == now
        state = "away" if name in away else "known" if were and fine else "not met yet" if fine else "another cluster"
        rows.append(
            {
                "site": name,
                "state": state,
                "cluster": now or None,
                "incarnation": len(were) or None,
                "clusters": " ".join(were) if not json else were,
            }
        )
    output.emit(rows, json)
    for words in away.values():
        if not json:
            output.note(words)
    wrong = [row["site"] for row in rows if row["state"] == "another cluster"]
    if wrong:
        if json:
            raise typer.Exit(DataError.exit_code)
        raise DataError(
            f"{', '.join(wrong)}: another cluster than the one that is known. If it was lost, `isthmus reseed` rebuilds it; if it was "
            "replaced by hand, `isthmus sites replace` says so"
        )


@app.command(epilog=examples("isthmus sites replace east"))
def replace(
    site: Annotated[str, typer.Argument(help="The site that is another cluster now, on purpose.")],
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Say that a site was replaced by hand: the cluster that answers now is its next incarnation.

    Links that have copied from or to the old cluster still refuse the new one, since their positions mean nothing there; replicate
    under a new link name. For a site that was lost, `isthmus reseed` does all of it.
    """
    loaded = load(config)
    from isthmus.cli.connect import connected
    from isthmus.engine import identity

    loaded.site(site)
    ids, tables, away = _look(loaded)
    if site not in ids:
        raise ConnectionFailed(away[site], site)
    known = identity.newest(*tables.values())
    now: list[str] = known.get(site, [])
    for name, table in tables.items():
        if name == site or site in table:
            with connected(loaded.sites[name], timeout=REACH_SECONDS) as (cluster,):
                now = cluster.call(identity.replace, cluster, site, ids[site], known)
    output.emit({"site": site, "cluster": ids[site], "incarnation": len(now), "clusters": now}, json)
    if away and not json:
        output.note(f"not told, because away: {', '.join(away)}; give the command again when they are back")
