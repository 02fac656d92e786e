"""``isthmus run``: replicate. Shows a live table on a terminal, lines elsewhere, JSON lines with ``--json``."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.durations import seconds_of
from isthmus.cli.exporting import chosen_metrics, exporting
from isthmus.cli.link_table import link_table, summary
from isthmus.cli.links import chosen_links
from isthmus.config import load
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.engine.snapshot import LinkState
    from isthmus.engine.supervise import Event

# Off a terminal, how often the state is written.
LINE_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus run",
            "isthmus run orders --until-caught-up",
            "isthmus run orders payments --duration 10m --json",
            "isthmus run --metrics 9464",
        )
    )(run)


def run(
    links: Annotated[
        list[str] | None, typer.Argument(metavar="[LINK]...", help="Links to run; all by default.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all that was at the source at the start is copied.")
    ] = False,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="End after this long, such as 30s, 10m or 2h.")
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Serve metrics on this port, instead of the configured one.", min=0, max=65535
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Replicate: copy what is there and keep copying, exactly once, until stopped.

    Ctrl-C ends at a transaction boundary; the next run goes on from there. Exits with 0 when done, 3 for a mistake in
    the configuration, 4 when a site cannot be reached, 5 when a site refuses us, 6 when a partition stands still, 7
    when another replicator has taken the link over, 130 when interrupted; 1 when `--duration` is over and `--until-caught-up` is not reached.
    """
    seconds = seconds_of("--duration", duration) if duration is not None else None
    loaded = load(config)
    chosen = chosen_metrics(loaded, metrics)
    # Imported late: Spark and the kernels cost time that a mistake in the configuration should not cost.
    from isthmus.control.resources import refuse_clashes
    from isthmus.engine.runner import Runner

    refuse_clashes(loaded, [link.name for link in chosen_links(loaded, links)])

    view = View(json)
    with exporting(chosen, view.show) as show:
        runner = Runner(loaded, links or [], view.say, show)
        with stop_on_signals(runner), view:
            states = runner.run(until_caught_up, seconds)
    if runner.late:
        behind = {state.link: state.lag for state in states}
        words = ", ".join(f"{name} ({behind.get(name, 0):,} records behind)" for name in runner.late)
        raise IsthmusError(
            f"not caught up after {duration}: {words}. What was copied stays; the next run goes on from there"
        )


class View:
    """Where the state of a run goes."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._live: Any = None
        self._next_line = 0.0
        self._paused: set[str] = set()

    def __enter__(self) -> View:
        if not self._json and output.console(stderr=True).is_terminal:
            from rich.live import Live

            self._live = Live(console=output.console(stderr=True), refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, event: Event) -> None:
        if self._json:
            output.emit_line({"event": event.level, "link": event.link, "text": event.text})
        else:
            # A live table is on the same console, and moves down.
            output.note(f"{_now()} {event.level}: link {event.link}: {event.text}")

    def _tell_paused(self, states: list[LinkState]) -> None:
        """A run that waits for an operator says for what, once each time."""
        from isthmus.engine.supervise import Event

        paused = {state.link for state in states if state.state == "paused"}
        for name in sorted(paused - self._paused):
            self.say(Event(name, "info", f"paused; nothing is copied until `isthmus resume {name}`"))
        self._paused = paused

    def show(self, states: list[LinkState]) -> None:
        self._tell_paused(states)
        if self._live is not None:
            self._live.update(link_table(states))
            return
        now = time.monotonic()
        stopped = bool(states) and all(s.state == "stopped" for s in states)
        if now < self._next_line and not stopped:
            return
        if states:
            self._next_line = now + LINE_SECONDS
        for state in states:
            if self._json:
                output.emit_line(state.to_json())
            else:
                output.note(f"{_now()} {summary(state)}")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@contextlib.contextmanager
def stop_on_signals(runner: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM end cleanly; a second Ctrl-C does not wait."""

    def handler(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runner.stop()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        sys.stdout.flush()
