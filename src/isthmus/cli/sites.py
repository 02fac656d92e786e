"""``isthmus sites``: which clusters the sites are and were, as the sites themselves know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.config import Config, load
from isthmus.errors import ConnectionFailed, DataError, IsthmusError

if TYPE_CHECKING:
    from isthmus.engine.table import Table

app = typer.Typer(no_args_is_help=True)
REACH_SECONDS = 5.0


@dataclass
class _Seen:
    """Cluster ids of the sites that answer, what each of them knows, and why others do not answer."""

    ids: dict[str, str] = field(default_factory=dict)
    tables: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    roles: dict[str, tuple[float, str]] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    whole: dict[str, Table] = field(default_factory=dict)


def _look(config: Config) -> _Seen:
    from isthmus.cli.connect import connected
    from isthmus.engine.identity import KIND, ids_of, sites_table
    from isthmus.recovery.roles import roles_in

    seen = _Seen()
    for name, site in config.sites.items():
        try:
            with connected(site, timeout=REACH_SECONDS) as (cluster,):
                seen.ids[name] = cluster.cluster_id
                table = cluster.call(sites_table, cluster)
                seen.tables[name] = table.sorted_out(KIND, ids_of)[0]
                seen.whole[name] = table
                # Who was away when roles changed remembers older ones.
                for told, role in roles_in(table).items():
                    seen.roles[told] = max(role, seen.roles.get(told, role))
        except IsthmusError as error:
            seen.away[name] = error.message
    return seen


@app.command("list", epilog=examples("isthmus sites list", "isthmus sites list --json"))
def list_sites(config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Show each site: the cluster that answers, the role that the last failover, failback or reseed left it in, its incarnation,
    the clusters that it was before, whether writers are kept away (fenced), and operations that are not finished.

    Exits with 6 if a site answers as another cluster than the one that is known.
    """
    loaded = load(config)
    from isthmus.engine.identity import newest
    from isthmus.recovery.unfinished import fences, operations, words

    seen = _look(loaded)
    fenced, unfinished = fences(seen.whole), operations(seen.whole)
    known = newest(*seen.tables.values())
    rows: list[dict[str, Any]] = []
    for name in loaded.sites:
        now, were = seen.ids.get(name, ""), known.get(name, [])
        fine = not now or not were or were[-1] == now
        state = (
            "away" if name in seen.away else "known" if were and fine else "not met yet" if fine else "another cluster"
        )
        rows.append(
            {
                "site": name,
                "state": state,
                "role": seen.roles[name][1] if name in seen.roles else None,
                "cluster": now or None,
                "incarnation": len(were) or None,
                "clusters": " ".join(were) if not json else were,
                "fenced": fenced.get(name) if json else ", ".join(fenced.get(name, [])) or None,
            }
        )
        if json:
            rows[-1]["unfinished"] = [each for each in unfinished if name in (each["site"], each["to"])]
    output.emit(rows, json)
    for line in (*seen.away.values(), *words(seen.whole)):
        if not json:
            output.note(line)
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
    seen = _look(loaded)
    if site not in seen.ids:
        raise ConnectionFailed(seen.away[site], site)
    known = identity.newest(*seen.tables.values())
    now: list[str] = known.get(site, [])
    for name, table in seen.tables.items():
        if name == site or site in table:
            with connected(loaded.sites[name], timeout=REACH_SECONDS) as (cluster,):
                now = cluster.call(identity.replace, cluster, site, seen.ids[site], known)
    output.emit({"site": site, "cluster": seen.ids[site], "incarnation": len(now), "clusters": now}, json)
    if seen.away and not json:
        output.note(f"not told, because away: {', '.join(seen.away)}; give the command again when they are back")
