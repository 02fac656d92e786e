"""What stands in the way of work at the sites: operations that are not over, and fences that keep writers away.

Invariant: it is read from the sites' own tables (``_isthmus.sites``), so it is seen from anywhere, whoever began it and whatever became of him.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.control import fence as acl_fence
from isthmus.engine import identity
from isthmus.engine.table import Table
from isthmus.errors import BadState
from isthmus.recovery import roles
from isthmus.recovery.fencing import HOOK
from isthmus.recovery.journal import BEGUN, KIND, Entry


def operations(tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """The unfinished operations that these sites keep (tables by site), oldest first."""
    found = [(entry, keeper) for keeper, table in tables.items() for entry in _entries(table)[0] if entry.unfinished]
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
    found: dict[str, set[str]] = {}
    for site, table in tables.items():
        if table.sorted_out(acl_fence.KEY, acl_fence.Taken.read)[0]:
            found.setdefault(site, set()).add("acls")
        for fenced in table.sorted_out(HOOK, lambda name, _: name)[0]:
            found.setdefault(fenced, set()).add("hook")
    return {site: sorted(how) for site, how in sorted(found.items())}


def unreadable(tables: Mapping[str, Table]) -> list[BadState]:
    """What the sites keep of operations, fences and sites, and nobody can read."""
    found: list[BadState] = []
    for table in tables.values():
        found += _entries(table)[1]
        found += table.sorted_out(acl_fence.KEY, acl_fence.Taken.read)[1].values()
        found += table.sorted_out(identity.KIND, identity.ids_of)[1].values()
        found += table.sorted_out(roles.KIND, roles.role)[1].values()
    return found


def _entries(table: Table) -> tuple[list[Entry], list[BadState]]:
    both = [table.sorted_out(prefix, Entry.read) for prefix in (KIND, BEGUN)]
    return [each for good, _ in both for each in good.values()], [each for _, bad in both for each in bad.values()]


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
    lines = [
        f"unfinished {each['mode'] + ' ' if each['mode'] else ''}{each['operation']} of {each['site']} to {each['to']} (done: "
        f"{', '.join(each['done']) or 'nothing'}). `{each['goes_on_with']}` goes on with it, with --abandon it is given up"
        for each in operations(tables)
    ]
    lines += [
        f"site {site} is fenced ({', '.join(how)}): nobody but Isthmus may write there. `isthmus unfence {site}` lifts that"
        for site, how in fences(tables).items()
    ]
    lines += [error.message for error in unreadable(tables)]
    lines += [table.forged() for table in tables.values() if table.look.forged]
    return lines
