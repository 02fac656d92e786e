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


@app.command("list", epilog=examples("isthmus groups list", "isthmus groups list --link orders --json"))
def list_(link: LinkOption = None, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """List the groups that read a link's topics at its source, and whether they follow; if not, why."""
    loaded = load(config)
    chosen = _one_link(loaded, link)
    from isthmus.cli.group_tables import show_groups
    from isthmus.control.group_verbs import views

    found = views(loaded, chosen, everybody=True)
    if not chosen.sync.groups.enabled:
        output.note(f"link {chosen.name} has groups: off; only isthmus groups sync writes their positions")
    if json:
        output.emit([_listed(view) for view in found], json)
    elif found:
        show_groups(found)
    else:
        output.emit(f"no group reads the topics of link {chosen.name}", json)


def _listed(view: View) -> dict[str, Any]:
    return {
        "group": view.group,
        "kind": view.kind,
        "state": view.state,
        "state_there": view.there,
        "partitions": len(view.rows),
        "to_write": view.to_write,
        "left_alone": view.why_left,
    }


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

    It lands on `that record` (the copy of the one that would have been read next), `the next record` (that one is none: a
    compacted hole, an aborted transaction), `the end` (nothing at or after it is copied yet), `at or before` (by time) or
    `the first unread` (of both sites' records, in the order of the destination).
    """
    loaded = load(config)
    chosen = _one_link(loaded, link)
    from isthmus.cli.group_tables import show_positions
    from isthmus.control.group_verbs import named_views

    (view,) = named_views(loaded, chosen, [group])
    if json:
        output.emit(view.to_json(), json)
        return
    if view.left:
        output.note(f"isthmus groups sync would leave it alone: {view.left}")
    show_positions(chosen, view)


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
    json: Annotated[bool, typer.Option("--json", help="The same as --format json; errors are JSON, too.")] = False,
) -> None:
    """Print positions: those of a site as they are, or (of a link) translated for its destination.

    Exits with 6 if a group that is named has no position there.
    """
    loaded = load(config)
    from isthmus.control.group_file import Entry, to_csv, to_json
    from isthmus.control.group_verbs import committed_entries, named_views, views

    entries: list[Entry]
    if site is not None:
        from isthmus.cli.connect import connected

        with connected(loaded.sites[_site(loaded, site, None)]) as (cluster,):
            entries = cluster.call(committed_entries, cluster, groups)
    else:
        entries, chosen = [], _one_link(loaded, link)
        for view in named_views(loaded, chosen, groups) if groups else views(loaded, chosen):
            if not view.rows:
                output.note(f"left out: {view.group}: {view.why_left}")
            for row in view.rows:
                if row.position is None:
                    output.note(f"left out: {view.group} {row.target}[{row.partition}]: {row.reason or view.left}")
                else:
                    entries.append(
                        Entry(view.group, row.target, row.partition, row.position.offset, row.committed.metadata)
                    )
    output.write(to_json(entries) if json or format == "json" else to_csv(entries))


@app.command(
    "import",
    epilog=examples("isthmus groups import positions.csv", "isthmus groups import positions.json --site west"),
)
def import_(
    file: Annotated[Path, typer.Argument(help="What export wrote, or Kafka's own tool.")],
    link: LinkOption = None,
    site: SiteOption = None,
    rewind: Annotated[bool, typer.Option("--rewind", help="Also move positions back.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also write positions outside of the logs.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Write positions from a file at a link's destination, or at a site; the format is known by the content.

    Tells of each group how many were written, kept (the group is as far there, or further) and refused (outside of the log,
    no such topic, members). Exits with 6 if some were refused, and with 2 if the file holds no positions.
    """
    loaded = load(config)
    from isthmus.cli.connect import connected
    from isthmus.cli.group_tables import show_imported
    from isthmus.control.group_file import read_entries
    from isthmus.control.group_import import write_entries

    try:
        entries = read_entries(file.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
    if not entries:
        raise UsageError(f"{file}: there are no positions in it")
    with connected(loaded.sites[_site(loaded, site, link)]) as (cluster,):
        results = cluster.call(write_entries, cluster, entries, rewind, force)
    refused = sum(result.refused for result in results)
    if json:
        output.emit([result.to_json() for result in results], json)
        raise typer.Exit(DataError.exit_code if refused else 0)
    show_imported(results)
    if refused:
        raise DataError(f"{refused} of {len(entries)} positions were refused; the reasons are above")
