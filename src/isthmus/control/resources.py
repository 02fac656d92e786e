"""The resources of a link, in order, and how plans of all of them are made and carried out.

Invariants:
- the order is topics, configs, ACLs, schemas, groups: each may need what stands before it;
- a topic that two links would write is refused in both, whoever asks, unless all that write it have a loop rule and read different topics: then no
  record comes twice, and each link has a map and progress of its own;
- a resource that fails as a whole, whatever the reason, is one blocked change, or failed outcomes; the others are planned and carried out all
  the same. Only what makes the link itself wrong is raised.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import kafka.errors as kerrors

from isthmus.config import Config, Link
from isthmus.config.names import is_internal
from isthmus.config.ways import check_ways, depends_on_names
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends, Resource
from isthmus.control.meter import METER
from isthmus.control.needs import lacking, whole_list
from isthmus.control.topics import discover
from isthmus.errors import ClusterChanged, ConfigError, IsthmusError, NotAllowed, SameCluster
from isthmus.kafka.cluster import Cluster, whose
from isthmus.kafka.produce import Fenced, Interrupted, Refused
from isthmus.rules.listed import is_listed

_RESOURCES = {
    "topics": ("isthmus.control.topics", "Topics"),
    "configs": ("isthmus.control.configs", "Configs"),
    "acls": ("isthmus.control.acls", "Acls"),
    "schemas": ("isthmus.control.schemas", "Schemas"),
    "groups": ("isthmus.control.groups", "Groups"),
}
TROUBLE = (IsthmusError, kerrors.KafkaError, OSError, Fenced, Interrupted, Refused)
_WRONG_LINK = (ClusterChanged, SameCluster)
_APART = "tell them apart with rename, exclude it from all but one of them, or give each a loop rule"
#: Seconds for a site to answer whose link is only asked about.
_PATIENCE = 5.0
#: An error names so many topics.
_NAMED = 5


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
    """The plans of several links, with topics that two links would write refused."""
    refuse_loops(config)
    clashes = clashes_of(config, links)
    plans = []
    for link in links:
        found = Ends.of(config, link)
        found.patience = _PATIENCE
        with found as ends:
            changes: list[Change] = []
            for resource in resources(only):
                changes += without_clashes(ends.loop.run(planned, resource, ends), link, clashes)
            plans.append(Plan(link, changes + _rights(ends, changes)))
    return plans


Clashes = dict[tuple[str, str], set[str]]


def clashes_of(config: Config, links: Iterable[Link]) -> Clashes:
    """Topics that several links write and may not, by site and name, at the sites that these links write to.

    A link whose source cannot be asked now is left out: it writes nothing now, either.
    """
    shared = {link.target for link in links}
    rivals = [link for link in config.links.values() if link.target in shared]
    without_rule = {link.name for link in rivals if link.loop is None or is_listed(link, "invert")}
    writers: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for site in shared:
        here = [link for link in rivals if link.target == site]
        side_by_side = len({link.source for link in here}) < len(here)
        if len(here) == 1 or not (side_by_side or any(link.name in without_rule for link in here)):
            continue
        for link in here:
            with suppress(*TROUBLE), Cluster(config.sites[link.source], None, "isthmus-control") as source:
                source.call(source.connect, _PATIENCE)
                for name, topic in source.call(discover, source, link).items():
                    writers.setdefault((site, topic.target), {})[link.name] = (link.source, name)
    return {
        place: set(read)
        for place, read in writers.items()
        # Two links that read the very same topic double it, whatever rules they have.
        if len(read) > 1 and (set(read) & without_rule or len(set(read.values())) < len(read))
    }


def refuse_loops(config: Config) -> None:
    """Raise ``ConfigError`` if a topic that is there now would go round, which the file alone did not show."""
    links = {link.name: link.__dict__ for link in config.links.values()}
    if not depends_on_names(links):
        return
    topics: set[str] = set()
    for name in {link.source for link in config.links.values()}:
        with suppress(*TROUBLE), Cluster(config.sites[name], None, "isthmus-control") as site:
            site.call(site.connect, _PATIENCE)
            topics.update(each for each in site.call(site.metadata, None).topics if not is_internal(each))
    # Links side by side that write one topic are clashes, which a plan shows where they are.
    problems = [problem for problem in check_ways(links, sorted(topics)) if problem.loc[-1] != "topics"]
    if problems:
        raise ConfigError("\n".join(f"link {p.loc[1]}: {p.problem}; {p.hint}" for p in problems))


def refuse_clashes(config: Config, names: Iterable[str]) -> None:
    """Raise ``ConfigError`` if one of these links would write a topic together with another link that may not, or if records
    would go round."""
    refuse_loops(config)
    links = [config.link(name) for name in names]
    wanted = {link.name for link in links}
    found = [
        f"links {' and '.join(sorted(writers))} would write topic {topic} of site {site} together: {_APART}"
        for (site, topic), writers in sorted(clashes_of(config, links).items())
        if writers & wanted
    ]
    if found:
        rest = f"\n... and {len(found) - _NAMED} more topics" if len(found) > _NAMED else ""
        raise ConfigError("\n".join(found[:_NAMED]) + rest)


def without_clashes(changes: list[Change], link: Link, clashes: Clashes) -> list[Change]:
    """The same with topics that another link writes too as blocked."""
    found = []
    for change in changes:
        others = clashes.get((link.target, change.name), set()) - {link.name} if change.resource == "topics" else None
        if others:
            names = " and ".join(sorted(others))
            change = replace(change, action="blocked", why=f"link {names} writes this topic too: {_APART}")
        found.append(change)
    return found


async def planned(resource: Resource, ends: Ends) -> list[Change]:
    """A resource's plan; a resource that cannot tell is one blocked change."""
    began = time.monotonic()
    changes = await _planned(resource, ends)
    METER.planned(ends.link.name, resource.name, changes, time.monotonic() - began)
    return changes


async def _planned(resource: Resource, ends: Ends) -> list[Change]:
    try:
        return await resource.plan(ends)
    except _WRONG_LINK:
        raise
    except TROUBLE as error:
        told = await explained(error, ends, f"comparing {resource.name}")
        return [Change(resource.name, "*", "blocked", told.message, needs=await _needed(error, told, ends))]
    except Exception as error:
        return [Change(resource.name, "*", "blocked", f"cannot be compared: {_unexpected(error)}")]


async def applied(resource: Resource, ends: Ends, changes: list[Change]) -> list[Outcome]:
    """What became of a resource's changes; a resource that broke off leaves them all in doubt, for the next plan."""
    todo = [change for change in changes if change.to_do]
    if not todo:
        return []
    began = time.monotonic()
    outcomes = await _applied(resource, ends, todo)
    METER.applied(ends.link.name, resource.name, outcomes, time.monotonic() - began)
    return outcomes


async def _applied(resource: Resource, ends: Ends, todo: list[Change]) -> list[Outcome]:
    try:
        return await resource.apply(ends, todo)
    except _WRONG_LINK:
        raise
    except TROUBLE as error:
        words = (await explained(error, ends, f"changing {resource.name}")).message
        return [Outcome(change, f"broke off: {words}") for change in todo]
    except Exception as error:
        return [Outcome(change, f"broke off: {_unexpected(error)}") for change in todo]


async def _needed(error: Exception, told: IsthmusError, ends: Ends) -> tuple[str, ...]:
    """The rights that would have helped, each as an ACL. Kafka's own errors do not say which it was: one of those that are missing."""
    if isinstance(error, kerrors.AuthorizationError):
        with suppress(*TROUBLE):
            missing, untold = await lacking(ends)
            return tuple(sorted(missing | untold))
    return tuple(told.needed.splitlines()) if isinstance(told, NotAllowed) else ()


def _unexpected(error: Exception) -> str:
    """An error that nobody foresaw, with the place that it comes from: for whoever has to mend it."""
    (place,) = traceback.extract_tb(error.__traceback__)[-1:] or (None,)
    where = f" ({place.filename.rpartition('/')[2]}:{place.lineno})" if place is not None else ""
    return f"unexpected {type(error).__name__}: {str(error) or 'no reason given'}{where}"


def apply_link(config: Config, link: Link, only: Iterable[str] | None = None) -> tuple[list[Change], list[Outcome]]:
    """Plan and carry out, resource by resource; what is left to say (not to do), and what became of the rest."""
    with Ends.of(config, link) as ends:
        said: list[Change] = []
        outcomes: list[Outcome] = []
        clashes = clashes_of(config, [link])
        for resource in resources(only):
            changes = without_clashes(ends.loop.run(planned, resource, ends), link, clashes)
            said += [change for change in changes if not change.to_do]
            outcomes += ends.loop.run(applied, resource, ends, changes)
        return said + _rights(ends, [*said, *outcomes]), outcomes


def _rights(ends: Ends, told: Sequence[Change | Outcome]) -> list[Change]:
    """All rights that the link needs and may not have, if it lacks one. What is missing for sure is named without that, too."""
    with suppress(*TROUBLE):
        return ends.loop.run(whole_list, ends, told)  # type: ignore[no-any-return]
    return []


async def explained(error: Exception, ends: Ends, doing: str) -> IsthmusError:
    """Any trouble as an error of ours, that names the site which does not answer."""
    if isinstance(error, IsthmusError):
        return error
    if not isinstance(error, kerrors.KafkaError):
        error = kerrors.KafkaConnectionError(str(error) or type(error).__name__)
    if hasattr(error, "site"):
        return whose(error, ends.source, ends.target).explain(error, doing)
    if isinstance(error, kerrors.AuthorizationError):
        return ends.target.explain(error, doing)
    try:
        await ends.source.metadata([])
    except (kerrors.KafkaError, OSError):
        return ends.source.explain(error, doing)
    return ends.target.explain(error, doing)
