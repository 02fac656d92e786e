"""Which site is in service, as both sites remember it (``_isthmus.sites``).

Invariant: roles are for eyes and for `failback`; nothing exact depends on them. Each site that can be reached is told.
"""

from __future__ import annotations

import time
from typing import Any, Literal

from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import read_table, write_table
from isthmus.kafka.cluster import Cluster

KIND = "role/"
Role = Literal["active", "standby", "lost", "seeding"]


async def roles(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What a site remembers of roles, by site."""
    table = await read_table(cluster, SITES_TOPIC)
    return {key.removeprefix(KIND): value for key, value in table.items() if key.startswith(KIND)}


async def set_roles(cluster: Cluster, given: dict[str, Role], operation: str) -> None:
    """Tell a site who is what from now on."""
    now = time.time()
    await write_table(
        cluster,
        SITES_TOPIC,
        {KIND + site: {"role": role, "since": now, "by": operation} for site, role in given.items()},
    )
