"""``isthmus status``: how far each link has come, read from the sites; works whoever runs the link, or nobody."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.link_table import link_table
from isthmus.cli.links import chosen_links
from isthmus.config import load

if TYPE_CHECKING:
    from isthmus.engine.snapshot import Observer

# Somebody waits for the answer: a site that is plainly away is told at once, one that is silent a little later.
REACH_SECONDS, PATIENCE_SECONDS = 6.0, 1.0


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus status", "isthmus status orders --watch", "isthmus status --json"))(status)


def status(
    links: Annotated[
        list[str] | None, typer.Argument(metavar="[LINK]...", help="Links to show; all by default.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every two seconds until Ctrl-C.")] = False,
    rows: Annotated[int, typer.Option(help="Most partitions to show for a link.", min=1)] = 200,
    json: JsonOption = False,
) -> None:
    """Show each link's partitions: position, log end, lag, rates, and why a partition stands still.

    Exits with 6 if one does, with 4 if a site does not answer: what the other one knows is shown all the same. With --json and
    --watch, one document a line. Operations that are not finished, and sites that are fenced, are named below.
    """
    loaded = load(config)
    from isthmus.engine.snapshot import Observer
    from isthmus.errors import DataError
    from isthmus.recovery.unfinished import words

    observers = [
        Observer(link, loaded.sites[link.source], loaded.sites[link.target]) for link in chosen_links(loaded, links)
    ]
    asking = ThreadPoolExecutor(max(1, len(observers)), "status")
    try:
        while True:
            # Each link has a loop of its own, so that all sites are asked at once.
            answers = asking.map(lambda observer: observer.reach(REACH_SECONDS, PATIENCE_SECONDS), observers)
            away = [error for errors in answers for error in errors]
            states = list(asking.map(Observer.look, observers))
            tables, untold = _tables(observers)
            if json:
                document = [{**state.to_json(), **_in_the_way(tables, state.source, state.target)} for state in states]
                output.emit_line(document) if watch else output.emit(document, json_mode=True)
            else:
                if watch:
                    output.console().clear()
                output.console().print(link_table(states, rows))
                for line in (*words(tables), *untold):
                    output.note(line)
            if not watch:
                break
            time.sleep(2)
    finally:
        asking.shutdown()
        for observer in observers:
            observer.close()
    if away:
        if json:
            raise typer.Exit(away[0].exit_code)
        raise away[0]
    standing = sum(len(state.faults) for state in states)
    if standing:
        if json:
            raise typer.Exit(DataError.exit_code)
        raise DataError(f"{standing} partition{'s stand' if standing > 1 else ' stands'} still; the reasons are above")


def _tables(observers: list[Observer]) -> tuple[dict[str, Any], list[str]]:
    """What the sites that answer remember of operations and fences, and why others do not tell."""
    import kafka.errors as kerrors

    from isthmus.engine.identity import sites_table
    from isthmus.errors import IsthmusError

    found: dict[str, Any] = {}
    untold: dict[str, str] = {}
    for observer in observers:
        for cluster in (observer.source, observer.target):
            name = cluster.site.name
            if name in found or name in untold or not cluster.cluster_id:
                continue
            try:
                found[name] = cluster.call(sites_table, cluster)
            except (IsthmusError, kerrors.KafkaError, OSError) as error:
                untold[name] = f"site {name}: whether it is fenced is not known: {error}"
    return found, list(untold.values())


def _in_the_way(tables: dict[str, Any], *sites: str) -> dict[str, Any]:
    from isthmus.recovery.unfinished import fences, forged, operations

    return {
        "unfinished": [each for each in operations(tables) if {each["site"], each["to"]} & set(sites)],
        "fenced": {site: how for site, how in fences(tables).items() if site in sites},
        "forged": {site: count for site, count in forged(tables).items() if site in sites},
    }
