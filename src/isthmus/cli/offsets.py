"""``isthmus offsets``: where source offsets are at the destination, exactly."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.config import load
from isthmus.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus offsets orders-link orders:3 12345", "isthmus offsets orders-link orders:3 0 99 --json"
        )
    )(offsets)


def offsets(
    link: Annotated[str, typer.Argument(help="The link.")],
    partition: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", help="A source partition.")],
    source_offsets: Annotated[list[int], typer.Argument(metavar="OFFSET...", help="Source offsets.", min=0)],
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Translate source offsets into destination offsets through the link's exact map.

    Where a source offset was never a record at the destination (compacted, aborted, dropped by a rule), the answer is
    the next record that exists, and `exact` says no. Where nothing at or after it is copied yet, `copied` says no.
    """
    topic, colon, number = partition.rpartition(":")
    if not colon or not number.isdigit():
        raise UsageError(f"{partition}: expected TOPIC:PARTITION")
    loaded = load(config)
    from isthmus.client import Client

    with Client(loaded) as client:
        rows = []
        for offset in source_offsets:
            place = client.translate(link, topic, int(number), offset)
            rows.append({"source": offset, "target": place.offset, "exact": place.exact, "copied": place.copied})
    output.emit(rows, json)
