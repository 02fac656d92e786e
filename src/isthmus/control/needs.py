"""All that a link's own work needs at its two sites: one list, so that one round of granting is enough.

Invariants:
- the list says what the tables of docs/security.md say, for the link as it is configured and the topics as they are now;
- a link that is refused nothing is asked for nothing. Where something is refused, everything that is missing is named, and also what a site
  does not tell: it may be missing;
- nothing is tried to find out. A site is asked what it lets us do, and what its ACLs are; where it does not tell, it is not told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from isthmus.config import Link
from isthmus.config.patterns import is_pattern, matches_any
from isthmus.config.rename import fill
from isthmus.config.turned import BACK
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends
from isthmus.control.rights import (
    Right,
    acl_places,
    cluster_rights,
    principal_of,
    right,
    topic_rights,
    without_overruled,
)
from isthmus.control.topics import Topic, discover
from isthmus.engine import state
from isthmus.kafka.acls import Acl, list_acls
from isthmus.kafka.admin import Refusal
from isthmus.kafka.cluster import STATE_PREFIX, Cluster, TopicInfo

RIGHTS = "rights"
# What Kafka's authorisers take as allowed with another right.
_CONTAINED = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}
Place = tuple[str, bool]


class Need(NamedTuple):
    """A right, and the name that an ACL has to speak of: of the link's own things, a site may have granted no more than this link's."""

    right: Right
    name: str


async def whole_list(ends: Ends, told: Iterable[Change | Outcome]) -> list[Change]:
    """Of a link that was refused something: one blocked change with every right that it needs and may not have."""
    asked = {need for each in told for need in each.needs}
    if not asked:
        return []
    missing, untold = await lacking(ends)
    doubtful = untold - asked
    needs = set(without_overruled(missing | doubtful | asked))
    why = "with these rights, the link has all that it needs"
    if doubtful:
        why += f"; of {len(doubtful)} of the {len(needs)} the sites do not tell whether we have them"
    who = principal_of(ends.target.site) or ends.link.name
    return [Change(RIGHTS, who, "blocked", why, needs=tuple(sorted(needs)))]


async def lacking(ends: Ends) -> tuple[set[str], set[str]]:
    """The rights that the link lacks, and those of which its sites do not tell."""
    topics = await discover(ends.source, ends.link)
    names = sorted(topic.target for topic in topics.values() if not topic.problem)
    here = (await ends.target.metadata(names)).topics if names else {}
    missing, untold = await _lacking(ends.source, _at_source(ends, topics))
    more, doubtful = await _lacking(ends.target, _at_target(ends, topics, here))
    return {str(need) for need in missing | more}, {str(need) for need in untold | doubtful}


# -- what is needed ---------------------------------------------------------------------------------------------


def _at_source(ends: Ends, topics: Mapping[str, Topic]) -> list[Need]:
    link, site = ends.link, ends.source.site
    needs = [
        Need(right(site, operation, "topic", *place), place[0])
        for place in (*((name, False) for name in topics), *_unseen(link, topics))
        for operation in ("READ", "DESCRIBE_CONFIGS")
    ]
    own = set()
    if link.sync.acls.enabled:
        needs.append(Need(right(site, "DESCRIBE", "cluster"), ""))
        own.add("topic")  # what a fence has taken is written down there
    if link.sync.groups.enabled:
        needs += [Need(right(site, "DESCRIBE", "group", *p), p[0]) for p in acl_places(link.sync.groups.include)]
        if any(not other.name.endswith(BACK) for other in ends.others):
            own |= {"topic", "group"}  # what the link of the other direction has brought
    return needs + [Need(right(site, "READ", kind, STATE_PREFIX, True), STATE_PREFIX) for kind in sorted(own)]


def _at_target(ends: Ends, topics: Mapping[str, Topic], here: Mapping[str, TopicInfo]) -> list[Need]:
    link, site = ends.link, ends.target.site
    always = ["READ", "WRITE", "DESCRIBE_CONFIGS", *(["ALTER_CONFIGS"] if link.sync.configs.enabled else [])]
    needs = []
    for topic in topics.values():
        if topic.problem:
            continue  # no right helps
        info = here[topic.target]
        # Whether a topic is there that we may not see, nobody tells: then it may have to be created, or to grow.
        visible = info.error is None
        grows = not visible or len(info.partitions) < len(topic.source.partitions)
        wanted = [*always, *(() if visible else ("CREATE",)), *(("ALTER",) if grows else ())]
        needs += [Need(right(site, operation, "topic", topic.target), topic.target) for operation in wanted]
    for place in _unseen(link, topics):
        there = _renamed(link, place)
        needs += [Need(right(site, op, "topic", *there), there[0]) for op in (*always, "CREATE", "ALTER")]
    ours = [("topic", op) for op in ("CREATE", "READ", "WRITE")] + [("group", "READ")]
    if link.delivery == "exactly-once":
        ours.append(("transactional-id", "WRITE"))
    needs += [Need(right(site, op, kind, STATE_PREFIX, True), state.group(link.name)) for kind, op in ours]
    if link.sync.acls.enabled:
        needs += [Need(right(site, operation, "cluster"), "") for operation in ("DESCRIBE", "ALTER")]
    if link.sync.groups.enabled:
        needs += [Need(right(site, "READ", "group", *p), p[0]) for p in acl_places(link.sync.groups.include)]
    return needs


def _unseen(link: Link, topics: Collection[str]) -> Iterator[Place]:
    """Where topics may be that we do not see: names, and beginnings of what no visible topic matches."""
    entries = [
        entry
        for entry in link.topics.include
        if not (any(matches_any([entry], name) for name in topics) if is_pattern(entry) else entry in topics)
    ]
    yield from acl_places(entries) if entries else ()


def _renamed(link: Link, place: Place) -> Place:
    """The same at the destination."""
    name, prefixed = place
    before, variable, _ = link.rename.partition("{topic}")
    if not variable or not (prefixed or name == "*"):
        return link.renamed(name), False
    begins = fill(before, topic="", source=link.source, target=link.target, link=link.name)
    begins += "" if name == "*" else name
    return (begins, True) if begins else ("*", False)


# -- what of it we have -----------------------------------------------------------------------------------------


async def _lacking(cluster: Cluster, needs: Iterable[Need]) -> tuple[set[Right], set[Right]]:
    """Of these the rights that are missing, and those of which the site does not tell."""
    wanted = list(needs)
    topics = {need.name for need in wanted if need.right.kind == "topic" and not need.right.prefixed}
    on_topics, on_cluster = await topic_rights(cluster, topics - {"*"}), await cluster_rights(cluster)
    listed = await list_acls(cluster)
    acls = None if isinstance(listed, Refusal) or not principal_of(cluster.site) else listed
    missing, untold = set[Right](), set[Right]()
    for need in wanted:
        operation, kind = need.right.operation, need.right.kind
        told = on_cluster if kind == "cluster" else None
        if kind == "topic" and not need.right.prefixed:
            told = on_topics.get(need.name)
        have = None if told is None else operation in told
        if kind == "topic" and operation == "CREATE" and operation in (on_cluster or ()):
            have = True
        if have is None and acls is not None:
            have = is_granted(acls, need)
        if have is not True:
            denial = None if have is None else denied_by(acls or (), need)
            lacked = replace(need.right, denied=str(denial)) if denial is not None else need.right
            (untold if have is None else missing).add(lacked)
    return missing, untold


def denied_by(acls: Iterable[Acl], need: Need) -> Acl | None:
    """The ACL that forbids what is needed, if one does."""
    for acl in acls:
        ours = acl.kind == need.right.kind and acl.principal in (need.right.principal, "User:*")
        if (
            ours
            and acl.permission == "DENY"
            and acl.operation in (need.right.operation, "ALL")
            and _speaks_of(acl, need)
        ):
            return acl
    return None


def is_granted(acls: Iterable[Acl], need: Need) -> bool:
    """Whether these ACLs give a right from wherever we come."""
    enough = {need.right.operation, "ALL", *_CONTAINED.get(need.right.operation, ())}
    allowed, acls = False, list(acls)
    if denied_by(acls, need) is not None:
        return False
    for acl in acls:
        if acl.kind != need.right.kind or acl.principal not in (need.right.principal, "User:*"):
            continue
        if not _speaks_of(acl, need):
            continue
        allowed |= acl.permission == "ALLOW" and acl.operation in enough and acl.host == "*"
    return allowed


def _speaks_of(acl: Acl, need: Need) -> bool:
    if acl.kind == "cluster" or (acl.pattern == "literal" and acl.name == "*"):
        return True
    if acl.pattern == "prefixed":
        return need.name.startswith(acl.name)
    return acl.name == need.name and not need.right.prefixed
