"""``isthmus status``: how far each link has come, read from the sites; works whoever runs the link, or nobody."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.link_table import link_table
from isthmus.cli.links import chosen_links
from isthmus.config import load

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
    --watch, one document a line.
    """
    loaded = load(config)
    from isthmus.engine.snapshot import Observer
    from isthmus.errors import DataError

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
            if json:
                document = [state.to_json() for state in states]
                output.emit_line(document) if watch else output.emit(document, json_mode=True)
            else:
                if watch:
                    output.console().clear()
                output.console().print(link_table(states, rows))
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
