"""Whether the sites let us do every step of an operation: asked before the first one, so that none stops half-way for want of a right.

Invariants:
- nothing is tried to find out: a site is asked what it lets us do (DescribeCluster, Metadata), and what its ACLs are. What it does not tell is not
  taken for missing; it is told when it is refused, and no later step is done then;
- only a site that says so (SECURITY_DISABLED) has no authoriser. Being refused its ACLs means that a right is missing, never that there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import kafka.errors as kerrors

from isthmus.config import Link, Site
from isthmus.control import fence as acl_fence
from isthmus.control.needs import Need, is_granted
from isthmus.control.promote import plan_promotion
from isthmus.control.rights import Right, acl_places, cluster_rights, command_of, principal_of, right, topic_rights
from isthmus.engine import state
from isthmus.engine.state import SITES_TOPIC
from isthmus.errors import AuthorisationFailed
from isthmus.kafka.acls import list_acls
from isthmus.kafka.admin import Refusal
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.recovery.fencing import How
from isthmus.recovery.stage import Stage

TABLE_RIGHTS = ("READ", "WRITE")
PART_RIGHTS = ("CREATE", "READ", "WRITE", "DELETE")
FENCE_RIGHTS = ("DESCRIBE", "ALTER", "DESCRIBE_CONFIGS")


async def has_authoriser(cluster: Cluster) -> bool:
    """Whether a site has one; a refusal says that it has."""
    acls = await list_acls(cluster)
    return not (isinstance(acls, Refusal) and acls.error is kerrors.SecurityDisabledError)


def refuse_missing(stage: Stage, old: str, new: str, links: Sequence[Link], how: How, *, reached: bool) -> None:
    """Raise with every right that a move from ``old`` to ``new`` lacks; ``reached`` says whether the old site answers."""
    missing = set(stage.at(new, "asking what it lets us do", _lacking_at_new, links))
    if reached:
        missing |= set(stage.at(old, "asking what it lets us do", _lacking_at_old, links, how))
    if missing:
        raise _refusal(stage.config.sites, missing)


def refuse_missing_for_parts(stage: Stage, site: str, links: Sequence[Link]) -> None:
    """Raise with every right that is missing at the destination to copy a part of a link, and to take its state away when it is done."""
    if missing := set(stage.at(site, "asking what it lets us do", _lacking_for_parts, links)):
        raise _refusal(stage.config.sites, missing)


def _refusal(sites: dict[str, Site], missing: Iterable[Right]) -> AuthorisationFailed:
    needs = sorted(missing)
    lines = [f"  {need}\n    {command_of(str(need), sites[need.site].bootstrap[0])}" for need in needs]
    many = f"{len(needs)} rights are" if len(needs) > 1 else "a right is"
    words = (
        f"{many} missing, as far as the sites tell, and nothing was changed. Grant, then give the command again:\n"
        + "\n".join(lines)
    )
    return AuthorisationFailed(words, needs[0].site, "\n".join(map(str, needs)))


# -- what the steps need ----------------------------------------------------------------------------------------


async def _lacking_at_new(new: Cluster, links: Sequence[Link]) -> list[Right]:
    """Journal, positions of groups, promotion, holding links, roles."""
    if not await has_authoriser(new):
        return []
    site = new.site
    needs = _table_needs(site)
    alters = bool(await acl_fence.fenced(new))
    for link in links:
        own = state.group(link.name)
        needs.append(Need(right(site, "READ", "group", STATE_PREFIX, True), own))
        if link.delivery == "exactly-once":
            needs.append(Need(right(site, "WRITE", "transactional-id", STATE_PREFIX, True), own))
        if link.sync.groups.enabled:
            needs += [Need(right(site, "READ", "group", *p), p[0]) for p in acl_places(link.sync.groups.include)]
        alters |= any(change.resource == "acls" for change in await plan_promotion(new, link))
    if alters:
        needs += [Need(right(site, operation, "cluster"), "") for operation in ("DESCRIBE", "ALTER")]
    return await _lacking(new, needs)


async def _lacking_at_old(old: Cluster, links: Sequence[Link], how: How) -> list[Right]:
    """The fence, what groups stand at, roles."""
    if not await has_authoriser(old):
        return []
    site = old.site
    needs = _table_needs(site)
    if (await old.metadata([SITES_TOPIC])).topics[SITES_TOPIC].error is kerrors.UnknownTopicOrPartitionError:
        needs.append(Need(right(site, "CREATE", "topic", STATE_PREFIX, True), SITES_TOPIC))
    for link in links:
        if link.sync.groups.enabled:
            needs += [Need(right(site, "DESCRIBE", "group", *p), p[0]) for p in acl_places(link.sync.groups.include)]
    if how == "acls":
        needs += [Need(right(site, operation, "cluster"), "") for operation in FENCE_RIGHTS]
    return await _lacking(old, needs)


async def _lacking_for_parts(target: Cluster, links: Sequence[Link]) -> list[Right]:
    """A part keeps state of its own, under the link's name and more: it is made, and deleted in the end."""
    if not await has_authoriser(target):
        return []
    needs: list[Need] = []
    for link in links:
        own = state.map_topic(link.name)
        needs += [Need(right(target.site, each, "topic", STATE_PREFIX, True), own) for each in PART_RIGHTS]
        needs.append(Need(right(target.site, "DELETE", "group", STATE_PREFIX, True), state.group(link.name)))
    return await _lacking(target, needs)


def _table_needs(site: Site) -> list[Need]:
    return [Need(right(site, each, "topic", STATE_PREFIX, True), SITES_TOPIC) for each in TABLE_RIGHTS]


async def _lacking(cluster: Cluster, needs: Iterable[Need]) -> list[Right]:
    """Of these the rights that are missing. Where one is, also those of which the site does not tell: one round of granting has to be enough."""
    needs = list(needs)
    named = {need.name for need in needs if need.right.kind == "topic"}
    on_cluster, on_topics = await cluster_rights(cluster), await topic_rights(cluster, named)
    listed = await list_acls(cluster)
    acls = None if isinstance(listed, Refusal) or not principal_of(cluster.site) else listed
    # Who may do this and has it by no ACL may do everything by the broker's own settings, which ACLs do not show.
    acting = Need(right(cluster.site, "CLUSTER_ACTION", "cluster"), "")
    everything = "CLUSTER_ACTION" in (on_cluster or ()) and not (acls is not None and is_granted(acls, acting))
    missing, untold = list[Right](), list[Right]()
    for need in needs:
        operation, kind = need.right.operation, need.right.kind
        told = on_cluster if kind == "cluster" else on_topics.get(need.name) if kind == "topic" else None
        have = None if told is None or operation == "CREATE" else operation in told
        if operation == "CREATE" and "CREATE" in (on_cluster or ()):
            have = True
        if have is None and everything:
            have = True
        if have is None and acls is not None:
            have = is_granted(acls, need)
        if have is None and kind == "cluster" and operation == "DESCRIBE":
            have = not isinstance(listed, Refusal)
        if have is not True:
            (untold if have is None else missing).append(need.right)
    return missing + untold if missing else []
