"""Links between a rebuilt site and third sites, where links send on what others wrote (rings, hubs). See docs/design.md, third sites of a re-seed.

Invariants:
- what is decided (births.py) is decided from logs of which nothing changes that it depends on: the link rests, and so does the one that has rebuilt the site;
- a topic of which it cannot be known where the link goes on is named, with why, and nothing is set for it;
- whoever goes on after a kill decides anew: what a part has copied by then stands in the log at its destination, or behind the part's own position.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Config, Link
from isthmus.config.part import Part
from isthmus.control import memory
from isthmus.engine import identity
from isthmus.engine.hold import hold
from isthmus.engine.offset_map import PartitionMap, Runs
from isthmus.engine.positions import Chunk, map_chunks, set_positions
from isthmus.engine.state import Progress
from isthmus.errors import IsthmusError, UnknownLink
from isthmus.kafka.admin import TopicConfig, topic_configs
from isthmus.kafka.cluster import NO_ID, Cluster, TopicInfo
from isthmus.kafka.offsets import Partition
from isthmus.recovery import stranded
from isthmus.recovery.births import (
    Decision,
    Log,
    Names,
    NotKnown,
    ascending,
    decide,
    had_by_place,
    read_log,
    rebuilt,
    spread,
)
from isthmus.recovery.catching_up import catch_up
from isthmus.recovery.seeded import SEEDED, Seeded, seeded_by
from isthmus.recovery.stage import Stage
from isthmus.rules.had import Marks

# No topics': under them a map holds places that a re-seed has written, or a part, in another order. Verify takes them for a link's.
BY_RESEED, BY_PART = (uuid.uuid5(uuid.NAMESPACE_URL, f"isthmus:{name}") for name in ("reseed", "part"))


class Lacking(NotKnown):
    """The destination has records that the source has not got yet."""


@dataclass(slots=True)
class Outcome:
    """How many partitions of a link were set, and of which topics nobody can know, with why."""

    count: int = 0
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    """What is known of one partition of a link: how it goes on, both topics' ids, and places that are not the link's."""

    decision: Decision
    source_id: uuid.UUID
    target_id: uuid.UUID
    strangers: Runs


def way_around(config: Config, first: str, last: str, without: str, topics: Collection[str] = ()) -> list[Link]:
    """The links that lead from one site to another, past a third one, and copy these topics; none if they do not."""
    found: dict[str, list[Link]] = {first: []}
    queue = deque([first])
    while queue:
        here = queue.popleft()
        for link in config.links.values():
            if link.source != here or link.target == without or link.target in found:
                continue
            if all(map(link.topics.matches, topics)):
                found[link.target] = [*found[here], link]
                queue.append(link.target)
    return found.get(last, [])


def comes_round(config: Config, survivor: str, lost: str, topics: Collection[str]) -> list[Link]:
    """The links by which what is written at the survivor, to these topics, comes to the lost site through others."""
    for last in config.links.values():
        if last.target != lost or last.source == survivor or not last.loop or not all(map(last.topics.matches, topics)):
            continue
        if way := way_around(config, survivor, last.source, lost, topics):
            return [*way, last]
    return []


class Onward:
    """Sets links with third sites behind a re-seed of ``lost`` from ``survivor``; ``name`` is the operation's."""

    def __init__(
        self, stage: Stage, lost: str, survivor: str, name: str, note: Callable[[str], None], seconds: float
    ) -> None:
        self._stage, self._config = stage, stage.config
        self._lost, self._survivor, self._name, self._note, self._seconds = lost, survivor, name, note, seconds

    def incoming(self, link: Link, seeded: Sequence[Seeded]) -> Outcome:
        """A link from a third site: the rebuilt one has what the survivor held before the cut."""

        def look(each: Seeded, names: Names, carried: list[int]) -> _Partition:
            topic, key = each.there, (each.there, each.partition)
            there = self._read(self._survivor, key, names, each.position)
            source = self._read(link.source, key, names)
            places, _, _ = PartitionMap("", 0, runs=each.runs).translate_many(there.offset)
            sites = [names.sites.index(site) for site in (link.source, self._lost)]
            made = decide(source, there, places, carried, *sites)
            return _Partition(self._whole(made, names), self._id(link.source, topic), each.there_id, each.runs)

        return self._set(link, seeded, look, self._await)

    def outgoing(self, link: Link, seeded: Sequence[Seeded], coming: Sequence[Link]) -> Outcome:
        """A link to a third site. ``coming`` are those that bring the rebuilt one what it lacks and that one has."""

        def look(each: Seeded, names: Names, carried: list[int]) -> _Partition:
            topic, key = each.there, (each.there, each.partition)
            lost = names.sites.index(self._lost)
            there = self._read(link.target, key, names)
            survivor = self._read(self._survivor, key, names, each.position)
            source = rebuilt(self._read(self._lost, key, names), each.runs, each.end, survivor, lost)
            made = decide(source, there, there.offset, carried, lost, lost)
            return _Partition(self._whole(made, names), each.there_id, self._id(link.target, topic), no_runs())

        try:
            return self._set(link, seeded, look, lambda *_: None, lacking=True)
        except Lacking:
            catch_up(self._config, coming, self._note, self._seconds)
            return self._set(link, seeded, look, lambda *_: None)

    # -- what is there ------------------------------------------------------------------------------------

    def _read(self, site: str, key: Partition, names: Names, end: int | None = None) -> Log:
        log: Log = self._stage.at(site, f"reading {key[0]}[{key[1]}]", read_log, key, names, end)
        return log

    def _topic(self, site: str, topic: str) -> TopicInfo:
        async def look(cluster: Cluster) -> TopicInfo:
            return (await cluster.metadata([topic])).topics[topic]

        found: TopicInfo = self._stage.at(site, f"looking at topic {topic}", look)
        return found

    def _id(self, site: str, topic: str) -> uuid.UUID:
        return self._topic(site, topic).id

    def _whole(self, made: Decision, names: Names) -> Decision:
        if made.lacking is not None:
            raise Lacking(
                f"the destination has records of {names.sites[made.lacking]} that have not come to the source"
            )
        return made

    def _names(self, link: Link, topics: Iterable[str]) -> Names:
        """How births are told in these topics: alike by all links that copy them."""
        marks: set[Marks | None] = set()
        for each in self._config.links.values():
            if not any(each.topics.matches(topic) for topic in topics):
                continue
            plain = (
                each.origin is not None and each.loop is not None and not each.loop.overrides and each.headers.offset
            )
            if not plain or each.loop.same_topic:  # type: ignore[union-attr]
                marks.add(None)
            else:
                marks.add(Marks(each.origin.header, each.origin.value, each.headers.offset))  # type: ignore[union-attr,arg-type]
        if len(marks) != 1 or (only := marks.pop()) is None:
            raise NotKnown(
                "births are not told alike by all links: they need one `origin`, `headers` on, and a loop rule without exceptions"
            )
        known = self._stage.at(self._survivor, "reading which clusters sites are", identity.incarnations)
        return Names.of(only, {site: tuple(known.get(site, ())) for site in self._config.sites})

    def _carried(self, link: Link, names: Names) -> list[int]:
        assert link.loop is not None
        if link.loop.drop == "foreign":
            return [names.sites.index(link.source)]
        return [at for at, site in enumerate(names.sites) if site != link.target]

    def _check_topic(self, link: Link, topic: str, seeded: Sequence[Seeded]) -> None:
        if link.destination_topic(topic) != topic or any(each.here != topic for each in seeded):
            raise NotKnown("it has another name at one of the sites")
        for site in {link.source, link.target, self._survivor}:
            configs = self._stage.at(site, "reading settings of topics", topic_configs, [topic])
            found = configs.get(topic)
            if not isinstance(found, TopicConfig):
                raise NotKnown(f"its settings at {site} cannot be read")
            if "compact" in found.values.get("cleanup.policy", ""):
                raise NotKnown("it is compacted: the last record of a site may be gone")

    def _await(self, link: Link, names: Names, carried: list[int]) -> None:
        """What the rebuilt site has must be at the third one, before the link goes on behind it."""
        ways: dict[str, Link] = {}
        for site in (names.sites[at] for at in carried):
            for way in way_around(self._config, site, link.source, self._lost) if site != link.source else ():
                ways.setdefault(way.name, way)
        for way in ways.values():
            asked = self._stage.asked_of(way, way.target)
            if asked.held or asked.paused:
                raise NotKnown(
                    f"link {way.name} is {'held' if asked.held else 'paused'}, and {link.source} lacks what it would bring"
                )
            catch_up(self._config, [way], self._note, self._seconds)

    # -- what is done -------------------------------------------------------------------------------------

    def _set(
        self,
        link: Link,
        seeded: Sequence[Seeded],
        look: Callable[[Seeded, Names, list[int]], _Partition],
        prepare: Callable[[Link, Names, list[int]], None],
        lacking: bool = False,
    ) -> Outcome:
        """Decide for each partition, copy apart what must be, and set the link. With ``lacking``, raises it before anything is done."""
        by_topic: dict[str, list[Seeded]] = {}
        for each in seeded:
            if link.topics.matches(each.there):
                by_topic.setdefault(each.there, []).append(each)
        outcome, found = Outcome(), dict[Partition, _Partition]()
        try:
            names = self._names(link, by_topic)
            carried = self._carried(link, names)
            prepare(link, names, carried)
        except (NotKnown, IsthmusError) as error:
            return Outcome(0, dict.fromkeys(by_topic, str(error)))
        third = link.source if link.target == self._lost else link.target
        for topic, some in by_topic.items():
            if self._topic(third, topic).error is kerrors.UnknownTopicOrPartitionError:
                continue  # nothing of it is there: the link meets it for the first time
            try:
                self._check_topic(link, topic, some)
                mine = {(topic, each.partition): look(each, names, carried) for each in some}
            except Lacking as error:
                if lacking:
                    raise
                outcome.unknown[topic] = str(error)
            except (NotKnown, UnknownLink) as error:
                outcome.unknown[topic] = str(error)
            else:
                found |= mine
        came = self._copy_apart(link, found, names)
        self._write(link, found, came)
        outcome.count = len(found)
        return outcome

    def part_of(self, link: Link) -> str:
        """What the part of a link is called that copies what is missing."""
        return stranded.apart(link, {}, self._name).name

    def _copy_apart(self, link: Link, found: dict[Partition, _Partition], names: Names) -> dict[Partition, Runs]:
        """Copy what the destination lacks between records that it has; where that was put."""
        ranges = {key: each.decision.apart for key, each in found.items() if each.decision.apart is not None}
        target = link.target
        if ranges:
            here = names.sites.index(link.source)
            elsewhere = self._stage.at(link.source, "reading log ends", stranded.ends_elsewhere, ranges)
            part: Part = stranded.apart(link, ranges, self._name, "", elsewhere)
            part = part.model_copy(update={"had": {}})
            for topic, partition in ranges:
                part.had.setdefault(topic, {})[partition] = had_by_place(found[topic, partition].decision, names, here)
            if not self._rests(part):
                catch_up(self._config, [part], self._note, self._seconds)
            self._stage.at(target, f"holding link {part.name}", hold, part, "its work is done")
        try:
            done = self._stage.at(
                target, "reading what was copied apart", seeded_by, stranded.apart(link, {}, self._name)
            )
        except UnknownLink:
            return {}
        return {(each.here, each.partition): each.runs for each in done}

    def _rests(self, part: Part) -> bool:
        """Whether an attempt before this one has copied it all."""
        try:
            return bool(self._stage.asked_of(part, part.target).held)
        except UnknownLink:
            return False

    def _write(self, link: Link, found: dict[Partition, _Partition], came: dict[Partition, Runs]) -> None:
        source = self._stage.site(link.source).cluster_id
        positions: dict[Partition, Progress] = {}
        chunks: list[Chunk] = []
        ranges: dict[Partition, list[int]] = {}
        for key, each in found.items():
            topic, partition = key
            progress = Progress(each.decision.position, topic, source, each.source_id, each.target_id)
            mine = came.get(key, no_runs())
            positions[key] = progress
            for topic_id, runs in ((BY_RESEED, each.strangers), (BY_PART, mine)):
                # Without ids of topics a map cannot say that places are not of this one.
                if len(runs) and each.source_id != NO_ID:
                    chunks += map_chunks(Progress(0, topic, source, topic_id, each.target_id), partition, runs, 0)
            chunks += map_chunks(progress, partition, ascending(np.concatenate((each.decision.pairs, spread(mine)))), 0)
            ranges[key] = [0, progress.offset]
        if not positions:
            return
        # In place of what was remembered of the log that was lost, whose offsets meant other records.
        things: memory.Things = {
            (kind, f"{topic}/{p}"): {"ranges": [span]}
            for (topic, p), span in ranges.items()
            for kind in (SEEDED, stranded.STRANDED)
        }
        self._stage.at(link.target, "remembering what came another way", memory.remember, link.name, things)
        self._stage.at(link.target, f"setting link {link.name}", set_positions, link, source, positions, chunks)


def no_runs() -> Runs:
    return np.empty((0, 3), np.int64)
