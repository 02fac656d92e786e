"""Planning a lease: which partitions there are, where each goes and from where on, and which slot gets which.

What is done, in this order:
1. the pen is taken (pen.py): an older planner writes nothing from here on;
2. the claim is written (the lease's number and our run), so that older tasks that look again leave;
3. the fence: each slot's transactional id is taken, which aborts what older tasks left open;
4. progress is written for partitions that have none yet. From here on every partition of the lease has progress, and
   only the task that holds it moves it.

A topic that cannot be had (not authorised, refused by the destination) is a fault of its partitions, never of the
link. Only what makes the whole link wrong is raised: another cluster than before, or another replicator.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link, StartOffsets, StartTimestamp
from isthmus.control.settings import TIMESTAMP_TYPE
from isthmus.control.topics import Topic, blueprints, create, discover
from isthmus.engine import state
from isthmus.engine.balance import deal
from isthmus.engine.held import by_source as progress_by_source
from isthmus.engine.held import held as held_partitions
from isthmus.engine.held import is_newest
from isthmus.engine.identity import recognise
from isthmus.engine.incarnations import gone, source_unreadable, without_progress
from isthmus.engine.job import Job
from isthmus.engine.lease import Assignment, Lease
from isthmus.engine.lines import forgotten_progress, lines, position_record, read_maps
from isthmus.engine.offset_map import PartitionMap
from isthmus.engine.pen import Pen, with_pen
from isthmus.engine.report import (
    NAMED_PARTITIONS,
    FaultReport,
    PlanReport,
    Reports,
    Seen,
    Sight,
    SourceReport,
    name_of,
)
from isthmus.engine.state import Claim, Control, Progress
from isthmus.engine.steer import steer
from isthmus.errors import (
    AuthorisationFailed,
    ClusterChanged,
    ConfigError,
    DestinationRefused,
    PartitionFault,
    SameCluster,
    TakenOver,
)
from isthmus.kafka.admin import (
    NewTopic,
    Refusal,
    TopicConfig,
    create_partitions,
    create_topics,
    topic_configs,
    wait_for_topics,
)
from isthmus.kafka.cluster import STATE_PREFIX, Cluster, TopicInfo, whose
from isthmus.kafka.features import unfit
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.offsets import (
    EARLIEST,
    LATEST,
    Committed,
    Partition,
    group_offsets,
    list_offsets,
)
from isthmus.kafka.produce import Fenced, Interrupted, Producer, small_batches
from isthmus.kafka.read import Pair, read_to_end
from isthmus.rules import Identities

__all__ = ["Job", "Planner", "Topic", "check_features", "check_identity", "discover", "ensure_state_topics"]

# Brokers forget a group's offset a week (by default) after it was committed: what nobody writes meanwhile is refreshed.
REFRESH_SECONDS = 6 * 3600
# A plan that another planner or a lost answer interrupted is made again for this long, after a pause that keeps two
# planners from meeting again.
PLAN_SECONDS, AGAIN_SECONDS = 60.0, 0.3
PASSING = (kerrors.RetriableError, kerrors.UnknownBrokerIdError)


class Planner:
    """Deals leases for one run of one link. Connections are kept between leases."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._loop = Loop()
        link = job.link
        self.source = Cluster(job.source, self._loop, f"isthmus-{link.name}-plan")
        self.target = Cluster(job.target, self._loop, f"isthmus-{link.name}-plan")
        self._group = state.group(link.name)
        self._map = (state.map_topic(link.name), 0)
        self._status = (state.status_topic(link.name), 0)
        self._connected = False
        self._identities = Identities()
        self._steered = 0.0
        self._never_ran = False
        self._pen: Pen | None = None
        self._claimed = False
        self._fenced = False
        self._reports = Reports()
        self._reports_end: int | None = None
        self._refreshed = 0.0
        self._faults: list[PartitionFault] = []
        self._made = PlanReport(job.run)
        self._made_told = 0
        self.doing: tuple[str, float] = ("", 0.0)
        """What is being waited for right now, and since when (by the monotonic clock); empty while nothing is."""

    def close(self) -> None:
        self.source.close()
        self.target.close()
        self._loop.close()

    # -- called by Spark's reader and by tests ------------------------------------------------------------

    def control(self) -> Control:
        """What operators ask for right now."""
        try:
            return self._at_work(self._read_control)  # type: ignore[no-any-return]
        except kerrors.KafkaError as error:
            raise self.target.explain(error, "reading what operators ask for") from error

    def plan(self) -> list[Lease]:
        """The next lease, one part a slot."""
        deadline = time.monotonic() + PLAN_SECONDS
        while True:
            try:
                return self._at_work(self._plan)  # type: ignore[no-any-return]
            except (Fenced, Interrupted, kerrors.KafkaError, OSError) as trouble:
                # Another planner came in between, or an answer was lost: only looking again tells what is written.
                lasting = isinstance(trouble, kerrors.KafkaError) and not isinstance(trouble, PASSING)
                if lasting or time.monotonic() > deadline:
                    error = trouble.cause if isinstance(trouble, Interrupted) else trouble
                    if not isinstance(error, kerrors.KafkaError):
                        error = kerrors.KafkaTimeoutError(str(trouble))
                    raise whose(error, self.source, self.target).explain(error, "dealing out a lease") from trouble
                time.sleep(random.uniform(0, AGAIN_SECONDS))

    def _at_work(self, work: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return self._loop.run(work)
        finally:
            self.doing = ("", 0.0)

    def _begins(self, words: str) -> None:
        """For whoever waits: a step that takes long is told (supervise.py)."""
        self.doing = (words, time.monotonic())

    async def _read_control(self) -> Control:
        await self._connect()
        self._begins("reading what operators ask for")
        committed = await group_offsets(self.target, self._group, [self._map, self._status], stable=False)
        if self._status in committed and not _is_due(self._steered):
            control = Control.read(committed[self._status])
        else:
            control = await self._write_control()
        if control.resting and (_is_due(self._refreshed) or (self._map not in committed and not self._never_ran)):
            await self._refresh()
        return control

    async def _write_control(self) -> Control:
        """From here on the line is there. Should it be absent again, then because the broker has forgotten it."""
        self._begins("writing what is asked of the link")
        control = await steer(self.target, self.job.link)
        self._steered = time.monotonic()
        return control

    async def _refresh(self) -> None:
        """Nobody plans for a link that rests: write claim and progress anew, also what brokers have forgotten of them."""
        link = self.job.link

        async def write(pen: Pen, claim: Claim | None, committed: dict[Partition, Committed]) -> bool:
            if claim is None:
                return False
            progress = {key: read for key, value in committed.items() if (read := Progress.read(value)) is not None}
            progress |= await forgotten_progress(self.target, link, claim, committed)
            offsets = {key: each.commit() for key, each in progress.items()}
            await pen.write({**offsets, self._map: claim.commit()}, _positions(progress))
            return True

        self._never_ran = not await with_pen(self.target, link, write)
        self._refreshed = time.monotonic()

    async def _connect(self) -> None:
        if not self._connected:
            self._begins("connecting to the sites")
            await self.source.connect()
            await self.target.connect()
            check_identity(self.job, self.source, self.target)
            check_features(self.job, self.source, self.target)
            self._identities = await recognise(self.source, self.target)
            await ensure_state_topics(self.target, self.job.link)
            self._connected = True

    async def _plan(self) -> list[Lease]:
        await self._connect()
        if _is_due(self._steered):
            await self._write_control()
        self._faults = []
        self._pen = self._pen or Pen(self.target, self.job.link)
        self._begins("taking the planner's transactional id")
        await self._pen.take()
        await self.target.metadata([])  # raises if it is another cluster by now; of the source, discovery tells
        self._begins("writing the claim")
        claim = await self._claim(self._pen)
        self._begins("fencing what older tasks may still write")
        await self._pen.fence(claim.slots)
        self._fenced = True
        asked = time.time()
        self._begins("looking for topics at the source")
        found = await discover(self.source, self.job.link)
        topics = self._possible(found)
        await self._look_for_unreadable(topics)
        self._begins("waiting until nothing of older tasks is undecided")
        committed = await self._pen.settle()
        maps = await self._maps_if_needed(topics, committed)
        held = held_partitions(
            ((name, p, t.target) for name, t in topics.items() for p in t.source.partitions), committed, maps
        )
        self._begins("creating topics and reading log ends")
        targets = await self._ensure_targets(topics, held)
        assignments = await self._assignments(topics, targets, held)
        assignments = await self._ensure_progress(self._pen, claim, assignments, committed, maps, set(targets))
        await self._read_reports()
        await self._tell_faults(found, committed)
        await self._tell_ends(claim, found, assignments, asked)
        return await self._deal(claim, assignments, topics)

    # -- the claim ----------------------------------------------------------------------------------------

    async def _claim(self, pen: Pen) -> Claim:
        keys = [self._map, self._status]
        job = self.job
        old, _ = await lines(
            self.target, job.link.name, await group_offsets(self.target, self._group, keys, stable=True)
        )
        if old is not None:
            if self._claimed and old.run != job.run:
                raise _taken_over(job.link.name, old)
            for site, was, now in (
                (job.source.name, old.source_cluster, self.source.cluster_id),
                (job.target.name, old.target_cluster, self.target.cluster_id),
            ):
                if was and now and was != now:
                    raise ClusterChanged(
                        f"link {job.link.name}: site {site} was cluster {was} when this link last ran and is {now} now: offsets of "
                        f"the old cluster mean nothing there. If {site} was lost, rebuild it with `isthmus reseed {site} --from "
                        "SITE`; if it was replaced by hand, replicate under a new link name",
                        site,
                        was,
                        now,
                    )
        number = old.number + 1 if old else 1
        # Slots of older leases count until they are fenced: a planner that dies before that must leave word of them.
        slots = job.slots if self._fenced or old is None else max(job.slots, old.slots)
        started = old is not None and old.started
        clusters = (self.source.cluster_id, self.target.cluster_id)
        claim = Claim(number, job.run, job.host, *clusters, slots, started, job.temporary)
        await pen.write({self._map: claim.commit()})
        self._claimed = True
        return claim

    # -- topics -------------------------------------------------------------------------------------------

    def _possible(self, found: dict[str, Topic]) -> dict[str, Topic]:
        """Topics that may be called what the link calls them; of the others, each partition is a fault."""
        for name, topic in found.items():
            if topic.problem:
                self._faults += [DestinationRefused(topic.problem, name, p) for p in topic.source.partitions]
        return {name: topic for name, topic in found.items() if not topic.problem}

    async def _look_for_unreadable(self, topics: dict[str, Topic]) -> None:
        """A topic that the link names but may not describe is not in the list of all topics: ask for it by name."""
        link = self.job.link
        named = [t for t in link.topics.include if not t.startswith("/") and t not in topics and link.topics.matches(t)]
        if not named:
            return
        metadata = await self.source.metadata(named)
        for name, info in metadata.topics.items():
            if info.error is not None and issubclass(info.error, kerrors.AuthorizationError):
                self._faults.append(source_unreadable(self.job.source.name, name, 0))

    async def _maps_if_needed(
        self, topics: dict[str, Topic], committed: dict[Partition, Committed]
    ) -> dict[Partition, PartitionMap]:
        """The offset map, read only when some partition has no progress: it knows whether it was ever copied."""
        if not without_progress(topics, committed):
            return {}
        return await read_maps(self.target, self.job.link.name)

    async def _ensure_targets(self, topics: dict[str, Topic], held: dict[Partition, uuid.UUID]) -> dict[str, TopicInfo]:
        """Create what is missing and grow what is too small; a topic that once held copies is not created again."""
        link = self.job.link
        metadata = await self.target.metadata(sorted(t.target for t in topics.values()))
        lost = {topic for topic, _ in held}
        absent = [
            t
            for name, t in topics.items()
            if (info := metadata.topics.get(t.target)) is None
            or (info.error is kerrors.UnknownTopicOrPartitionError and name not in lost)
        ]
        created: dict[str, Refusal | None] = {}
        began = time.monotonic()
        if absent:
            designs = await blueprints(self.source, self.target, link, absent, len(metadata.brokers))
            created = await create(self.target, link, list(designs.values()))
        small = {
            t.target: len(t.source.partitions)
            for t in topics.values()
            if (info := metadata.topics.get(t.target)) is not None
            and info.error is None
            and len(info.partitions) < len(t.source.partitions)
        }
        grown = await create_partitions(self.target, small) if small else {}
        refused = {name: why for name, why in {**created, **grown}.items() if why is not None}
        if created or grown:
            self._made.created += sum(why is None for why in created.values())
            self._made.grown += sum(why is None for why in grown.values())
            self._made.refused += len(refused)
            self._made.times += 1
            self._made.seconds += time.monotonic() - began
        for name, topic in topics.items():
            info = metadata.topics.get(topic.target)
            why = refused.get(topic.target)
            words = str(why) if why else ""
            if why is not None and issubclass(why.error, kerrors.AuthorizationError):
                what = (
                    "create it; grant ALLOW CREATE" if topic.target in created else "add partitions; grant ALLOW ALTER"
                )
                words = f"not authorised to {what} on it"
            if info is not None and info.error is not None and issubclass(info.error, kerrors.AuthorizationError):
                words = "not authorised; grant ALLOW DESCRIBE and WRITE on it"
            # What could not be added does not hold up what is there.
            there = info.partitions if info is not None and info.error is None else {}
            if words:
                self._faults += [
                    DestinationRefused(f"destination topic {topic.target}: {words}", name, p)
                    for p in topic.source.partitions
                    if p not in there
                ]
        fresh = [n for n, why in {**created, **grown}.items() if why is None]
        if fresh:
            await wait_for_topics(self.target, fresh)
            metadata = await self.target.metadata(sorted(t.target for t in topics.values()))
        return {name: info for name, info in metadata.topics.items() if info.error is None}

    async def _assignments(
        self, topics: dict[str, Topic], targets: dict[str, TopicInfo], held: dict[Partition, uuid.UUID]
    ) -> list[Assignment]:
        configs = await topic_configs(self.target, sorted(targets))
        faulted = {(f.topic, f.partition) for f in self._faults}
        result = []
        for name, topic in topics.items():
            info = targets.get(topic.target)
            config = configs.get(topic.target)
            limit = config.max_message_bytes if isinstance(config, TopicConfig) else 1048588
            if isinstance(config, TopicConfig) and config.values.get(TIMESTAMP_TYPE) == "LogAppendTime":
                words = (
                    f"destination topic {topic.target} would replace the records' timestamps; set its {TIMESTAMP_TYPE} to "
                    "CreateTime"
                )
                self._faults += [DestinationRefused(words, name, p) for p in topic.source.partitions]
                continue
            for partition in topic.source.partitions:
                key = (name, partition)
                if info is None:
                    if key in faulted or key not in held:
                        continue
                    target_id = held[key]  # deleted at the target: the task will say so
                elif partition in info.partitions:
                    target_id = info.id
                else:
                    continue
                result.append(Assignment(name, partition, topic.source.id, topic.target, target_id, limit))
        return result

    # -- progress -----------------------------------------------------------------------------------------

    async def _ensure_progress(
        self,
        pen: Pen,
        claim: Claim,
        assignments: list[Assignment],
        committed: dict[Partition, Committed],
        maps: dict[Partition, PartitionMap],
        existing: set[str],
    ) -> list[Assignment]:
        """Give each partition progress: what it has, what it had under another name, what the map says, or a start. Those of which the
        source does not tell where they begin (nobody leads them, say) are left to a later lease; the others are returned."""
        by_source = progress_by_source(committed)
        write: dict[Partition, Committed] = {}
        unknown: list[Assignment] = []
        refresh = _is_due(self._refreshed)
        for a in assignments:
            own = committed.get(a.target)
            if own is not None and Progress.read(own) is not None:
                if refresh:
                    write[a.target] = own
                continue
            elsewhere, mapped = by_source.get(a.source), maps.get(a.source)
            if elsewhere is not None and elsewhere.source_id == a.source_id and is_newest(elsewhere, mapped):
                # The link's rename changed: go on where the old name stopped, in the new topic.
                moved = Progress(elsewhere.offset, a.topic, self.source.cluster_id, a.source_id, a.target_id)
                write[a.target] = moved.commit()
            elif mapped is not None and mapped.next_offset >= 0:
                # The broker expired or lost the progress; the ids say whether both topics are still the same. Where nothing was copied, nothing is gone.
                there = mapped.target_id if len(mapped.runs) else a.target_id
                kept = Progress(mapped.next_offset, a.topic, self.source.cluster_id, mapped.source_id, there)
                write[a.target] = kept.commit()
            else:
                unknown.append(a)
        starts = await self._starts(unknown, first=not claim.started)
        for a in unknown:
            start = starts.get(a.source)
            if isinstance(start, int):
                write[a.target] = Progress(start, a.topic, self.source.cluster_id, a.source_id, a.target_id).commit()
        # A topic that is gone cannot hold progress; its task reports it by its absence.
        write = {key: value for key, value in write.items() if key[0] in existing}
        # Whatever is written here may be forgotten before a record is copied: then only the map knows it.
        born = {key: read for key, value in write.items() if (read := Progress.read(value)) is not None}
        if not claim.started:
            write[self._map] = replace(claim, started=True).commit()
        await pen.write(write, _positions(born))
        if refresh:
            self._refreshed = time.monotonic()
        return [a for a in assignments if isinstance(starts.get(a.source, 0), int)]

    async def _starts(self, unknown: list[Assignment], first: bool) -> dict[Partition, int | type[Exception]]:
        """Where partitions begin that were never copied. ``start`` is for topics that exist when the link is
        born; a topic that appears later is copied from its first record, so that nothing of it is missed."""
        if not unknown:
            return {}
        start = self.job.link.start if first else "earliest"
        wanted: dict[Partition, int] = {}
        given: dict[Partition, int | type[Exception]] = {}
        for a in unknown:
            if isinstance(start, StartOffsets):
                offset = start.offsets.get(a.topic, {}).get(a.partition)
                if offset is not None:
                    given[a.source] = offset
                    continue
                wanted[a.source] = EARLIEST
            elif isinstance(start, StartTimestamp):
                wanted[a.source] = int(start.timestamp.timestamp() * 1000)
            else:
                wanted[a.source] = LATEST if start == "latest" else EARLIEST
        found = await list_offsets(self.source, wanted)
        after_all = [p for p, offset in found.items() if offset == -1]
        if after_all:
            found.update(await list_offsets(self.source, dict.fromkeys(after_all, LATEST)))
        return {**found, **given}

    # -- dealing ------------------------------------------------------------------------------------------

    async def _read_reports(self) -> None:
        try:
            pairs, self._reports_end = await read_to_end(self.target, self._status, self._reports_end)
        except kerrors.OffsetOutOfRangeError:
            pairs, self._reports_end = await read_to_end(self.target, self._status, None)
        self._reports.take(pairs)

    async def _tell_faults(self, topics: dict[str, Topic], committed: dict[Partition, Committed]) -> None:
        """Report what kept topics out of the lease, and topics that were copied once and are gone."""
        told = {(f.topic, f.partition) for f in self._faults}
        lost = await gone(self.source, self.job.link, topics, committed)
        self._faults += [fault for key, fault in lost.items() if key not in told]
        records: list[Pair] = [
            FaultReport.of(f, self.job.run).record()
            for f in self._faults
            if (old := self._reports.faults.get((f.topic, f.partition))) is None
            or (old.error, old.run) != (type(f).__name__, self.job.run)
        ]
        if self._made.times > self._made_told:
            self._made_told = self._made.times
            records.append(self._made.record())
        if records:
            await self._append(self._status, [(k or b"", v) for k, v in records])

    async def _tell_ends(
        self, claim: Claim, topics: dict[str, Topic], assignments: list[Assignment], discovered: float
    ) -> None:
        """Report how far the source reaches now: what a disaster has cost is told from this until each task has told more."""
        keys = [(name, p) for name, topic in topics.items() for p in topic.source.partitions]
        asked = time.time()
        ends = await list_offsets(self.source, dict.fromkeys(keys, LATEST), committed_only=False, timeout=0)
        progress = progress_by_source(await group_offsets(self.target, self._group, stable=False))
        seen = {}
        for key in keys:
            end, known = ends[key], progress.get(key)
            position = known.offset if known is not None else -1
            anew = known is not None and known.source_id != topics[key[0]].source.id
            seen[key] = Seen(position, end, asked, anew) if isinstance(end, int) else Seen(position, -1, 0.0, anew)
        dealt = {a.source for a in assignments}
        idle = [name_of(key) for key in keys if key not in dealt]
        named, more = idle[:NAMED_PARTITIONS], len(idle[NAMED_PARTITIONS:])
        sight = Sight.of(seen) if seen else Sight(asked)
        report = SourceReport(self.job.run, claim.number, discovered, sight, named, more)
        await self._append(self._status, [report.record("deal")])

    async def _append(self, partition: Partition, records: list[tuple[bytes, bytes | None]]) -> None:
        leaders = Leaders(self.target, [partition[0]])
        await leaders.refresh()
        producer = Producer(self.target, leaders, Signal(self._loop))
        for batch in small_batches(records):
            producer.produce({partition: batch})
        await producer.drain()

    async def _deal(self, claim: Claim, assignments: list[Assignment], topics: dict[str, Topic]) -> list[Lease]:
        job = self.job
        by_source = {a.source: a for a in assignments}
        known = set(self._reports.faults)
        leaders = {
            (name, p): info.leader for name, topic in topics.items() for p, info in topic.source.partitions.items()
        }
        hands = deal(list(by_source), self._reports.traffic(), leaders, job.slots)
        shares = sum(bool(hand) for hand in hands)
        return [
            Lease(
                job.link,
                job.source,
                job.target,
                self.source.cluster_id,
                self.target.cluster_id,
                job.run,
                claim.number,
                slot,
                job.slots,
                job.link.lease,
                tuple(replace(by_source[key], faulted=key in known) for key in sorted(hand)),
                self._identities,
                shares,
            )
            for slot, hand in enumerate(hands)
        ]


def _is_due(last: float) -> bool:
    return not last or time.monotonic() - last > REFRESH_SECONDS


def _positions(progress: Mapping[Partition, Progress]) -> list[tuple[bytes, bytes | None]]:
    return [position_record(each, partition) for (_, partition), each in progress.items()]


def _taken_over(link: str, by: Claim) -> TakenOver:
    if by.temporary:
        words = f"a recovery operation (on {by.host}) runs this link until it has caught up"
    else:
        words = f"another replicator (on {by.host}) has taken this link over; this one stops"
    return TakenOver(f"link {link}: {words}", by.temporary)


def check_identity(job: Job, source: Cluster, target: Cluster) -> None:
    """The sites are the clusters that the configuration pins, and not one cluster."""
    for site, cluster in ((job.source, source), (job.target, target)):
        if site.cluster_id and cluster.cluster_id != site.cluster_id:
            raise ClusterChanged(
                f"site {site.name}: expected cluster {site.cluster_id} (sites.{site.name}.cluster_id) but "
                f"{', '.join(site.bootstrap)} is cluster {cluster.cluster_id}",
                site.name,
                site.cluster_id,
                cluster.cluster_id,
            )
    if source.cluster_id and source.cluster_id == target.cluster_id:
        raise SameCluster(
            f"link {job.link.name}: sites {job.source.name} and {job.target.name} are one cluster ({source.cluster_id}); "
            "a link to itself would copy its own copies for ever"
        )


def check_features(job: Job, source: Cluster, target: Cluster) -> None:
    """The sites speak what the link needs of them; a run without that would try for ever."""
    found = unfit(source, target, job.link.delivery == "exactly-once")
    if found is not None:
        key, words, hint = found
        raise ConfigError(f"link {job.link.name}: {words}; {hint} (links.{job.link.name}.{key})")


async def ensure_state_topics(target: Cluster, link: Link) -> None:
    """The link's own topics at its destination."""
    names = [state.map_topic(link.name), state.status_topic(link.name), state.control_topic(link.name)]
    metadata = await target.metadata(names)
    missing = [n for n in names if metadata.topics[n].error is kerrors.UnknownTopicOrPartitionError]
    if any(info.error is kerrors.TopicAuthorizationFailedError for info in metadata.topics.values()):
        raise _not_authorised_for_state(target, "CREATE, DESCRIBE, READ and WRITE")
    if missing:
        factor = min(3, max(1, len(metadata.brokers)))
        outcome = await create_topics(target, [NewTopic(n, 1, factor, state.STATE_TOPIC_CONFIG) for n in missing])
        for why in outcome.values():
            if why is not None and issubclass(why.error, kerrors.AuthorizationError):
                raise _not_authorised_for_state(target, "CREATE")
            if why is not None:
                raise target.explain(why.error(why.words), "creating the link's own topics")
    await wait_for_topics(target, names)


def _not_authorised_for_state(target: Cluster, operations: str) -> AuthorisationFailed:
    needed = f"ALLOW {operations} on the topics that begin with {STATE_PREFIX!r}"
    site = target.site.name
    return AuthorisationFailed(f"site {site}: not authorised for the link's own topics; grant {needed}", site, needed)
