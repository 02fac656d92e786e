"""``isthmus groups``: consumer groups and where they go on at the destination of a link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.links import chosen_links
from isthmus.config import Config, Link, load
from isthmus.errors import DataError, UsageError

if TYPE_CHECKING:
    from isthmus.control.groups import View

app = typer.Typer(no_args_is_help=True, help="Translate, write and move the positions of consumer groups.")

LinkOption = Annotated[
    str | None, typer.Option("--link", "-l", metavar="LINK", help="The link; needed where there are several.")
]
SiteOption = Annotated[str | None, typer.Option("--site", "-s", metavar="SITE", help="A site, instead of a link.")]
Format = Literal["csv", "json"]


def _one_link(config: Config, name: str | None) -> Link:
    if name is None and len(config.links) != 1:
        raise UsageError(f"say which link: --link {' or '.join(config.links) or 'NAME (there is none yet)'}")
    return chosen_links(config, [name] if name else None)[0]


def _site(config: Config, name: str | None, link: str | None) -> str:
    """The named site, or the destination of the link."""
    if name is None:
        return _one_link(config, link).target
    if name not in config.sites:
        raise UsageError(f"no site named {name} in the configuration; there are: {', '.join(config.sites)}")
    return name


def _survey(config: Config, link: Link, only: list[str] | None = None) -> list[View]:
    from isthmus.control.group_verbs import views

    return views(config, link, only)


@app.command("list", epilog=examples("isthmus groups list", "isthmus groups list --link orders --json"))
def list_(link: LinkOption = None, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """List the groups that read a link's topics at its source, and whether they follow."""
    loaded = load(config)
    chosen = _one_link(loaded, link)
    rows = [
        {
            "group": view.group,
            "kind": view.kind,
            "state": view.state,
            "state there": view.there or "-",
            "partitions": len(view.rows),
            "to write": 0 if view.left else sum(row.moves for row in view.rows),
            "left alone": view.left or (view.trouble.words if view.trouble else ""),
        }
        for view in _survey(loaded, chosen)
    ]
    output.emit(rows if rows or json else f"no group reads the topics of link {chosen.name}", json)


@app.command(epilog=examples("isthmus groups translate billing", "isthmus groups translate billing --json"))
def translate(
    group: Annotated[str, typer.Argument(help="The group.")],
    link: LinkOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Show where a group would go on at the destination, and how that was found out. Writes nothing.

    The method is `map` (the link's own map, exact), `two-way` (a link brings records the other way, too: nothing is left out, exact
    where one site is written to at a time), `header` (another tool's copies that carry their source offset, exact)
    or `timestamp` (another tool's copies: the last record that was read may be read again).
    """
    loaded = load(config)
    chosen = _one_link(loaded, link)
    found = _survey(loaded, chosen, [group])
    if not found:
        raise DataError(
            f"group {group} has committed no offset of a topic of link {chosen.name} at site {chosen.source}"
        )
    view = found[0]
    if view.trouble:
        raise DataError(f"group {group}: {view.trouble.words}")
    if view.left and not json:
        output.note(f"isthmus groups sync would leave it alone: {view.left}")
    output.emit(view.to_json() if json else [row.to_json() for row in view.rows], json)


@app.command(
    epilog=examples("isthmus groups sync", "isthmus groups sync billing --link orders", "isthmus groups sync --json")
)
def sync(
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="Groups, with members at the source or not; else as configured."),
    ] = None,
    link: LinkOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Write translated positions at the destination, of groups that have no member there; never moves one back.

    Exits with 6 if a position that should be written could not be.
    """
    loaded = load(config)
    from isthmus.control.group_verbs import sync as do_sync
    from isthmus.control.meter import group_of

    rows: list[dict[str, Any]] = []
    for chosen in chosen_links(loaded, [link] if link else None):
        changes, outcomes = do_sync(loaded, chosen, groups, dry_run)
        told = {outcome.change.name: outcome for outcome in outcomes}
        for change in changes:
            outcome = told.get(change.name)
            row: dict[str, Any] = {"link": chosen.name, **(outcome.to_json() if outcome else change.to_json())}
            rows.append(row)
    seen = {group_of(row["name"]) for row in rows} | {row["name"] for row in rows}
    unknown = sorted(set(groups or ()) - seen)
    if unknown:
        raise DataError(f"no committed offset of these links' topics at the source: group {', '.join(unknown)}")
    failed = [row for row in rows if row["action"] == "blocked" or row.get("error")]
    if json:
        output.emit(rows, json)
        raise typer.Exit(DataError.exit_code if failed else 0)
    if rows:
        output.emit([_line(row, dry_run) for row in rows], json)
    else:
        output.emit("no group reads the topics of these links", json)
    if failed:
        raise DataError(f"{len(failed)} of {len(rows)} could not be written; the reasons are above")


def _line(row: dict[str, Any], dry_run: bool) -> dict[str, str]:
    moved = ", ".join(f"{d['key']} {d['before'] or '-'} -> {d['after']}" for d in row["diff"][:4])
    more = f" and {len(row['diff']) - 4} more" if len(row["diff"]) > 4 else ""
    if row.get("error"):
        result = f"failed: {row['error']}"
    elif row["action"] in ("create", "alter"):
        result = f"{'would be written' if dry_run else 'written'}: {moved}{more} ({row['why']})"
    else:
        result = f"{'blocked' if row['action'] == 'blocked' else 'left alone'}: {row['why']}"
    return {"link": row["link"], "group": row["name"], "result": result}


@app.command(
    epilog=examples(
        "isthmus groups reset billing --to-datetime 2026-01-31T08:00:00Z",
        "isthmus groups reset billing --to earliest --topic orders --site west",
    )
)
def reset(
    group: Annotated[str, typer.Argument(help="The group; it must have no members there.")],
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="The first record that is not older.")
    ] = None,
    to: Annotated[Literal["earliest", "latest"] | None, typer.Option(help="The start or the end of each log.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only these topics; else all that it has read.")] = None,
    site: SiteOption = None,
    link: LinkOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Set a group's position by time, or to either end of the logs, at a link's destination or any site.

    This one moves positions back, too. Take the group out of the link's `sync.groups` if a running link should not move it
    forward again.
    """
    from isthmus.config.quantities import parse_timestamp

    if (to_datetime is None) == (to is None):
        raise UsageError("give either --to-datetime or --to")
    place: int | str = to or ""
    if to_datetime is not None:
        try:
            place = int(parse_timestamp(to_datetime).timestamp() * 1000)
        except ValueError as error:
            raise UsageError(f"--to-datetime {to_datetime}: {error}") from None
    loaded = load(config)
    from isthmus.cli.connect import connected
    from isthmus.control.group_verbs import reset as do_reset

    with connected(loaded.sites[_site(loaded, site, link)]) as (cluster,):
        moved = cluster.call(do_reset, cluster, group, topic or [], place, dry_run)
    output.emit(moved, json)


@app.command(
    epilog=examples(
        "isthmus groups export > positions.csv",
        "isthmus groups export billing --site east --format json",
    )
)
def export(
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Groups; all by default.")] = None,
    link: LinkOption = None,
    site: SiteOption = None,
    format: Annotated[Format, typer.Option("--format", help="csv or json.")] = "csv",
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Print positions: those of a site as they are, or (of a link) translated for its destination."""
    loaded = load(config)
    from isthmus.control.group_file import Entry, to_csv, to_json

    entries: list[Entry]
    if site is not None:
        from isthmus.cli.connect import connected
        from isthmus.control.group_verbs import committed_entries

        with connected(loaded.sites[_site(loaded, site, None)]) as (cluster,):
            entries = cluster.call(committed_entries, cluster, groups)
    else:
        entries = []
        for view in _survey(loaded, _one_link(loaded, link), groups):
            for row in view.rows:
                if row.position is None:
                    output.note(f"left out: {view.group} {row.target}[{row.partition}]: {row.reason or view.left}")
                else:
                    entries.append(
                        Entry(view.group, row.target, row.partition, row.position.offset, row.committed.metadata)
                    )
    output.write(to_csv(entries) if format == "csv" else to_json(entries))


@app.command(
    "import",
    epilog=examples("isthmus groups import positions.csv", "isthmus groups import positions.json --site west"),
)
def import_(
    file: Annotated[Path, typer.Argument(help="What export wrote, or Kafka's own tool.")],
    link: LinkOption = None,
    site: SiteOption = None,
    rewind: Annotated[bool, typer.Option("--rewind", help="Also move positions back.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Write positions from a file at a link's destination, or at a site; the format is known by the content.

    Exits with 6 if a group's positions could not be written.
    """
    loaded = load(config)
    from isthmus.cli.connect import connected
    from isthmus.control.group_file import read_entries
    from isthmus.control.group_verbs import write_entries

    try:
        entries = read_entries(file.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
    with connected(loaded.sites[_site(loaded, site, link)]) as (cluster,):
        rows = cluster.call(write_entries, cluster, entries, rewind)
    output.emit(rows, json)
    if any(row["error"] for row in rows):
        if json:
            raise typer.Exit(DataError.exit_code)
        raise DataError("some positions could not be written; the reasons are above")
