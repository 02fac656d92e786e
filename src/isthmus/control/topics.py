"""Topics: what a destination topic should look like, and how it comes about. Leases and `apply` both ask here.

Invariants:
- a topic is created, or grown to the source's partitions; it is never shrunk, never deleted, and internal topics are
  never touched;
- a topic that once held copies and is gone is not created again behind the operator's back: what was copied would be
  missing from it without a word;
- what the destination would refuse is found out while planning: it is asked, by requests that only validate;
- a link that finds no topic is told so, and is no success: what we may not describe looks as if it were not there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.config.names import is_internal, topic_problem
from isthmus.control import memory, settings
from isthmus.control.change import Action, Change, Diff, Outcome
from isthmus.control.ends import Ends
from isthmus.control.map_records import whole_map
from isthmus.control.rights import (
    Right,
    acl_places,
    cluster_rights,
    is_restricted,
    may_use_transactions,
    right,
    topic_rights,
)
from isthmus.engine import state
from isthmus.engine.held import held
from isthmus.engine.incarnations import gone, judge, without_progress
from isthmus.engine.lines import committed_of
from isthmus.engine.offset_map import PartitionMap, build_maps
from isthmus.errors import ConfigError
from isthmus.kafka.admin import (
    NewTopic,
    Refusal,
    TopicConfig,
    create_partitions,
    create_topics,
    defaults_of_new_topics,
    topic_configs,
    wait_for_topics,
)
from isthmus.kafka.cluster import STATE_PREFIX, Cluster, Metadata, TopicInfo
from isthmus.kafka.offsets import Committed, Partition

# Where a site keeps its groups; it is there as soon as one was asked for.
GROUP_STATE = "__consumer_offsets"
# How long what the controller knows may take to reach the brokers.
HEARSAY_SECONDS = 3.0


@dataclass(slots=True)
class Topic:
    """A source topic that the link copies, and its name at the target; ``problem`` is why no topic may be called so."""

    source: TopicInfo
    target: str
    problem: str = ""


async def discover(source: Cluster, link: Link) -> dict[str, Topic]:
    """The source topics that match, with their destination names; a clash of names is a mistake in the link. A name that cannot be
    is a problem of that topic only: whoever writes leaves it out, and says so."""
    metadata = await source.metadata(None)
    found: dict[str, Topic] = {}
    taken: dict[str, str] = {}
    for name, info in sorted(metadata.topics.items()):
        if info.error is not None or not link.topics.matches(name):
            continue
        target = link.renamed(name)
        if target in taken:
            raise ConfigError(
                f"link {link.name}: topics {taken[target]} and {name} would both be copied to {target}; change rename or "
                "exclude one of them"
            )
        taken[target] = name
        found[name] = Topic(info, target, problem_of_name(link, name))
    return found


def problem_of_name(link: Link, name: str) -> str:
    """Why a topic cannot be copied under the name that the link gives it; empty if it can."""
    target = link.renamed(name)
    problem = topic_problem(target)
    return (
        f"{name} would be renamed to {target}: {problem}; change links.{link.name}.rename, or exclude it"
        if problem
        else ""
    )


class Nothing(NamedTuple):
    """Why a link finds no topic, whether that is wrong, and the rights that would let us see some, if it can be those."""

    words: str
    amiss: bool = True
    needs: tuple[Right, ...] = ()


async def nothing_found(source: Cluster, link: Link) -> Nothing:
    """To be asked of a link that finds no topic."""
    site, entries = link.source, ", ".join(link.topics.include)
    everything = link.topics.refusing(None)
    if any(everything.matches(name) for name in (await source.metadata(None)).topics):
        return Nothing(f"what matches {entries} at site {site} are copies, which the loop rule leaves out", amiss=False)
    words = f"no topic at site {site} matches {entries}"
    if not await is_restricted(source):
        return Nothing(f"{words}: correct the link's topics, or create one")
    needs = tuple(right(source.site, "READ", "topic", *place) for place in acl_places(link.topics.include))
    grant = " and ".join(each.words for each in needs)
    return Nothing(f"{words}, or we may not describe any: grant {grant}, or correct the link's topics", True, needs)


# -- what a destination topic should look like --------------------------------------------------------------


def replication_of(link: Link, source: TopicInfo, brokers: int) -> int:
    """Replicas of a topic at the destination: the link's number or the source's, at most one a broker."""
    return min(link.replication_factor or source.replication, max(1, brokers))


async def blueprints(
    source: Cluster, target: Cluster, link: Link, topics: list[Topic], brokers: int
) -> dict[str, NewTopic]:
    """How each of these topics should be created, by its name at the destination."""
    if not topics:
        return {}
    configs = await topic_configs(source, [t.source.name for t in topics])
    first = topics[0]
    # The destination's defaults are the same for all: one probe tells whether they would refuse what is copied.
    probe = NewTopic(first.target, 1, replication_of(link, first.source, brokers))
    defaults = await defaults_of_new_topics(target, probe)
    made = {}
    for topic in topics:
        config = configs.get(topic.source.name)
        factor = replication_of(link, topic.source, brokers)
        want = settings.wanted(config if isinstance(config, TopicConfig) else None, link.sync.configs, factor)
        made[topic.target] = NewTopic(
            topic.target, len(topic.source.partitions), factor, settings.at_creation(want, defaults)
        )
    return made


async def create(target: Cluster, link: Link, new: list[NewTopic]) -> dict[str, Refusal | None]:
    """Create topics and remember which settings are ours; one that exists already is a success."""
    if not new:
        return {}
    await memory.remember(target, link.name, {("config", t.name): dict(t.configs) for t in new if t.configs})
    return await create_topics(target, new)


# -- the resource ---------------------------------------------------------------------------------------------


class Topics:
    name = "topics"

    async def plan(self, ends: Ends) -> list[Change]:
        link, source, target = ends.link, ends.source, ends.target
        topics = await discover(source, link)
        changes = await self._not_there(ends, topics)
        here = await target.metadata(None)
        hidden = [t.target for t in topics.values() if t.target not in here.topics]
        if hidden:  # absent, or not ours to see
            here.topics.update((await target.metadata(hidden)).topics)
        absent = {
            name: topic
            for name, topic in topics.items()
            if here.topics[topic.target].error is kerrors.UnknownTopicOrPartitionError or topic.problem
        }
        committed, trouble = await self._progress(ends, here)
        changes += trouble + await self._transactions(ends)
        maps, trouble = await self._maps(ends, topics, committed)
        changes += trouble
        partitions = ((name, p, t.target) for name, t in absent.items() for p in t.source.partitions)
        lost = {name for name, _ in held(partitions, committed, maps)}
        others = {name: fault for (name, _), fault in judge(link, topics, here.topics, committed, maps).items()}
        may_read = await topic_rights(source, topics)
        there = [t.target for t in topics.values() if here.topics[t.target].error is None and not t.problem]
        may_write = await topic_rights(target, there)
        new = {name: topic for name, topic in absent.items() if name not in lost}
        plans = await self._creations(ends, new, here)
        small = {
            t.target: len(t.source.partitions)
            for t in topics.values()
            if (info := here.topics[t.target]).error is None
            and not t.problem
            and len(info.partitions) < len(t.source.partitions)
        }
        growth = await _would_grow(target, small, here) if small else {}
        for name, topic in topics.items():
            change = (
                _gone(link, name, topic)
                if name in lost
                else Change(self.name, topic.target, "blocked", others[name].message)
                if name in others
                else plans.get(name) or _existing(ends, name, topic, here, growth.get(topic.target))
            )
            changes.append(change)
            changes += _without_rights(ends, name, topic, may_read.get(name), may_write.get(topic.target), name in new)
        changes += await _left_behind(source, link, topics, committed)
        return sorted(changes, key=lambda change: change.name)

    async def _not_there(self, ends: Ends, topics: Mapping[str, Topic]) -> list[Change]:
        """Topics that the link names and that are not at the source, or that we may not see; and that there is none at all."""
        named = [name for name in ends.link.topics.named() if name not in topics]
        changes = await self._named(ends, named) if named else []
        if not topics and not any(change.action == "blocked" for change in changes):
            nothing = await nothing_found(ends.source, ends.link)
            action: Action = "blocked" if nothing.amiss else "keep"
            changes.append(Change(self.name, "*", action, nothing.words, needs=_told(nothing.needs), loud=True))
        return changes

    async def _named(self, ends: Ends, named: list[str]) -> list[Change]:
        link, changes = ends.link, []
        for name, info in (await ends.source.metadata(named)).topics.items():
            target = link.renamed(name)
            if info.error is not None and issubclass(info.error, kerrors.AuthorizationError):
                needs = (right(ends.source.site, "READ", "topic", name),)
                changes.append(
                    Change(self.name, target, "blocked", f"not authorised to see {name}", needs=_told(needs))
                )
            elif info.error is not None:
                why = f"{name} does not exist at site {link.source} (yet)"
                changes.append(Change(self.name, target, "keep", why, loud=True))
        return changes

    async def _progress(self, ends: Ends, here: Metadata) -> tuple[dict[Partition, Committed], list[Change]]:
        """What the link has copied so far. Not to be allowed to know is a blocked change."""
        if GROUP_STATE not in here.topics and "ALTER" in (await cluster_rights(ends.target) or ()):
            return {}, []  # no group exists; to ask for one would make the site create the topic
        try:
            return await committed_of(ends.target, ends.link, stable=False, complete=False), []
        except kerrors.GroupAuthorizationFailedError:
            needs = (right(ends.target.site, "READ", "group", STATE_PREFIX, prefixed=True),)
            why = "not authorised to read the link's own progress"
            return {}, [Change(self.name, state.group(ends.link.name), "blocked", why, needs=_told(needs))]

    async def _transactions(self, ends: Ends) -> list[Change]:
        """Exactly-once takes transactions of the link's own; that we may not have them would show only when records are copied."""
        name = state.planner_id(ends.link.name)
        if ends.link.delivery != "exactly-once" or await may_use_transactions(ends.target, name):
            return []
        needs = (right(ends.target.site, "WRITE", "transactional-id", STATE_PREFIX, prefixed=True),)
        why = "not authorised to write in the link's own transactions"
        return [Change(self.name, name, "blocked", why, needs=_told(needs))]

    async def _maps(
        self, ends: Ends, topics: Mapping[str, Topic], committed: Mapping[Partition, Committed]
    ) -> tuple[dict[Partition, PartitionMap], list[Change]]:
        """The map, where progress does not tell of all partitions. Not to be allowed to know is a blocked change."""
        if not without_progress(topics, committed):
            return {}, []
        topic = state.map_topic(ends.link.name)
        error = (await ends.target.metadata([topic])).topics[topic].error
        if error is kerrors.UnknownTopicOrPartitionError:
            return {}, []  # the link never ran
        if error is not None:
            needs = (right(ends.target.site, "READ", "topic", STATE_PREFIX, prefixed=True),)
            return {}, [
                Change(self.name, topic, "blocked", "not authorised to read the link's map", needs=_told(needs))
            ]
        return build_maps(await whole_map(ends.target, ends.link.name)), []

    async def _creations(self, ends: Ends, new: Mapping[str, Topic], here: Metadata) -> dict[str, Change]:
        link, target = ends.link, ends.target
        alike = {_collision_key(name): name for name in here.topics if here.topics[name].error is None}
        plans: dict[str, Change] = {}
        good: dict[str, Topic] = {}
        for name, topic in new.items():
            clash = alike.get(_collision_key(topic.target))
            if topic.problem:
                plans[name] = Change(self.name, topic.target, "blocked", topic.problem)
            elif clash is not None:
                why = (
                    f"Kafka takes it for the same as {clash}, which exists: '.' and '_' are alike there; change rename"
                )
                plans[name] = Change(self.name, topic.target, "blocked", why)
            else:
                good[name] = topic
        designs = await blueprints(ends.source, target, link, list(good.values()), len(here.brokers))
        refused = await create_topics(target, list(designs.values()), validate_only=True) if designs else {}
        for name, topic in good.items():
            plans[name] = _creation(ends, name, topic, designs[topic.target], refused.get(topic.target))
        return plans

    async def apply(self, ends: Ends, changes: list[Change]) -> list[Outcome]:
        creations = {c.name: c for c in changes if c.action == "create"}
        growths = {c.name: c for c in changes if c.action == "grow"}
        refused = await create(ends.target, ends.link, [c.order for c in creations.values()])
        if growths:
            wanted = {name: change.order for name, change in growths.items()}
            grown = await create_partitions(ends.target, wanted)
            refused |= grown | dict.fromkeys(await _grown_by_others(ends.target, wanted, grown))
        fresh = [name for name, why in refused.items() if why is None]
        if fresh:
            await wait_for_topics(ends.target, fresh, timeout=120)
        return [
            outcome_of(
                change, refused.get(change.name), ends.target, "CREATE" if change.action == "create" else "ALTER"
            )
            for change in (*creations.values(), *growths.values())
        ]


async def _would_grow(target: Cluster, wanted: Mapping[str, int], here: Metadata) -> dict[str, Refusal | None]:
    """What the site would say to so many partitions. What somebody else has grown since ``here`` was asked is put right there."""
    answers = await create_partitions(target, wanted, validate_only=True)
    here.topics.update(await _grown_by_others(target, wanted, answers))
    return answers


async def _grown_by_others(
    target: Cluster, wanted: Mapping[str, int], answers: Mapping[str, Refusal | None]
) -> dict[str, TopicInfo]:
    """Which topics were refused to grow because somebody was first: they have as many partitions by now, as brokers see it.
    Brokers hear of it a moment after the controller knows."""
    wanted = {
        name: wanted[name] for name, why in answers.items() if why and why.error is kerrors.InvalidPartitionsError
    }
    found: dict[str, TopicInfo] = {}
    deadline = time.monotonic() + HEARSAY_SECONDS
    while wanted:
        for name, info in (await target.metadata(sorted(wanted))).topics.items():
            if info.error is None and len(info.partitions) >= wanted[name]:
                found[name] = info
        if len(found) == len(wanted) or time.monotonic() > deadline:
            break
        await target.loop.sleep(0.05)
    return found


def outcome_of(change: Change, why: Refusal | None, target: Cluster, operation: str) -> Outcome:
    """What became of a change to a topic that took this right."""
    if why is None:
        return Outcome(change)
    needs: tuple[str, ...] = ()
    if issubclass(why.error, kerrors.AuthorizationError):
        needs = _told([right(target.site, operation, "topic", change.name)])
    return Outcome(change, f"not authorised; grant {needs[0]}" if needs else str(why), needs)


def _told(rights: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in sorted(set(rights)))


def _collision_key(name: str) -> str:
    """Kafka names metrics after topics and takes '.' for '_' there, so two such topics cannot both exist."""
    return name.replace(".", "_")


def _creation(ends: Ends, name: str, topic: Topic, new: NewTopic, refusal: Refusal | None) -> Change:
    asked = ends.link.replication_factor or topic.source.replication
    why = f"{name} has no copy yet"
    if new.replication < asked:
        there = "is" if new.replication == 1 else "are"
        why += f"; {asked} replicas are asked for, and there {there} {settings.counted(new.replication, 'broker')}"
    diff = (
        Diff("partitions", None, str(new.partitions)),
        Diff("replication.factor", None, str(new.replication)),
        *(Diff(key, None, value) for key, value in sorted(new.configs.items())),
    )
    if refusal is not None and refusal.error is not kerrors.TopicAlreadyExistsError:
        if issubclass(refusal.error, kerrors.AuthorizationError):
            return Change(
                Topics.name, topic.target, "blocked", "not authorised to create it", diff,
                needs=_told([right(ends.target.site, "CREATE", "topic", topic.target)]),
            )  # fmt: skip
        return Change(Topics.name, topic.target, "blocked", f"site {ends.link.target} would refuse it: {refusal}", diff)
    return Change(Topics.name, topic.target, "create", why, diff, order=new)


def _existing(ends: Ends, name: str, topic: Topic, here: Metadata, refusal: Refusal | None) -> Change:
    link, info = ends.link, here.topics[topic.target]
    if info.error is not None:
        if issubclass(info.error, kerrors.AuthorizationError):
            # Whether it exists is hidden from us; these two are needed in any case, and let us see it.
            needs = _told(right(ends.target.site, operation, "topic", topic.target) for operation in ("READ", "WRITE"))
            return Change(Topics.name, topic.target, "blocked", "not authorised to see it", needs=needs)
        return Change(Topics.name, topic.target, "blocked", f"site {link.target} answers {info.error.__name__}")
    wanted, there = len(topic.source.partitions), len(info.partitions)
    diff = (Diff("partitions", str(there), str(wanted)),)
    if there < wanted:
        if refusal is not None and issubclass(refusal.error, kerrors.AuthorizationError):
            needs = _told([right(ends.target.site, "ALTER", "topic", topic.target)])
            return Change(Topics.name, topic.target, "blocked", "not authorised to grow it", diff, needs=needs)
        if refusal is not None:
            return Change(Topics.name, topic.target, "blocked", f"cannot be grown: {refusal}", diff)
        return Change(Topics.name, topic.target, "grow", f"{name} has {wanted} partitions", diff, order=wanted)
    if there > wanted:
        why = "never shrunk; so keyed records lie in the partitions that they had at the source"
        return Change(Topics.name, topic.target, "keep", why, diff)
    asked = replication_of(link, topic.source, len(here.brokers))
    if info.replication != asked:
        why = "moving replicas is the cluster's own business"
        return Change(
            Topics.name, topic.target, "keep", why, (Diff("replication.factor", str(info.replication), str(asked)),)
        )
    return Change(Topics.name, topic.target, "keep", "as at the source")


def _gone(link: Link, name: str, topic: Topic) -> Change:
    why = (
        f"it held copies of {name} and was deleted at site {link.target}: create it, then `isthmus reset {link.name} {name} "
        f"--to earliest`; or exclude {name} from the link"
    )
    return Change(Topics.name, topic.target, "blocked", why)


def _without_rights(
    ends: Ends, name: str, topic: Topic, source: set[str] | None, target: set[str] | None, new: bool
) -> list[Change]:
    """A blocked change for a topic that could not be copied as it is, with every right that is missing. The settings are
    needed to create it; of a topic that exists, configs.py asks for them."""
    needs = []
    if source is not None:
        wanted = ("READ", "DESCRIBE_CONFIGS") if new else ("READ",)
        needs += [right(ends.source.site, op, "topic", name) for op in wanted if op not in source]
    if target is not None:
        needs += [right(ends.target.site, op, "topic", topic.target) for op in ("READ", "WRITE") if op not in target]
    if not needs:
        return []
    return [Change(Topics.name, topic.target, "blocked", f"not authorised to copy {name} as it is", needs=_told(needs))]


async def _left_behind(
    source: Cluster, link: Link, topics: Mapping[str, Topic], committed: Mapping[Partition, Committed]
) -> list[Change]:
    """Topics that were copied once and are gone at the source: nothing can be done, and it is not for us to call that well."""
    lost = {name: fault for (name, _), fault in (await gone(source, link, topics, committed)).items()}
    return [
        Change(Topics.name, link.renamed(name), "blocked", fault.message)
        for name, fault in lost.items()
        if not is_internal(name)
    ]
