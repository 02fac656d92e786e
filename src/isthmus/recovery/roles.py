"""Which site is in service, as both sites remember it (``_isthmus.sites``).

Invariant: roles are for eyes; nothing depends on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Literal

from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import Table, write_table
from isthmus.kafka.cluster import Cluster
from isthmus.recovery.stage import Stage

KIND = "role/"
Role = Literal["active", "standby", "lost", "seeding"]


async def _write_roles(cluster: Cluster, given: dict[str, Role], operation: str) -> None:
    """Tell a site who is what from now on."""
    now = time.time()
    await write_table(
        cluster,
        SITES_TOPIC,
        {KIND + site: {"role": role, "since": now, "by": operation} for site, role in given.items()},
    )


def roles_in(table: Table) -> dict[str, tuple[float, str]]:
    """Since when each site is what, by a site's table."""
    return table.sorted_out(KIND, role)[0]


def role(_: str, value: Any) -> tuple[float, str]:
    return float(value["since"]), str(value["role"])


def set_roles(stage: Stage, sites: Iterable[str], given: dict[str, Role], operation: str) -> None:
    """Tell these sites who is what from now on."""
    for name in sites:
        stage.at(name, "writing roles", _write_roles, given, operation)
