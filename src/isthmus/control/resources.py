"""The resources of a link, in order, and how plans of all of them are made and carried out.

Invariants:
- the order is topics, configs, ACLs, schemas, groups: each may need what stands before it;
- a resource that fails as a whole is one blocked change, or failed outcomes; the others are planned and carried out all
  the same. Only what makes the link itself wrong is raised.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import kafka.errors as kerrors

from isthmus.config import Config, Link
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends, Resource
from isthmus.errors import ClusterChanged, IsthmusError, NotAllowed, SameCluster
from isthmus.kafka.produce import Fenced, Interrupted, Refused

_RESOURCES = {
    "topics": ("isthmus.control.topics", "Topics"),
    "configs": ("isthmus.control.configs", "Configs"),
    "acls": ("isthmus.control.acls", "Acls"),
    "schemas": ("isthmus.control.schemas", "Schemas"),
    "groups": ("isthmus.control.groups", "Groups"),
}
TROUBLE = (IsthmusError, kerrors.KafkaError, OSError, Fenced, Interrupted, Refused)
_WRONG_LINK = (ClusterChanged, SameCluster)


def resources(only: Iterable[str] | None = None) -> list[Resource]:
    """The resources, or those of these names, in order."""
    wanted = set(_RESOURCES if only is None else only)
    found = []
    for name, (module, kind) in _RESOURCES.items():
        if name in wanted and importlib.util.find_spec(module) is not None:
            found.append(getattr(importlib.import_module(module), kind)())
    return found


@dataclass(slots=True)
class Plan:
    """What should become of one link's destination."""

    link: Link
    changes: list[Change]

    @property
    def to_do(self) -> list[Change]:
        return [change for change in self.changes if change.to_do]

    @property
    def blocked(self) -> list[Change]:
        return [change for change in self.changes if change.action == "blocked"]


def plan_links(config: Config, links: Sequence[Link], only: Iterable[str] | None = None) -> list[Plan]:
    """The plans of several links, with topics that two links would write refused in both."""
    plans = []
    for link in links:
        with Ends(link, config.sites[link.source], config.sites[link.target]) as ends:
            changes: list[Change] = []
            for resource in resources(only):
                changes += ends.loop.run(planned, resource, ends)
            plans.append(Plan(link, changes))
    _refuse_clashes(plans)
    return plans


def _refuse_clashes(plans: list[Plan]) -> None:
    writers: dict[tuple[str, str], list[str]] = {}
    for plan in plans:
        for name in {c.name for c in plan.changes if c.resource == "topics"}:
            writers.setdefault((plan.link.target, name), []).append(plan.link.name)
    for plan in plans:
        for place, change in enumerate(plan.changes):
            others = writers.get((plan.link.target, change.name), []) if change.resource == "topics" else []
            if len(others) > 1:
                names = " and ".join(sorted(set(others) - {plan.link.name}))
                why = f"link {names} writes this topic too: tell them apart with rename, or exclude it from one of them"
                plan.changes[place] = replace(change, action="blocked", why=why)


async def planned(resource: Resource, ends: Ends) -> list[Change]:
    """A resource's plan; a resource that cannot tell is one blocked change."""
    try:
        return await resource.plan(ends)
    except _WRONG_LINK:
        raise
    except TROUBLE as error:
        told = explained(error, ends, f"comparing {resource.name}")
        needs = tuple(told.needed.splitlines()) if isinstance(told, NotAllowed) else ()
        return [Change(resource.name, "*", "blocked", told.message, needs=needs)]


async def applied(resource: Resource, ends: Ends, changes: list[Change]) -> list[Outcome]:
    """What became of a resource's changes; a resource that broke off leaves them all in doubt, for the next plan."""
    todo = [change for change in changes if change.to_do]
    if not todo:
        return []
    try:
        return await resource.apply(ends, todo)
    except _WRONG_LINK:
        raise
    except TROUBLE as error:
        words = explained(error, ends, f"changing {resource.name}").message
        return [Outcome(change, f"broke off: {words}") for change in todo]


def apply_link(config: Config, link: Link, only: Iterable[str] | None = None) -> tuple[list[Change], list[Outcome]]:
    """Plan and carry out, resource by resource; what is left to say (not to do), and what became of the rest."""
    with Ends(link, config.sites[link.source], config.sites[link.target]) as ends:
        said: list[Change] = []
        outcomes: list[Outcome] = []
        for resource in resources(only):
            changes = ends.loop.run(planned, resource, ends)
            said += [change for change in changes if not change.to_do]
            outcomes += ends.loop.run(applied, resource, ends, changes)
        return said, outcomes


def explained(error: Exception, ends: Ends, doing: str) -> IsthmusError:
    """Any trouble as an error of ours."""
    if isinstance(error, IsthmusError):
        return error
    if isinstance(error, kerrors.KafkaError):
        return ends.target.explain(error, doing)
    return ends.target.explain(kerrors.KafkaConnectionError(str(error) or type(error).__name__), doing)
