"""``isthmus reset``: set where a partition goes on, after a fault that needs a decision."""

from __future__ import annotations

from typing import Annotated, Literal, cast, get_args

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.ask import YesOption, agreed
from isthmus.cli.links import chosen_links
from isthmus.config import load
from isthmus.errors import UsageError

_Word = Literal["earliest", "latest", "current"]


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus reset orders-link orders:3 --to earliest",
            "isthmus reset orders-link orders --to latest",
            "isthmus reset orders-link orders:0 orders:1 --to 4711 --json",
        )
    )(reset)


def reset(
    link: Annotated[str, typer.Argument(help="The link.")],
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:PARTITION]...", help="Source topics or partitions.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE", help="earliest, latest, current (same position, topics as they are now) or an offset."
        ),
    ],
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Set from which source offset partitions go on, and accept the topics as they are now.

    It may be given while the link runs: the link is held, its tasks are fenced, and it goes on from the new place.
    Going back to an earlier offset copies records again; the offset map then means the last copy.
    """
    wanted: dict[str, set[int] | None] = {}
    for text in partitions:
        topic, colon, number = text.rpartition(":")
        if not colon:
            wanted[text] = None
        elif number.isdigit():
            only = wanted.setdefault(topic, set())
            if only is not None:
                only.add(int(number))
        else:
            raise UsageError(f"{text}: expected TOPIC or TOPIC:PARTITION")
    place: int | _Word
    if to.isdigit():
        place = int(to)
    elif to in get_args(_Word):
        place = cast(_Word, to)
    else:
        raise UsageError(f"--to {to}: expected earliest, latest, current or an offset")
    loaded = load(config)
    chosen = chosen_links(loaded, [link])[0]
    warning = f"link {link} goes on from {to} in {', '.join(partitions)}: records before that are not copied, those copied before and after it come twice"
    if place != "current" and not agreed(warning, "Set it?", yes):
        raise typer.Abort
    from isthmus.cli.connect import connected
    from isthmus.engine.reset import reset as do_reset

    with connected(loaded.sites[chosen.source], loaded.sites[chosen.target]) as (source, target):
        moved = target.call(do_reset, source, target, chosen, wanted, place)
    rows = [{"topic": m.topic, "partition": m.partition, "before": m.before, "after": m.after} for m in moved]
    output.emit(rows, json)
