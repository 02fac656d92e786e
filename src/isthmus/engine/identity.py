"""Who a site is: its name, and the clusters that it was and is. Kept in ``_isthmus.sites`` where links have put it.

Invariants:
- a site's *incarnations* are cluster ids, oldest first; the last one is the cluster that the name means now. A name that is known
  never gets another cluster by being met: only somebody who means it writes the next incarnation (``replace``);
- a link writes what it meets at its destination only, and reads at both ends: so a site that was lost with all its memory is still known
  to the survivor;
- where two tables differ, the longer list is the newer one: lists only ever grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import kafka.errors as kerrors

from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import Table, read_table, write_table
from isthmus.errors import ClusterChanged, NotAllowed, SameCluster
from isthmus.kafka.cluster import Cluster
from isthmus.rules import Identities

KIND = "site/"


def of_table(table: Table, only: Collection[str] | None = None) -> dict[str, list[str]]:
    """The incarnations in a table, by site (or of these sites)."""
    return table.kind(KIND, ids_of, only)


def ids_of(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise ValueError("not a list of cluster ids")
    return value


def newest(*tables: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """What several sites know, together."""
    known: dict[str, list[str]] = {}
    for table in tables:
        for name, ids in table.items():
            if len(ids) > len(known.get(name, ())):
                known[name] = list(ids)
    return known


async def sites_table(cluster: Cluster) -> Table:
    """What a site knows of sites; nothing where we may not read it."""
    try:
        return await read_table(cluster, SITES_TOPIC)
    except (NotAllowed, kerrors.AuthorizationError):
        return Table(cluster.site.name, SITES_TOPIC)


async def incarnations(cluster: Cluster, only: Collection[str] | None = None) -> dict[str, list[str]]:
    """The incarnations that a site knows of."""
    return of_table(await sites_table(cluster), only)


async def recognise(source: Cluster, target: Cluster) -> Identities:
    """Both ends are who they were; whoever is met for the first time is written down at the destination."""
    if source.cluster_id and source.cluster_id == target.cluster_id:
        raise SameCluster(
            f"sites {source.site.name} and {target.site.name} are one cluster ({source.cluster_id}); a link to itself would copy "
            "its own copies for ever"
        )
    both = (source.site.name, target.site.name)
    there = await incarnations(target, both)
    known = newest(there, await incarnations(source, both))
    write: dict[str, list[str]] = {}
    for cluster in (source, target):
        name, now = cluster.site.name, cluster.cluster_id
        if not now:
            continue
        ids = known.setdefault(name, [now])
        if ids[-1] != now:
            raise changed(cluster, ids)
        if there.get(name) != ids:
            write[KIND + name] = ids
    # A user of one link alone may not write it; its claim then guards the link, as far as the destination lives.
    with suppress(NotAllowed):
        await write_table(target, SITES_TOPIC, write)
    return Identities(tuple(known.get(source.site.name, ())), tuple(known.get(target.site.name, ())))


def changed(cluster: Cluster, ids: list[str]) -> ClusterChanged:
    name, now = cluster.site.name, cluster.cluster_id
    what = "an earlier incarnation" if now in ids else "another cluster"
    return ClusterChanged(
        f"site {name} was cluster {ids[-1]} and is {now} now, {what}: offsets of the one mean nothing in the other. Correct "
        f"sites.{name}.bootstrap; if {name} was lost and stands empty, rebuild it with `isthmus reseed {name} --from SITE`; if it was "
        f"replaced by hand, say so with `isthmus sites replace {name}`",
        name,
        ids[-1],
        now,
    )


async def replace(cluster: Cluster, name: str, cluster_id: str, known: Mapping[str, list[str]]) -> list[str]:
    """Write the next incarnation of a site into the table that ``cluster`` keeps; what it is now."""
    ids = list(known.get(name, ()))
    if not ids or ids[-1] != cluster_id:
        ids = [*(each for each in ids if each != cluster_id), cluster_id]
    await write_table(cluster, SITES_TOPIC, {KIND + name: ids})
    return ids
