"""Keeps writers away from topics of a site by its ACLs, and lets them in again.

Taken away are ALLOW WRITE and ALLOW ALL (for which READ is given) on these topics, of everybody but ourselves. A pattern that
covers more than these topics is taken whole. DENY is never touched.

Invariants:
- *remember, then do*: what is taken, and what is given for it, is written down at the site itself (``_isthmus.sites``) before it
  is done. So whoever is killed, the next fence goes on, and restoring gives back exactly what was there;
- what is fenced is not gone: plans of ACLs (acls.py) read what was taken as if it were there, so nothing of it is taken away
  from the destination;
- ourselves we keep our rights: a right that we had only as one of everybody is given to us by name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.admin import DescribeConfigsRequest

from isthmus.config.names import is_internal
from isthmus.control.rights import principal_of, right
from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import read_table, write_table
from isthmus.errors import AuthorisationFailed, DataError, IsthmusError
from isthmus.kafka.acls import Acl, create_acls, delete_acls, list_acls, wait_for_acls
from isthmus.kafka.admin import Refusal, refusal_of
from isthmus.kafka.cluster import Cluster

KEY = "fence/"
EVERYBODY = "User:*"
# Where this is true, a topic that has lost its last ACL is open to everybody.
OPEN_WITHOUT_ACLS = "allow.everyone.if.no.acl.found"
BROKER = 4
# How long a broker may take to hear of ACLs; one that does not answer is not waited for much longer.
HEARSAY_SECONDS = 10.0


@dataclass(frozen=True, slots=True, order=True)
class Taken:
    """An ACL that was taken away, and those that were given for it."""

    acl: Acl
    given: tuple[Acl, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"acl": list(astuple(self.acl)), "given": [list(astuple(each)) for each in self.given]}

    @classmethod
    def read(cls, name: str, value: Any) -> Taken:
        """What stands in a table, if a fence can have taken and given it: nothing else is ever given back or taken away."""
        acl, given = Acl.read(value["acl"]), tuple(Acl.read(each) for each in value["given"])
        if acl.kind != "topic" or is_internal(acl.name) or standby_right(acl) == acl or name != acl.key:
            raise ValueError(f"a fence takes no such ACL: {acl}")
        for each in given:
            ours = acl.principal == EVERYBODY and each == Acl(
                "topic", "literal", each.name, each.principal, "*", "WRITE", "ALLOW"
            )
            if each != standby_right(acl) and not (ours and each.principal != EVERYBODY and _touched(acl, [each.name])):
                raise ValueError(f"a fence gives no such ACL: {each}")
        return cls(acl, given)


def standby_right(acl: Acl) -> Acl | None:
    """What somebody who may not write is left with: READ for ALL, nothing for WRITE, anything else as it is."""
    if acl.permission == "DENY" or acl.operation not in ("WRITE", "ALL"):
        return acl
    return replace(acl, operation="READ") if acl.operation == "ALL" else None


async def fenced(cluster: Cluster) -> list[Taken]:
    """What is taken from a site at present, as far as it was written down."""
    table = await read_table(cluster, SITES_TOPIC)
    return sorted(table.kind(KEY, Taken.read).values())


async def to_take(cluster: Cluster, topics: Collection[str]) -> list[Taken]:
    """What a fence would take from a site now. Raises if ACLs cannot fence it."""
    site = cluster.site.name
    acls = await list_acls(cluster)
    if isinstance(acls, Refusal):
        if acls.error is kerrors.SecurityDisabledError:
            raise DataError(
                f"site {site} has no authoriser, so ACLs cannot keep writers away: use hooks.fence, or --fence none"
            )
        raise _refused(cluster, "DESCRIBE", acls)
    ourselves = principal_of(cluster.site)
    if not ourselves:
        raise DataError(
            f"site {site}: who we are there is not known from the configuration (only SASL says it), and we would lock ourselves "
            "out: use hooks.fence, or --fence none"
        )
    if await _open_without_acls(cluster):
        raise DataError(
            f"site {site} has {OPEN_WITHOUT_ACLS}: without ACLs topics would be open to all; use hooks.fence, or --fence none"
        )
    return taken_of(acls, topics, ourselves)


def taken_of(acls: Iterable[Acl], topics: Collection[str], ourselves: str) -> list[Taken]:
    """Of these ACLs what a fence takes, and what it gives."""
    names, existing = sorted(topics), set(acls)
    found = []
    for acl in sorted(existing):
        touched = _touched(acl, names)
        if not touched or acl.principal == ourselves or standby_right(acl) == acl:
            continue
        given = {standby_right(acl)} - {None}
        if acl.principal == EVERYBODY:
            given |= {Acl("topic", "literal", name, ourselves, "*", "WRITE", "ALLOW") for name in touched}
        found.append(Taken(acl, tuple(sorted(each for each in given if each is not None and each not in existing))))
    return found


def _touched(acl: Acl, names: list[str]) -> list[str]:
    """Which of the topics an ACL is about; they are sorted."""
    if acl.kind != "topic" or not names:
        return []
    if acl.pattern == "prefixed":
        first = bisect_left(names, acl.name)
        count = next((n for n, name in enumerate(names[first:]) if not name.startswith(acl.name)), len(names) - first)
        return names[first : first + count]
    if acl.name == "*":
        return names
    place = bisect_left(names, acl.name)
    return [acl.name] if place < len(names) and names[place] == acl.name else []


async def fence(cluster: Cluster, topics: Collection[str]) -> list[Taken]:
    """Keep everybody but ourselves from writing to these topics; all that is taken, now and before.

    It can be given again at any time: what was taken is taken, and what has been granted since is taken too.
    """
    known = {taken.acl: taken for taken in await fenced(cluster)}
    # What an earlier attempt has given stays noted as given, although it is there by now.
    new = [known.get(taken.acl, taken) for taken in await to_take(cluster, topics)]
    await write_table(
        cluster, SITES_TOPIC, {KEY + each.acl.key: each.to_json() for each in new if each.acl not in known}
    )
    given, taken = [acl for each in new for acl in each.given], [each.acl for each in new]
    _check(cluster, await create_acls(cluster, given))
    _check(cluster, await delete_acls(cluster, taken))
    # A broker that has not heard of it would still let them write.
    await wait_for_acls(cluster, given, taken, HEARSAY_SECONDS)
    return sorted({*known.values(), *new})


async def restore(cluster: Cluster, taken: Iterable[Taken] | None = None) -> list[Taken]:
    """Give back what was taken from a site (or these of it) and take what was given for it; what that was."""
    back = list(await fenced(cluster) if taken is None else taken)
    _check(cluster, await create_acls(cluster, [each.acl for each in back]))
    given = [acl for each in back for acl in each.given]
    _check(cluster, await delete_acls(cluster, given))
    await wait_for_acls(cluster, [each.acl for each in back], given, HEARSAY_SECONDS)
    await write_table(cluster, SITES_TOPIC, {KEY + each.acl.key: None for each in back})
    return back


def as_if_not_fenced(acls: Iterable[Acl], taken: Iterable[Taken]) -> set[Acl]:
    """A site's ACLs as they were before."""
    away = list(taken)
    return set(acls) - {acl for each in away for acl in each.given} | {each.acl for each in away}


def _check(cluster: Cluster, outcome: dict[Acl, Refusal | None]) -> None:
    for acl, why in outcome.items():
        if why is not None:
            raise _refused(cluster, "ALTER", why, f"; {acl}")


def _refused(cluster: Cluster, operation: str, why: Refusal, about: str = "") -> IsthmusError:
    site = cluster.site
    if issubclass(why.error, kerrors.AuthorizationError):
        need = str(right(site, operation, "cluster"))
        return AuthorisationFailed(
            f"site {site.name}: not authorised for its ACLs{about}; grant {need}", site.name, need
        )
    return DataError(f"site {site.name}: {why}{about}")


async def _open_without_acls(cluster: Cluster) -> bool:
    """Whether topics without ACLs are open to all, as the broker that answers is set up."""
    node = min((await cluster.metadata([])).brokers)
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(node), configuration_keys=[OPEN_WITHOUT_ACLS]
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=False, include_documentation=False)
    (answer,) = (await cluster.send(request, node)).results
    if (refusal := refusal_of(answer)) is not None:
        raise _refused(cluster, "DESCRIBE_CONFIGS", refusal)
    return any(config.value == "true" for config in answer.configs if config.name == OPEN_WITHOUT_ACLS)
