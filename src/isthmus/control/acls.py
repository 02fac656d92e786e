"""ACLs of what a link copies: who may do what at the destination, and what is held back while it is a standby.

Invariants:
- the pattern type and the host stay as they are, the name follows the link's rename, the principal its mapping;
- at a standby nobody gets to write through us: ALLOW WRITE is staged, ALLOW ALL is given as READ with ALL staged. DENY is
  copied whole, always. What is staged is written down at the destination and granted at promotion (promote.py), when the source may
  be dead, and only then;
- what a fence has taken from the source (fence.py) counts as if it were there;
- an ACL is removed only if this link created it (memory.py) and nothing at the source calls for it any more;
- what was changed is seen by every broker before it counts as done, so a second apply has nothing to do.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.config.names import is_internal
from isthmus.config.rename import fill
from isthmus.config.turned import could_make
from isthmus.control import memory
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends
from isthmus.control.fence import as_if_not_fenced, fenced, standby_right
from isthmus.control.rights import cluster_rights, principal_of, right
from isthmus.control.topics import Topic, discover, problem_of_name
from isthmus.kafka.acls import Acl, create_acls, delete_acls, list_acls, scram_users, wait_for_acls
from isthmus.kafka.admin import Refusal
from isthmus.kafka.cluster import Cluster

# What is remembered at the destination: that it is promoted, which ACLs this link has created, which it holds back.
PROMOTED = ("site", "promoted")
ACL, STAGED = "acl", "staged"


@dataclass(frozen=True, slots=True)
class NotStagedAnyMore:
    """What apply has to do about an ACL that was held back and is gone at the source: forget it."""

    acl: Acl


class Acls:
    name = "acls"

    async def plan(self, ends: Ends) -> list[Change]:
        link, rules = ends.link, ends.link.sync.acls
        if not rules.enabled:
            return []
        there, here = await list_acls(ends.source), await list_acls(ends.target)
        if isinstance(there, Refusal):
            if there.error is kerrors.SecurityDisabledError:
                return [Change(self.name, "*", "keep", f"site {link.source} has no authoriser, so there are no ACLs")]
            return [unreadable(ends.source, there)]
        topics = {name: topic for name, topic in (await discover(ends.source, link)).items() if not topic.problem}
        recalled = await memory.recall(ends.target, link.name)
        standby = rules.standby and PROMOTED not in recalled
        at_source = as_if_not_fenced(there, await fenced(ends.source))
        grant, staged, left = wanted(at_source, link, topics, standby, principal_of(ends.source.site))
        changes = left
        if isinstance(here, Refusal):
            if here.error is not kerrors.SecurityDisabledError:
                return [*changes, unreadable(ends.target, here)]
            if grant or staged:
                why = f"site {link.target} has no authoriser: {len(grant) + len(staged)} ACLs of site {link.source} cannot be kept"
                changes.append(Change(self.name, "*", "blocked", why))
            return [*changes, *await self._users(ends)]
        existing = set(here)
        names = await names_to_judge_by(ends.target, recalled, ACL, STAGED)
        ours, held, odd = set[Acl](), set[Acl](), list[Change]()
        for kind, known in ((ACL, ours), (STAGED, held)):
            good, bad = remembered_acls(link, recalled, kind, names)
            known.update(good)
            odd += bad
        changes += odd
        changes += [
            Change(self.name, str(acl), "keep" if acl in existing else "create", why, order=acl)
            for acl, why in sorted(grant.items())
        ]
        staged = {acl: why for acl, why in staged.items() if acl not in grant}
        changes += [
            Change(self.name, str(acl), "stage", why, order=None if acl in held else acl)
            for acl, why in sorted(staged.items())
        ]
        if standby:
            why = "staged by this link, and gone at the source"
            changes += [
                Change(self.name, str(acl), "delete", why, order=NotStagedAnyMore(acl))
                for acl in sorted(held - set(staged))
            ]
        stand_ins = {standby_right(acl) for acl in grant}
        changes += [
            Change(self.name, str(acl), "keep", "it stood in for ALL at the standby, and is contained in that")
            if acl in stand_ins
            else Change(self.name, str(acl), "delete", "created by this link, and gone at the source", order=acl)
            for acl in sorted(ours - set(grant))
            if acl in existing
        ]
        if any(_alters(change) for change in changes):
            may = await cluster_rights(ends.target)
            if may is not None and "ALTER" not in may:
                needs = (str(right(ends.target.site, "ALTER", "cluster")),)
                changes = [_blocked(change, needs) if _alters(change) else change for change in changes]
        return [*changes, *await self._users(ends)]

    async def _users(self, ends: Ends) -> list[Change]:
        """SCRAM users, which have to be made by hand: nobody can read a password, or what it is checked by."""
        there, here = await scram_users(ends.source), await scram_users(ends.target)
        if isinstance(there, Refusal) or isinstance(here, Refusal):
            return []  # what is said about ACLs names the same right
        changes = []
        for user, mechanisms in sorted(there.items()):
            principal = ends.link.sync.acls.principal(f"User:{user}")
            if principal is None:
                continue
            name, words = principal.removeprefix("User:"), ", ".join(mechanisms)
            if name in here:
                why = f"exists on both sides; whether the password is the same ({words} at the source) cannot be seen"
            else:
                why = f"create it by hand: the password of {user} ({words}) cannot be read, so it cannot be copied"
            changes.append(Change(self.name, f"SCRAM user {name}", "keep", why, loud=True))
        return changes

    async def apply(self, ends: Ends, changes: list[Change]) -> list[Outcome]:
        created = [c for c in changes if c.action == "create"]
        deleted = [c for c in changes if c.action == "delete" and isinstance(c.order, Acl)]
        held = [c for c in changes if c.action == "stage" and c.to_do]
        let_go = [c for c in changes if c.action == "delete" and isinstance(c.order, NotStagedAnyMore)]
        link = ends.link.name
        things: memory.Things = {(ACL, c.order.key): {} for c in created}
        things |= {(STAGED, c.order.key): {} for c in held} | {(STAGED, c.order.acl.key): None for c in let_go}
        await memory.remember(ends.target, link, things)
        refused = await create_acls(ends.target, [c.order for c in created])
        refused |= await delete_acls(ends.target, [c.order for c in deleted])
        await until_heard(ends.target, created, deleted, refused)
        gone = [c.order for c in deleted if refused.get(c.order) is None]
        await memory.remember(ends.target, link, {(ACL, acl.key): None for acl in gone})
        done = [outcome_of_acl(c, refused.get(c.order), ends.target) for c in (*created, *deleted)]
        return done + [Outcome(c) for c in (*held, *let_go)]


async def until_heard(
    target: Cluster, created: Iterable[Change], deleted: Iterable[Change], refused: Mapping[Acl, Refusal | None]
) -> None:
    """Wait until what was not refused is seen by whoever asks: the next plan must not find it to do again."""
    given, taken = ([c.order for c in some if refused.get(c.order) is None] for some in (created, deleted))
    await wait_for_acls(target, given, taken)


def wanted(
    acls: Iterable[Acl], link: Link, topics: dict[str, Topic], standby: bool, ourselves: str = ""
) -> tuple[dict[Acl, str], dict[Acl, str], list[Change]]:
    """What the destination should have, what is staged, each with its reason, and what cannot be said there."""
    grant: dict[Acl, str] = {}
    staged: dict[Acl, str] = {}
    left: list[Change] = []
    names = sorted(topics)
    for acl in sorted(acls):
        if acl.kind not in link.sync.acls.kinds or not _concerns(acl, link, names):
            continue
        principal = link.sync.acls.principal(acl.principal)
        if principal is None or acl.principal == ourselves:
            why = (
                "sync.acls.principals leaves it out"
                if principal is None
                else "what the link itself may do at the source"
            )
            left.append(Change(Acls.name, str(acl), "keep", why))
            continue
        for each in _renamed(acl, link, topics) if acl.kind == "topic" else [acl]:
            made = replace(each, principal=principal)
            why = "as at the source" if made == acl else f"is {acl} at the source"
            allowed = standby_right(made) if standby else made
            if allowed == made:
                grant[made] = why
            elif allowed is None:
                staged[made] = "the destination is a standby: granted when it is promoted"
            else:
                grant[allowed] = "a standby gives READ for ALL"
                staged[made] = "the destination is a standby: READ until it is promoted"
    return grant, staged, left


def _concerns(acl: Acl, link: Link, names: list[str]) -> bool:
    """Whether an ACL says something about what the link copies; ``names`` are the topics, sorted."""
    if is_internal(acl.name):
        return False
    if acl.kind != "topic":
        return True
    if acl.pattern == "prefixed":
        return _first_with(names, acl.name) < len(names)
    return bool(names) if acl.name == "*" else link.topics.matches(acl.name)


def _first_with(names: list[str], prefix: str) -> int:
    """Where the names begin that have a prefix; the length if none has."""
    place = bisect_left(names, prefix)
    return place if place < len(names) and names[place].startswith(prefix) else len(names)


def _renamed(acl: Acl, link: Link, topics: dict[str, Topic]) -> list[Acl]:
    """The same at the destination. A pattern stays a pattern where the new names still begin with it; where the rename
    puts something behind the name, it becomes one ACL for each topic that there is."""
    if acl.pattern == "literal" and acl.name != "*":
        return [] if problem_of_name(link, acl.name) else [replace(acl, name=link.destination_topic(acl.name))]
    before, variable, behind = link.rename.partition("{topic}")
    if variable and not behind:
        prefix = fill(before, topic="", source=link.source, target=link.target, link=link.name)
        name = prefix if acl.name == "*" else prefix + acl.name
        return [replace(acl, name=name, pattern="prefixed")] if name else [acl]
    every = acl.name == "*"
    return [
        replace(acl, name=topic.target, pattern="literal")
        for name, topic in topics.items()
        if every or name.startswith(acl.name)
    ]


def _alters(change: Change) -> bool:
    """Whether it takes the right to change ACLs."""
    return change.to_do and change.action != "stage" and isinstance(change.order, Acl)


def acl_of(key: str, _: object = None) -> Acl:
    return Acl.read(json.loads(key))


async def names_to_judge_by(target: Cluster, recalled: memory.Memory, *kinds: str) -> Collection[str]:
    """The topics of the destination, if something that is remembered can only be judged by them: a prefix. All of them are much to ask for."""
    acls = [acl for kind in kinds for acl in memory.sorted_out(recalled, kind, acl_of)[0].values()]
    if any(acl.kind == "topic" and acl.pattern == "prefixed" for acl in acls):
        return (await target.metadata(None)).topics
    return ()


def remembered_acls(
    link: Link, recalled: memory.Memory, kind: str, topics: Collection[str]
) -> tuple[set[Acl], list[Change]]:
    """The ACLs that the link remembers, and what stands there besides: nothing is ever done that this link could not have come to remember.

    ``topics`` are those of the destination (``names_to_judge_by``).
    """
    found, bad = memory.sorted_out(recalled, kind, acl_of)
    changes = [Change(Acls.name, error.key, "blocked", error.message) for error in bad.values()]
    good, topics = set[Acl](), sorted(topics)
    for name, acl in found.items():
        if could_copy(link, acl, topics):
            good.add(acl)
            continue
        where = f"isthmus state forget {link.target} {recalled.table.topic} {shlex.quote(f'{kind}/{name}')}"
        why = f"is remembered, but is none that this link makes: somebody else wrote it, or the link was another one. `{where}` takes it away"
        changes.append(Change(Acls.name, str(acl), "blocked", why))
    return good, changes


def could_copy(link: Link, acl: Acl, topics: Sequence[str]) -> bool:
    """Whether the link can have made this ACL of one at its source; ``topics`` are those of the destination, sorted."""
    if acl.kind not in link.sync.acls.kinds or is_internal(acl.name):
        return False
    if acl.kind != "topic":
        return True
    if acl.pattern == "literal":
        return could_make(link, acl.name) if acl.name != "*" else link.rename == "{topic}"
    first = bisect_left(topics, acl.name)
    covered = takewhile(lambda name: name.startswith(acl.name), islice(topics, first, None))
    return any(could_make(link, name) for name in covered)


def unreadable(cluster: Cluster, why: Refusal) -> Change:
    site = cluster.site
    if issubclass(why.error, kerrors.AuthorizationError):
        needs = (str(right(site, "DESCRIBE", "cluster")),)
        return Change(Acls.name, "*", "blocked", f"not authorised to see the ACLs of site {site.name}", needs=needs)
    return Change(Acls.name, "*", "blocked", f"site {site.name} does not tell its ACLs: {why}")


def _blocked(change: Change, needs: tuple[str, ...]) -> Change:
    return replace(change, action="blocked", why=f"not authorised to {change.action} ACLs", needs=needs)


def outcome_of_acl(change: Change, why: Refusal | None, target: Cluster) -> Outcome:
    if why is None:
        return Outcome(change)
    if issubclass(why.error, kerrors.AuthorizationError):
        needs = (str(right(target.site, "ALTER", "cluster")),)
        return Outcome(change, f"not authorised; grant {needs[0]}", needs)
    return Outcome(change, str(why))
