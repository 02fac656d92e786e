"""What is known of both sides before a record is read: positions, the maps, log ends, and the ranges with a story.

Invariant: the order of reading makes a comparison right while everybody goes on writing.

    1. progress            what lies before it (the watermark) must be at the destination, and in the map
    2. the end there       what lies before it is in a map by now, or was copied by no link
    3. the maps, whole     up to what was *appended* by now: markers of a transaction reach partitions one after another, so a record may be
                           visible while the line of the map that belongs to it is not
    4. the end there again what the map names must lie before it, once the last transaction's markers have come
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Config, Link
from isthmus.config.link import StartOffsets
from isthmus.control.acls import PROMOTED
from isthmus.control.memory import Memory, of_kind, ranges, recall
from isthmus.control.schema_copy import Known, Subject
from isthmus.control.schemas import KIND as SCHEMAS
from isthmus.control.topics import Topic, discover
from isthmus.engine import state
from isthmus.engine.identity import incarnations, newest
from isthmus.engine.incarnations import destination_recreated, gone, source_recreated
from isthmus.engine.lines import committed_of
from isthmus.engine.offset_map import POSITION, Chunk, ChunkKey, PartitionMap, build_maps, decode_chunk
from isthmus.engine.state import Progress
from isthmus.errors import (
    DataError,
    DestinationMissing,
    DestinationRecreated,
    DestinationRefused,
    PartitionFault,
    UnknownLink,
)
from isthmus.kafka.admin import TopicConfig, topic_configs
from isthmus.kafka.cluster import NO_ID, Cluster, TopicInfo
from isthmus.kafka.offsets import EARLIEST, LATEST, Committed, Partition, list_offsets
from isthmus.kafka.read import read_to_end
from isthmus.recovery.standing import SERVED
from isthmus.recovery.verify_home import Served, everywhere, served
from isthmus.recovery.verify_units import Longs, Pair, clipped, merged, no_runs, no_spans, spans_of
from isthmus.rules import Identities

#: A transaction that has not ended by then will not: brokers end those of ours within a minute.
OPEN_SECONDS = 150.0

#: Kinds of memories of a link that tell of ranges; a name is TOPIC/PARTITION.
SEEDED, STRANDED = "seeded", "stranded"

Offsets = dict[Partition, int]
Lines = dict[bytes, bytes]


@dataclass(slots=True)
class Survey:
    """What there is to compare, and what there is to say before."""

    pairs: list[Pair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is to be said, and is no damage."""
    waiting: int = 0
    """How many source offsets lie beyond what the link has copied, of partitions of which nothing was copied yet."""
    faults: list[PartitionFault] = field(default_factory=list)
    identities: Identities = field(default_factory=Identities)
    schema_ids: dict[int, int] = field(default_factory=dict)


async def survey(
    source: Cluster,
    target: Cluster,
    config: Config,
    link: Link,
    chosen: Iterable[str] | None,
    since: int | None,
    home: Survey | None = None,
) -> Survey:
    """Look at both sides of a link. ``chosen`` are source topics (all by default); ``since`` is in milliseconds; ``home`` is what a failback has
    brought home."""
    found = Survey()
    topics = await discover(source, link)
    if chosen is not None:
        topics = {name: topics[name] for name in chosen if name in topics}
    committed = await committed_of(target, link)
    if not committed:
        raise UnknownLink(f"link {link.name}: site {link.target} holds no state of it; has it ever run?")
    names = sorted({topic.target for topic in topics.values()})
    there = (await target.metadata(names)).topics if names else {}
    for name, info in there.items():
        if info.error is not None and issubclass(info.error, kerrors.AuthorizationError):
            raise target.explain(info.error(name), f"looking at topic {name}")
    keys = [(name, p) for name, topic in topics.items() for p in sorted(topic.source.partitions)]
    targets = {
        (name, p): (topics[name].target, p)
        for name, p in keys
        if there[topics[name].target].error is None and p in there[topics[name].target].partitions
    }
    explained = await _offsets(target, dict.fromkeys(targets.values(), LATEST))
    writers = [other for other in config.links.values() if other.target == link.target]
    lines = {other.name: await _lines(target, other.name) for other in writers}
    reader = _Reader(source, target, link, topics, there, committed, _chunks(lines[link.name]))
    reader.others = _others(writers, lines, link, topics, there)
    reader.target_ends = await _offsets(target, dict.fromkeys(targets.values(), LATEST))
    reader.target_starts = await _offsets(target, dict.fromkeys(targets.values(), EARLIEST))
    reader.source_ends = await _offsets(source, dict.fromkeys(keys, LATEST))
    reader.source_starts = await _offsets(source, dict.fromkeys(keys, EARLIEST))
    reader.since = {} if since is None else await _offsets(source, dict.fromkeys(targets, since))
    reader.explained = explained
    reader.memory = await recall(target, link.name)
    reader.compacted = {
        "source": await _compacted(source, list(topics)),
        "target": await _compacted(target, [name for name in names if there[name].error is None]),
    }
    reader.written = {topic.target for topic in topics.values() if _takes_writes(config, link, topic.target)}
    if (promoted := PROMOTED in reader.memory) or SERVED in reader.memory:
        reader.served = await served(target, link, home, promoted)
    for key in keys:
        reader.look(key, targets.get(key), found)
    await _settle(target, found)
    if chosen is None:
        found.faults += (await gone(source, link, topics, committed)).values()
    known = newest(await incarnations(target), await incarnations(source))
    found.identities = Identities(_ids(known, source), _ids(known, target))
    found.schema_ids = Known(of_kind(reader.memory, SCHEMAS, Subject.read)).ids()
    return found


def _ids(known: Mapping[str, list[str]], cluster: Cluster) -> tuple[str, ...]:
    """All clusters that a site ever was; the present one is the last, whether or not somebody wrote it down."""
    now = cluster.cluster_id
    return (*(each for each in known.get(cluster.site.name, ()) if each != now), *([now] if now else []))


def _takes_writes(config: Config, link: Link, topic: str) -> bool:
    """Whether applications may write to a destination topic: somebody carries from there what they write."""
    if link.loop is not None:
        return True
    ways = (link.target, link.source)
    return any((o.source, o.target) == ways and o.topics.matches(topic) for o in config.links.values())


async def _offsets(cluster: Cluster, wanted: Mapping[Partition, int]) -> Offsets:
    """Offsets of partitions; one that cannot be asked is missing."""
    if not wanted:
        return {}
    answers = await list_offsets(cluster, wanted)
    for (topic, partition), answer in answers.items():
        if not isinstance(answer, int) and issubclass(answer, kerrors.AuthorizationError):
            raise cluster.explain(answer(f"{topic}[{partition}]"), f"reading offsets of {topic}")
    return {key: answer for key, answer in answers.items() if isinstance(answer, int)}


async def _compacted(cluster: Cluster, topics: list[str]) -> set[str]:
    configs = await topic_configs(cluster, topics) if topics else {}
    return {
        name
        for name, config in configs.items()
        if isinstance(config, TopicConfig) and "compact" in config.values.get("cleanup.policy", "")
    }


# -- the maps ------------------------------------------------------------------------------------------------


async def _lines(target: Cluster, link: str) -> Lines:
    """The newest line of each chunk of a link's map, in the order in which they were written."""
    topic = (state.map_topic(link), 0)
    newest_lines: Lines = {}
    answers = await list_offsets(target, {topic: LATEST}, committed_only=False)
    appended = answers[topic]
    if not isinstance(appended, int):
        if appended is kerrors.UnknownTopicOrPartitionError:
            return {}
        raise target.explain(appended(topic[0]), f"reading {topic[0]}")
    position: int | None = None
    deadline = time.monotonic() + OPEN_SECONDS
    while position is None or position < appended:
        # What is still open is being ended by its owner, or by the broker in a minute: without it the map is not whole.
        pairs, reached = await read_to_end(target, topic, position)
        if reached == position:
            if time.monotonic() > deadline:
                raise DataError(
                    f"site {target.site.name}: a transaction in {topic[0]} has been open for {OPEN_SECONDS:.0f} seconds, from offset "
                    f"{position} on; find and end it (kafka-transactions.sh), since without it the map is not whole"
                )
            await target.loop.sleep(0.05)
        position = reached
        for key, value in pairs:
            newest_lines.pop(key or b"", None)
            if key is not None and value is not None:
                newest_lines[key] = value
    return newest_lines


@dataclass(slots=True)
class _Chunk:
    key: ChunkKey
    raw: bytes
    value: bytes
    target_id: uuid.UUID


def _chunks(lines: Lines) -> dict[Partition, list[_Chunk]]:
    found: dict[Partition, list[_Chunk]] = {}
    for raw, value in lines.items():
        key = ChunkKey.decode(raw)
        found.setdefault((key.topic, key.partition), []).append(_Chunk(key, raw, value, uuid.UUID(bytes=value[1:17])))
    return found


def _others(
    writers: list[Link],
    lines: Mapping[str, Lines],
    link: Link,
    topics: Mapping[str, Topic],
    there: Mapping[str, TopicInfo],
) -> dict[Partition, Longs]:
    """Which destination offsets other links have written, and this link from topics that are gone."""
    ids = {topic.target: there[topic.target].id for topic in topics.values()}
    names = {its_id: name for name, its_id in ids.items() if its_id != NO_ID}
    spans: dict[Partition, list[Longs]] = {}
    for writer in writers:
        for (topic, partition), chunks in _chunks(lines[writer.name]).items():
            for chunk in chunks:
                name = names.get(chunk.target_id) or _name_without_ids(writer, topic, ids)
                ours = writer.name == link.name and topic in topics
                if name is None or (ours and topics[topic].source.id in (NO_ID, chunk.key.source_id)):
                    continue
                decoded: Chunk = decode_chunk(chunk.value)
                spans.setdefault((name, partition), []).append(spans_of(decoded.runs, 1))
    return {key: merged(np.concatenate(parts)) for key, parts in spans.items()}


def _name_without_ids(writer: Link, topic: str, ids: Mapping[str, uuid.UUID]) -> str | None:
    """The destination topic by its name, at sites whose topics have no ids."""
    if not writer.topics.matches(topic):
        return None
    name = writer.destination_topic(topic)
    return name if ids.get(name) == NO_ID else None


# -- one partition -------------------------------------------------------------------------------------------


class _Reader:
    """Puts together what was read of both sides."""

    others: dict[Partition, Longs]
    target_ends: Offsets
    target_starts: Offsets
    source_ends: Offsets
    source_starts: Offsets
    explained: Offsets
    since: Offsets
    memory: Memory
    compacted: dict[str, set[str]]
    written: set[str]
    served: Served | None = None

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        link: Link,
        topics: Mapping[str, Topic],
        there: Mapping[str, TopicInfo],
        committed: Mapping[Partition, Committed],
        chunks: Mapping[Partition, list[_Chunk]],
    ) -> None:
        self._link, self._topics, self._there = link, topics, there
        self._committed, self._chunks = committed, chunks
        self._source, self._target = source.site.name, target.site.name
        self._moved: set[Partition] = set()
        """What the link has copied under another name before."""
        for (target_topic, partition), value in committed.items():
            progress = Progress.read(value)
            known = topics.get(progress.source_topic) if progress is not None else None
            if progress is not None and known is not None and known.target != target_topic:
                self._moved.add((progress.source_topic, partition))

    def look(self, key: Partition, target: Partition | None, found: Survey) -> None:
        name, partition = key
        topic = self._topics[name]
        where = f"{name}[{partition}]"
        own = self._committed.get((topic.target, partition))
        progress = Progress.read(own) if own is not None else None
        if topic.problem:
            found.faults.append(DestinationRefused(f"{where}: {topic.problem}", name, partition))
            return
        if target is None:
            if self._chunks.get(key) or progress is not None:
                words = f"{where}: its copy {topic.target}[{partition}] is gone at site {self._target}"
                found.faults.append(DestinationMissing(words, name, partition))
            else:
                found.notes.append(f"{where}: not copied yet; site {self._target} has no {topic.target}[{partition}]")
                self._wait(key, found)
            return
        target_id = self._there[topic.target].id
        if progress is not None and NO_ID not in (target_id, progress.target_id) and progress.target_id != target_id:
            words = (
                f"{where}: {topic.target} was deleted and created again at site {self._target}; what was copied is gone"
            )
            found.faults.append(DestinationRecreated(words, name, partition))
            return
        if progress is not None and topic.source.id not in (NO_ID, progress.source_id) and progress.source_id != NO_ID:
            found.faults.append(source_recreated(self._link.name, name, partition, topic.target, progress.offset))
            return
        mine = [c for c in self._chunks.get(key, ()) if topic.source.id in (NO_ID, c.key.source_id)]
        fitting = [c for c in mine if target_id == NO_ID or c.target_id == target_id]
        if progress is None and key not in self._moved:
            # A broker forgets the progress of a topic that is deleted; the map does not.
            if mine and not fitting:
                found.faults.append(destination_recreated(self._link.name, name, partition, topic.target))
                return
            if self._chunks.get(key) and not mine:
                found.faults.append(source_recreated(self._link.name, name, partition, topic.target, 0))
                return
        mapped = build_maps((c.raw, c.value) for c in fitting).get(key) or PartitionMap(name, partition)
        watermark = progress.offset if progress is not None else mapped.next_offset
        missing = [t for t, k in self._tables(key, target) if k not in t]
        if missing:
            words = f"{where}: its offsets cannot be read now, at site {self._source} or {self._target}; is each partition led by a broker?"
            found.faults.append(PartitionFault(words, name, partition))
            return
        if watermark < 0:
            found.notes.append(f"{where}: it was never copied")
            self._wait(key, found)
            return
        _check_ascending(mapped, where, self._link.name)
        found.pairs.append(self._pair(key, target, mapped, mine, fitting, watermark, found))

    def _wait(self, key: Partition, found: Survey) -> None:
        """Nothing of it was copied: all of it waits."""
        if key in self.source_ends and key in self.source_starts:
            found.waiting += self.source_ends[key] - self.source_starts[key]
        else:
            words = f"{key[0]}[{key[1]}]: its offsets cannot be read now, at site {self._source}"
            found.faults.append(PartitionFault(words, *key))

    def _tables(self, key: Partition, target: Partition) -> list[tuple[Offsets, Partition]]:
        here = [(table, key) for table in (self.source_ends, self.source_starts)]
        there = [(table, target) for table in (self.target_ends, self.target_starts, self.explained)]
        return here + there

    def _pair(
        self,
        key: Partition,
        target: Partition,
        mapped: PartitionMap,
        mine: list[_Chunk],
        fitting: list[_Chunk],
        watermark: int,
        found: Survey,
    ) -> Pair:
        name, partition = key
        runs = mapped.runs if len(mapped.runs) else no_runs()
        source_end, explained = self.source_ends[key], self.explained[target]
        if source_end < watermark:
            found.notes.append(
                f"{name}[{partition}]: the source's log ends at {source_end}, before the link's position {watermark}: what "
                "lay between is gone at the source"
            )
        if self._link.delivery != "exactly-once":
            # Without transactions a copy is there before its line of the map is.
            explained = min(explained, int(runs[-1, 1] + runs[-1, 2])) if len(runs) else 0
        # Copies of what the source has deleted since are looked at, too.
        first, target_first = min([self.source_starts[key], *runs[:1, 0].tolist()]), self.target_starts[target]
        if self.since:
            since = self.since.get(key, -1)
            first = max(first, watermark if since < 0 else min(since, watermark))
            place = mapped.translate(first)
            target_first = max(target_first, place.offset if place.copied else explained)
        return Pair(
            name,
            partition,
            target[0],
            first,
            target_first,
            watermark,
            explained,
            self.source_starts[key],
            source_end,
            self.target_starts[target],
            self.target_ends[target],
            self._expected_from(key, mine, fitting, watermark),
            runs,
            self.others.get(target, no_spans()),
            self._ranges(SEEDED, key),
            self._ranges(STRANDED, key),
            name in self.compacted["source"],
            target[0] in self.compacted["target"],
            self._local(target),
            self.served.returned.get(key, no_spans()) if self.served is not None else no_spans(),
            self.served.brought.get(target, no_spans()) if self.served is not None else no_spans(),
        )

    def _local(self, target: Partition) -> Longs:
        """Where applications write at the destination."""
        if target[0] in self.written:
            return everywhere()
        return self.served.local(target) if self.served is not None else no_spans()

    def _ranges(self, kind: str, key: Partition) -> Longs:
        """Source ranges that did not go the usual way, as the link remembers them."""
        found = self.memory.get((kind, f"{key[0]}/{key[1]}"), ranges)
        return merged(np.array(found, np.int64)) if found else no_spans()

    def _expected_from(self, key: Partition, mine: list[_Chunk], fitting: list[_Chunk], watermark: int) -> int:
        """Where the link began with this partition, in the topic to which it copies now."""
        start = self._link.start
        from_the_first = start == "earliest" or (
            isinstance(start, StartOffsets) and key[1] not in start.offsets.get(key[0], {})
        )
        if from_the_first and len(mine) == len(fitting) and key not in self._moved:
            return 0
        firsts = [c.key.first for c in fitting if c.key.first != POSITION]
        return min(firsts or [decode_chunk(c.value).first for c in fitting], default=watermark)


def _check_ascending(mapped: PartitionMap, where: str, link: str) -> None:
    runs = mapped.runs
    ends = runs[:-1, :2] + runs[:-1, 2:3]
    if len(runs) > 1 and bool((runs[1:, :2] < ends).any()):
        at = int(np.flatnonzero((runs[1:, :2] < ends).any(axis=1))[0]) + 1
        raise DataError(
            f"link {link}: the map of {where} is broken at source offset {int(runs[at, 0])}: places at the destination do not "
            "ascend; somebody has changed the link's map topic"
        )


async def _settle(target: Cluster, found: Survey) -> None:
    """Wait for markers: progress may be visible before the records that it belongs to are, for some milliseconds."""
    deadline = time.monotonic() + OPEN_SECONDS
    while time.monotonic() < deadline:
        needed = {pair.target: _end_of_copies(pair) for pair in found.pairs}
        late = {pair.target for pair in found.pairs if needed[pair.target] > pair.target_end}
        if not late:
            return
        appended = await list_offsets(target, dict.fromkeys(late, LATEST), committed_only=False)
        ends = await _offsets(target, dict.fromkeys(late, LATEST))
        found.pairs = [replace(p, target_end=ends.get(p.target, p.target_end)) for p in found.pairs]
        written = {key for key in late if isinstance(end := appended[key], int) and end >= needed[key]}
        if not written:
            return  # what the log does not hold at all will not come: the comparison tells
        await target.loop.sleep(0.05)


def _end_of_copies(pair: Pair) -> int:
    runs = clipped(pair.runs, 0, pair.watermark)
    return int(runs[-1, 1] + runs[-1, 2]) if len(runs) else 0
