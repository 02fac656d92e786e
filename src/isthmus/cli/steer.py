"""``isthmus pause``, ``resume`` and ``limit``: steer a running link from anywhere; its tasks obey within a second."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.links import chosen_links
from isthmus.config import load
from isthmus.config.quantities import parse_rate
from isthmus.errors import UsageError

LinkArgument = Annotated[str, typer.Argument(metavar="LINK", help="The link.")]


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus pause orders-link"))(pause)
    app.command(epilog=examples("isthmus resume orders-link", "isthmus resume orders-link --held"))(resume)
    app.command(
        epilog=examples(
            "isthmus limit orders-link 20MB/s", "isthmus limit orders-link off", "isthmus limit orders-link config"
        )
    )(limit)


def pause(link: LinkArgument, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Hold a link at its next commit; it stays held, over restarts, until it is resumed."""
    _steer(config, link, json, paused=True)


def resume(
    link: LinkArgument,
    held: Annotated[
        bool,
        typer.Option(
            "--held", help="Also lift the hold of an operation: you have seen to the link's positions yourself."
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Let a link go on that was paused. One that `failover` or `reseed` holds rests until `failback` or `reseed` is done."""
    # A reset that was killed has left its mark; one that is under way goes on without it.
    _steer(config, link, json, paused=False, reset="", **({"held": ""} if held else {}))


def limit(
    link: LinkArgument,
    rate: Annotated[str, typer.Argument(help="Bytes a second such as 20MB/s; off; or config: what the file says.")],
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Change a link's rate limit while it runs; it wins over the configuration until `limit LINK config`."""
    if rate == "config":
        _steer(config, link, json, rate_limit=None, rate_overridden=False)
        return
    try:
        value = None if rate == "off" else parse_rate(rate)
    except ValueError as error:
        raise UsageError(f"{rate}: {error}") from None
    _steer(config, link, json, rate_limit=value, rate_overridden=True)


def _steer(config: Path, name: str, json: bool, **wish: Any) -> None:
    loaded = load(config)
    link = chosen_links(loaded, [name])[0]
    from isthmus.cli.connect import connected
    from isthmus.engine.steer import steer

    with connected(loaded.sites[link.target]) as (target,):
        control = target.call(lambda: steer(target, link, **wish))
    rate = control.rate_limit if control.rate_overridden else link.rate_limit
    output.emit({"link": name, "paused": control.paused, "rate_limit": rate, "held": control.held}, json)
    if control.held and not control.paused:
        output.note(f"link {name} still rests: {control.held}. `isthmus resume {name} --held` lifts that, if you must")
