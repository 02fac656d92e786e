"""What stands in the way of work at the sites: operations that are not over, and fences that keep writers away.

Invariant: it is read from the sites' own tables (``_isthmus.sites``), so it is seen from anywhere, whoever began it and whatever became of him.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.control import fence as acl_fence
from isthmus.engine import identity
from isthmus.engine.table import Table
from isthmus.errors import BadState
from isthmus.recovery import roles
from isthmus.recovery.fencing import HOOK
from isthmus.recovery.journal import BEGUN, KIND, Entry


@dataclass(frozen=True, slots=True)
class _Found:
    """What one site's table says of it, and what in it nobody can read."""

    entries: list[Entry]
    by_acls: bool
    by_hook: list[str]
    bad: list[BadState]


def _sorted_out(tables: Mapping[str, Table]) -> dict[str, _Found]:
    return {site: _found(table) for site, table in tables.items()}


def _found(table: Table) -> _Found:
    known, begun = table.sorted_out(KIND, Entry.read), table.sorted_out(BEGUN, Entry.read)
    taken = table.sorted_out(acl_fence.KEY, acl_fence.Taken.read)
    others = [table.sorted_out(identity.KIND, identity.ids_of)[1], table.sorted_out(roles.KIND, roles.role)[1]]
    return _Found(
        [*known[0].values(), *begun[0].values()],
        bool(taken[0]),
        list(table.sorted_out(HOOK, lambda name, _: name)[0]),
        [error for bad in (known[1], begun[1], taken[1], *others) for error in bad.values()],
    )


def operations(tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """The unfinished operations that these sites keep (tables by site), oldest first."""
    return _operations(_sorted_out(tables))


def _operations(sites: Mapping[str, _Found]) -> list[dict[str, Any]]:
    found = [(entry, keeper) for keeper, known in sites.items() for entry in known.entries if entry.unfinished]
    return [
        {
            "operation": entry.kind,
            "mode": entry.mode or None,
            "site": entry.site,
            "to": entry.to,
            "id": entry.id,
            "began": entry.began,
            "by": entry.by,
            "kept_at": keeper,
            "done": list(entry.done),
            "goes_on_with": command(entry),
        }
        for entry, keeper in sorted(found, key=lambda each: each[0].began)
    ]


def fences(tables: Mapping[str, Table]) -> dict[str, list[str]]:
    """Which sites are fenced, and how: by their ACLs, by their hook."""
    return _fences(_sorted_out(tables))


def _fences(sites: Mapping[str, _Found]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for site, known in sites.items():
        if known.by_acls:
            found.setdefault(site, set()).add("acls")
        for fenced in known.by_hook:
            found.setdefault(fenced, set()).add("hook")
    return {site: sorted(how) for site, how in sorted(found.items())}


def unreadable(tables: Mapping[str, Table]) -> list[BadState]:
    """What the sites keep of operations, fences and sites, and nobody can read."""
    return [error for known in _sorted_out(tables).values() for error in known.bad]


def forged(tables: Mapping[str, Table]) -> dict[str, int]:
    """How many records somebody else has written, by site."""
    return {site: table.look.forged for site, table in tables.items() if table.look.forged}


def command(entry: Entry) -> str:
    """The command that goes on with an operation."""
    if entry.kind == "failover":
        fence = f" --fence {entry.options['fence']}" if entry.options.get("fence") else ""
        return f"isthmus failover {entry.site} --to {entry.to} --{entry.mode}{fence}"
    wipe = " --wipe" if entry.options.get("wipe") else ""
    return f"isthmus {entry.kind} {entry.site} --from {entry.to}{wipe}"


def words(tables: Mapping[str, Table]) -> list[str]:
    """The same for people."""
    sites = _sorted_out(tables)
    lines = [
        f"unfinished {each['mode'] + ' ' if each['mode'] else ''}{each['operation']} of {each['site']} to {each['to']} (done: "
        f"{', '.join(each['done']) or 'nothing'}). `{each['goes_on_with']}` goes on with it, with --abandon it is given up"
        for each in _operations(sites)
    ]
    lines += [
        f"site {site} is fenced ({', '.join(how)}): nobody but Isthmus may write there. `isthmus unfence {site}` lifts that"
        for site, how in _fences(sites).items()
    ]
    lines += [error.message for known in sites.values() for error in known.bad]
    lines += [table.forged() for table in tables.values() if table.look.forged]
    return lines
