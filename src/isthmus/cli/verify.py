"""``isthmus verify``: both sides of a link, compared record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.links import chosen_links
from isthmus.cli.reports import check_reports, write_report
from isthmus.config import load
from isthmus.config.quantities import parse_duration, parse_timestamp
from isthmus.errors import Damaged, UsageError

if TYPE_CHECKING:
    from isthmus.recovery.verify_report import Report


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "isthmus verify orders-link",
            "isthmus verify orders-link --since 24h --report verify.html",
            "isthmus verify orders-link --topics orders --sample 0.1 --json",
        )
    )(verify)


def verify(
    link: Annotated[str, typer.Argument(help="The link.")],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only records since then: an ISO-8601 time with its zone, or a time ago such as 24h."
        ),
    ] = None,
    sample: Annotated[
        float, typer.Option(metavar="PART", help="Compare only this part of all ranges, evenly spread, such as 0.1.")
    ] = 1.0,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="TOPIC", help="Only this source topic, or /expression/; may be given again."),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the report there, as FILE.html or FILE.json; may be given again."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Compare both sides of a link, record by record, while records are being written and copied.

    It finds what is missing, doubled, out of order, altered, looped or unexpected, and names the first of each. Only reads. Exits
    with 0 when no damage was found, 6 when some was, when a partition could not be compared, or when nothing was compared although records
    wait to be copied, or were copied and are gone at the destination. Records of which only one side has a copy (expired, compacted, set aside,
    written before the link began, or by applications at the destination) are counted and named as not judged. What a failback brought home is
    compared as well.
    """
    moment = _moment(since)
    check_reports(report or [])
    if not 0 < sample <= 1:
        raise UsageError(f"--sample {sample}: expected a part between 0 and 1, such as 0.1")
    loaded = load(config)
    (chosen,) = chosen_links(loaded, [link])
    # Imported late: Spark and the kernels cost time that a mistake in the configuration should not cost.
    from isthmus.recovery.verify import verify as compare

    with _bar(chosen.name) as progress:
        found = compare(loaded, link, since=moment, sample=sample, topics=topics, progress=progress)
    from isthmus.recovery.verify_html import page

    for path in report or []:
        write_report(path, lambda: page(found), found.to_json)
    if json:
        output.emit(found.to_json(), json_mode=True)
        raise typer.Exit(0 if found.clean else Damaged.exit_code)
    _show(found)
    if not found.clean:
        raise Damaged(f"link {link}: {found.verdict}", link, found.damage)
    output.note(f"link {link}: {found.verdict}")


def _moment(since: str | None) -> datetime | None:
    if since is None:
        return None
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(since))
    except ValueError:
        pass
    try:
        return parse_timestamp(since)
    except ValueError as error:
        raise UsageError(f"--since {since}: {error}, or a time ago such as 24h") from None


@contextmanager
def _bar(link: str) -> Iterator[Callable[[int, int], None]]:
    """A bar by finished units, on a terminal only."""
    with output.progress(f"comparing {link}", total=1.0) as advance:
        shown = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal shown
            part = done / max(1, total)
            advance(part - shown)
            shown = part

        yield progress


def _show(found: Report) -> None:
    from isthmus.recovery.verify_compare import DAMAGE
    from isthmus.recovery.verify_report import copy_of, explained_kinds, words_of

    kinds = ["compared", *DAMAGE, *explained_kinds(found)]
    rows: list[dict[str, Any]] = [
        {"topic": row["topic"], "copy": copy_of(row), **{words_of(kind): row[kind] for kind in kinds}}
        for row in found.topics()
    ]
    if rows:
        output.emit(rows, json_mode=False)
    for offender in found.offenders:
        output.emit(offender.words, json_mode=False)
        for side, record in (("expected", offender.expected), ("found", offender.found)):
            if record:
                parts = ", ".join(f"{name} {text}" for name, text in record.items() if text)
                output.emit(f"    {side + ':':<9} {parts}", json_mode=False)
    for fault in found.faults:
        output.note(f"could not be judged: {fault['message']}")
    for words in found.not_judged_words:
        output.note(words)
    for note in found.notes:
        output.note(f"note: {note}")
