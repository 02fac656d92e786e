"""The operator's configuration, rewritten for a rehearsal.

Invariants of a rehearsal on this machine (``rehearsal``):
- what comes out holds no address, secret, hook, registry or Spark master of the operator: sites are only names, which local
  clusters take; links are what they are, but for what only the real sites could do, and what is left out is said;
- the real sites are asked for nothing but names of topics, and only where the file has expressions and no name was given.

Invariants of a rehearsal at the real sites (``scratch``):
- sites have other names, and the link has another name, so that nothing which is remembered of the real ones (journals, roles,
  positions) is touched; the link copies one topic that no link of the file copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Config, Link
from isthmus.config.examples import examples
from isthmus.config.patterns import is_pattern
from isthmus.config.sync_acls import SyncAcls
from isthmus.config.sync_groups import SyncGroups
from isthmus.config.sync_schemas import SyncSchemas
from isthmus.config.topics import Topics
from isthmus.errors import ConnectionFailed, NotAllowed, UsageError
from isthmus.kafka.cluster import Cluster

# How long a real site may take to tell the names of its topics.
ASK_SECONDS = 2.0
# A rehearsal shows how it goes, not how much of it there is: more topics or partitions would only cost time.
MOST_TOPICS, MOST_PARTITIONS, PARTITIONS = 20, 12, 3
GROUP = "isthmus-drill"


@dataclass(frozen=True, slots=True)
class Parts:
    """Who plays what: ``site`` is the one that work leaves, ``survivor`` the one that takes over."""

    site: str
    survivor: str
    forward: tuple[Link, ...]
    backward: tuple[Link, ...]


@dataclass(slots=True)
class Rehearsal:
    """What a rehearsal on this machine needs: the document without its sites' addresses, and the topics of each site."""

    parts: Parts
    sites: list[str]
    links: dict[str, dict[str, Any]]
    topics: dict[str, dict[str, int]]
    """By site: topics to be made there, with their partitions."""
    group: str
    notes: list[str] = field(default_factory=list)

    def document(self, sites: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The configuration, with the local clusters that take the sites' names."""
        return {
            "sites": {name: dict(sites[name]) for name in self.sites},
            "links": self.links,
            "spark": {"spark.master": "local[*]"},
        }


def parts_of(config: Config, site: str | None) -> Parts:
    """Who leaves and who takes over: the source of the first link, and its other end, unless a site is named."""
    if not config.links:
        raise UsageError("the configuration has no link; there is nothing to rehearse")
    if site is not None:
        config.site(site)
    leaving = site if site is not None else next(iter(config.links.values())).source
    survivor = next((link.target for link in config.links.values() if link.source == leaving), None)
    if survivor is None:
        raise UsageError(
            f"no link leads from {leaving}: nothing of it is anywhere else. Name another one with --site "
            f"({', '.join(dict.fromkeys(link.source for link in config.links.values()))})"
        )
    links = config.links.values()
    return Parts(
        leaving,
        survivor,
        tuple(link for link in links if (link.source, link.target) == (leaving, survivor)),
        tuple(link for link in links if (link.source, link.target) == (survivor, leaving)),
    )


# -- on this machine -----------------------------------------------------------------------------------------


def rehearsal(config: Config, site: str | None, given: Sequence[str]) -> Rehearsal:
    """Rewrite the configuration; asks a real site for names only where the file has none."""
    parts = parts_of(config, site)
    notes: list[str] = []
    used = [name for name in config.sites if any(name in (link.source, link.target) for link in config.links.values())]
    topics = _topics(config, given, notes)
    if not any(link.topics.matches(topic) for link in parts.forward for topic in topics[parts.site]):
        names = ", ".join(link.name for link in parts.forward)
        raise UsageError(
            f"no topic is known that {names} would copy from {parts.site}: its topics are expressions, and the site did not answer within "
            f"{ASK_SECONDS:g} s. Name one with --topic"
        )
    return Rehearsal(
        parts,
        used,
        {link.name: _rewritten(link, notes) for link in config.links.values()},
        topics,
        _group(parts, notes),
        notes,
    )


def _rewritten(link: Link, notes: list[str]) -> dict[str, Any]:
    """A link as it is, without what only the real sites could do."""
    sync = link.sync.model_copy(update={"acls": SyncAcls(), "schemas": SyncSchemas()})
    changes: dict[str, Any] = {"sync": sync, "spark": {}, "replication_factor": None, "start": "earliest"}
    left_out = []
    if link.sync.acls.enabled:
        left_out.append("sync.acls (local sites have no users)")
    if link.sync.schemas.enabled:
        left_out.append("sync.schemas (local sites have no registry)")
    if link.replication_factor is not None:
        left_out.append("replication_factor (local sites have one broker)")
    if link.start != "earliest":
        left_out.append("start (local topics are new)")
    schema_ids = [rule for rule in link.rules if isinstance(rule, dict) and "schema_ids" in rule]
    if schema_ids:
        changes["rules"] = [rule for rule in link.rules if rule not in schema_ids]
        left_out.append("the rule schema_ids")
    if left_out:
        notes.append(f"link {link.name}: left out: {', '.join(left_out)}")
    data = link.model_copy(update=changes).model_dump(mode="json", by_alias=True)
    del data["name"]  # it is the key
    return data


def _group(parts: Parts, notes: list[str]) -> str:
    """The name of a group that follows the link, so that its positions do."""
    sync = parts.forward[0].sync.groups
    candidates = [GROUP]
    for entry in sync.include:
        candidates += examples(entry) if is_pattern(entry) else [entry]
    found = next((name for name in candidates if sync.matches(name)), None)
    if not sync.enabled or found is None:
        notes.append(f"link {parts.forward[0].name}: consumer groups do not follow it, so readers begin anew")
        return GROUP
    return found


def _topics(config: Config, given: Sequence[str], notes: list[str]) -> dict[str, dict[str, int]]:
    """The topics of each site that links would copy."""
    for topic in given:
        if not any(link.topics.matches(topic) for link in config.links.values()):
            raise UsageError(f"--topic {topic}: no link of the configuration copies it")
    found: dict[str, dict[str, int]] = {name: {} for name in config.sites}
    for link in config.links.values():
        here = found[link.source]
        here.update(dict.fromkeys([*link.topics.named(), *filter(link.topics.matches, given)], PARTITIONS))
    if not given:
        asked = {link.source for link in config.links.values() if any(map(is_pattern, link.topics.include))}
        for site in sorted(asked):
            names = _asked(config, site, notes)
            for link in config.links.values():
                if link.source == site:
                    found[site].update({name: count for name, count in names.items() if link.topics.matches(name)})
    widest: dict[str, int] = {}
    for topics in found.values():
        for name, count in topics.items():
            widest[name] = max(count, widest.get(name, 0))
    for site, topics in found.items():
        # A topic that two sites share has as many partitions at both.
        topics.update({name: widest[name] for name in topics})
        if len(topics) > MOST_TOPICS:
            notes.append(f"{site}: {MOST_TOPICS} of {len(topics)} topics take part")
        found[site] = dict(sorted(topics.items())[:MOST_TOPICS])
    return found


def _asked(config: Config, site: str, notes: list[str]) -> dict[str, int]:
    """What a real site says of its topics: the only thing that it is ever asked."""

    async def look() -> dict[str, int]:
        await cluster.connect(ASK_SECONDS)
        topics = (await cluster.metadata(None)).topics
        return {name: min(MOST_PARTITIONS, len(t.partitions)) for name, t in topics.items() if t.partitions}

    cluster = Cluster(config.sites[site], purpose="isthmus-drill")
    with cluster:
        try:
            names: dict[str, int] = cluster.call(look)
        except (ConnectionFailed, NotAllowed, kerrors.KafkaError, OSError):
            notes.append(f"{site} did not tell its topics within {ASK_SECONDS:g} s")
            return {}
    notes.append(f"{site} was asked for the names of its topics, and for nothing else")
    return names


# -- at the real sites ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scratch:
    """What a rehearsal at the real sites needs: a configuration of its own, in which the sites have other names."""

    config: Config
    link: Link
    real: Link
    source: str
    target: str
    topic: str
    copy: str
    group: str
    notes: tuple[str, ...] = ()


def scratch(config: Config, site: str | None, mark: str) -> Scratch:
    """Make it; refused where a link of the file would take the scratch topic along."""
    parts = parts_of(config, site)
    real = parts.forward[0]
    topic, group, name = f"isthmus-drill-{mark}", f"isthmus-drill-{mark}", f"drill-{mark}"
    source, target = (f"{name}-{end}"[:61] for end in (real.source, real.target))
    if source == target:
        source, target = f"{name}-source", f"{name}-target"
    notes = []
    # A fixed name is that of a real topic.
    rename = real.rename if "{topic}" in real.rename else "{topic}"
    if rename != real.rename:
        notes.append(f"link {real.name} gives its topic a fixed name; the scratch topic keeps its own")
    sync = real.sync.model_copy(
        update={
            "acls": SyncAcls(),
            "schemas": SyncSchemas(),
            "groups": SyncGroups(include=[group], interval=real.sync.groups.interval, only_empty=False),
        }
    )
    rules = [rule for rule in real.rules if not (isinstance(rule, dict) and "schema_ids" in rule)]
    if len(rules) != len(real.rules):
        notes.append("the rule schema_ids is left out: the records of a drill hold no schemas")
    link = real.model_copy(
        update={
            "name": name,
            "source": source,
            "target": target,
            "topics": Topics(include=[topic]),
            "rename": rename,
            "start": "earliest",
            "rules": rules,
            "sync": sync,
        }
    )
    copy = link.destination_topic(topic)
    for other in config.links.values():
        for where, what in ((real.source, topic), (real.target, copy)):
            if other.source == where and other.topics.matches(what):
                raise UsageError(
                    f"link {other.name} would copy the scratch topic {what} along. Leave it out first (links.{other.name}.topics.exclude: "
                    '["/.*isthmus-drill-.*/"]) and start its run anew'
                )
    # Hooks are the operator's own commands, and a drill runs none of them.
    sites = {
        new: config.sites[old].model_copy(update={"name": new, "hooks": None})
        for new, old in ((source, real.source), (target, real.target))
    }
    made = Config(sites=sites, links={name: link}, spark={**config.spark, **real.spark})
    return Scratch(made, made.links[name], real, source, target, topic, copy, group, tuple(notes))
