"""Lifting a fence by hand, where the operation that put it there will not do it any more.

Invariant: a fence that an unfinished operation counts on stays: what it drains would not be all that there is.
"""

from __future__ import annotations

from isthmus.config import Config
from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import Table, read_table
from isthmus.errors import ConnectionFailed, DataError
from isthmus.recovery import access
from isthmus.recovery.journal import unfinished_in
from isthmus.recovery.roles import roles_in
from isthmus.recovery.stage import Stage
from isthmus.recovery.unfinished import command


def tables_of(stage: Stage) -> dict[str, Table]:
    """The tables of all sites that answer."""
    return {
        name: stage.at(name, "reading fences and operations", read_table, SITES_TOPIC)
        for name in stage.config.sites
        if stage.answers(name)
    }


def serving_instead(config: Config, site: str) -> str:
    """The site that is in service while this one is a standby or lost, as the newest of what the sites remember says; empty if none is."""
    roles: dict[str, tuple[float, str]] = {}
    with Stage(config) as stage:
        for table in tables_of(stage).values():
            for name, role in roles_in(table).items():
                roles[name] = max(role, roles.get(name, role))
    if roles.get(site, (0.0, ""))[1] not in ("standby", "lost", "seeding"):
        return ""
    return next((name for name, (_, role) in sorted(roles.items()) if role == "active" and name != site), "")


def lift(config: Config, site: str) -> list[str]:
    """Let writers in again; what was given back. Nothing if nothing keeps them away."""
    with Stage(config) as stage:
        stage.site(site)
        tables = tables_of(stage)
        for table in tables.values():
            for entry in unfinished_in(table):
                if site in (entry.site, entry.to):
                    raise DataError(
                        f"the {entry.told()} is unfinished, and counts on the fence. `{command(entry)}` goes on with it; with --abandon it is "
                        f"given up, then `isthmus unfence {site}` lifts the fence"
                    )
        back = access.unfence(stage, site, "unfence")
        silent = sorted(set(config.sites) - set(tables))
        if not back and silent:
            raise ConnectionFailed(
                f"{site} has no fence of its ACLs; {', '.join(silent)} does not answer, so whether its hook has fenced it is not known. Give the "
                "command again when it does",
                silent[0],
            )
        return back
