"""Makes a link's destination a site that everybody may write to, and a standby again.

Everything that is needed is remembered at the destination: what was staged there (acls.py), and what the link created. So the source
is not asked, and may be dead.

Invariants:
- *remember, then do*: that the site is promoted is written down first, and so is each ACL. Whoever is killed, the same verb, or
  any later plan, does the rest;
- only what this link granted is ever taken back;
- a part that fails (a registry that is away) is an outcome, and the rest is done.
"""

from __future__ import annotations

from isthmus.config import Link
from isthmus.control import memory
from isthmus.control.acls import (
    ACL,
    PROMOTED,
    STAGED,
    names_to_judge_by,
    outcome_of_acl,
    remembered_acls,
    unreadable,
    until_heard,
)
from isthmus.control.change import Change, Diff, Outcome
from isthmus.control.fence import standby_right
from isthmus.control.registry import RegistryClient, path
from isthmus.control.registry_mode import cannot_be_set, mode_of, settable, without_modes
from isthmus.control.schema_copy import in_thread
from isthmus.errors import IsthmusError
from isthmus.kafka.acls import Acl, create_acls, delete_acls, list_acls
from isthmus.kafka.admin import Refusal
from isthmus.kafka.cluster import Cluster

WRITABLE, STANDBY = "READWRITE", "READONLY"


async def plan_promotion(target: Cluster, link: Link) -> list[Change]:
    """What promoting would change; changes nothing."""
    known = await memory.recall(target, link.name)
    staged, changes = remembered_acls(link, known, STAGED, await names_to_judge_by(target, known, STAGED))
    if staged:
        here = await list_acls(target)
        if isinstance(here, Refusal):
            changes.append(unreadable(target, here))
        else:
            why = "it was staged for this"
            changes += [Change("acls", str(a), "create", why, order=a) for a in sorted(staged - set(here))]
    return changes + await _mode_change(target, link, WRITABLE, "everybody may register schemas")


async def plan_demotion(target: Cluster, link: Link) -> list[Change]:
    """What making it a standby again would change; changes nothing."""
    known = await memory.recall(target, link.name)
    ours, changes = remembered_acls(link, known, ACL, await names_to_judge_by(target, known, ACL))
    writers = {acl for acl in ours if standby_right(acl) != acl}
    if writers:
        here = await list_acls(target)
        if isinstance(here, Refusal):
            return [*changes, unreadable(target, here)]
        left = {right for acl in writers & set(here) if (right := standby_right(acl)) is not None} - set(here)
        changes += [Change("acls", str(a), "create", "a standby gives READ for ALL", order=a) for a in sorted(left)]
        why = "a standby lets nobody write; staged for the next promotion"
        changes += [Change("acls", str(a), "delete", why, order=a) for a in sorted(writers & set(here))]
    if link.sync.schemas.standby:
        changes += await _mode_change(target, link, STANDBY, "only the link registers schemas at a standby")
    return changes


async def promote(target: Cluster, link: Link) -> list[Outcome]:
    """Grant what was staged, and open the registry: the destination is no standby any more, for every later plan too."""
    changes = await plan_promotion(target, link)
    granted = [change.order for change in changes if change.action == "create"]
    await memory.remember(target, link.name, {PROMOTED: {}} | {(ACL, acl.key): {} for acl in granted})
    return await _carry_out(target, link, changes)


async def demote(target: Cluster, link: Link) -> list[Outcome]:
    """Take back what the link let others write with, and stage it: the destination is a standby again."""
    changes = await plan_demotion(target, link)
    created = [change.order for change in changes if change.action == "create"]
    staged = [change.order for change in changes if change.action == "delete"]
    things: memory.Things = {PROMOTED: None}
    things |= {(ACL, acl.key): {} for acl in created} | {(STAGED, acl.key): {} for acl in staged}
    await memory.remember(target, link.name, things)
    outcomes = await _carry_out(target, link, changes)
    gone = [o.change.order for o in outcomes if o.done and o.change.action == "delete"]
    await memory.remember(target, link.name, {(ACL, acl.key): None for acl in gone})
    return outcomes


async def _carry_out(target: Cluster, link: Link, changes: list[Change]) -> list[Outcome]:
    refused: dict[Acl, Refusal | None] = {}
    acls = [change for change in changes if change.resource == "acls"]
    given, taken = ([c for c in acls if c.action == action] for action in ("create", "delete"))
    # What is given comes before what is taken: nobody is without both.
    refused |= await create_acls(target, [c.order for c in given])
    refused |= await delete_acls(target, [c.order for c in taken])
    await until_heard(target, given, taken, refused)
    outcomes = [outcome_of_acl(c, refused[c.order], target) for c in acls if c.to_do]
    for change in changes:
        if change.resource == "schemas" and change.to_do:
            outcomes.append(await in_thread(target.loop, _set_mode, target, change))
    return outcomes + [Outcome(c, c.why, c.needs) for c in changes if c.action == "blocked"]


async def _mode_change(target: Cluster, link: Link, wanted: str, why: str) -> list[Change]:
    options = link.sync.schemas
    if not options.enabled or not options.standby or target.site.registry is None:
        return []
    try:
        mode = settable(await memory.recall(target, link.name), await in_thread(target.loop, _mode, target))
    except IsthmusError as error:
        return [Change("schemas", "*", "blocked", error.message)]
    if mode is None or mode == wanted:
        return []
    return [Change("schemas", "*", "alter", why, (Diff("mode", mode, wanted),), order=wanted)]


def _mode(target: Cluster) -> str | None:
    client = RegistryClient.of(target.site)
    try:
        return mode_of(client)
    finally:
        client.close()


def _set_mode(target: Cluster, change: Change) -> Outcome:
    """Set the registry's mode. One that cannot be closed stays open, and that is said; one that cannot be opened is a failure."""
    client = RegistryClient.of(target.site)
    try:
        client.put(path("mode"), {"mode": change.order})
        return Outcome(change)
    except IsthmusError as error:
        if cannot_be_set(error) and change.order == "READONLY":
            return Outcome(change, note=without_modes(target.site.name))
        return Outcome(change, error.message)
    finally:
        client.close()
