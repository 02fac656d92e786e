"""A drill at the real sites: a scratch topic and a scratch link, moved there and back as planned. It kills nothing.

Invariants:
- nothing but scratch things is written: a topic that no link of the file copies, a link and two sites with names of their own
  (``drill_config.scratch``), a group of its own. No hook is run, nobody is fenced, no ACL or schema is touched;
- whatever was made is deleted in the end, also when the drill fails or is interrupted; what could not be deleted is named;
- a real operation that is under way is never disturbed: then the drill does not begin.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kafka.errors as kerrors

from isthmus.config import Config
from isthmus.engine import state
from isthmus.engine.table import read_table, write_table
from isthmus.errors import DataError, IsthmusError
from isthmus.kafka.admin import NewTopic, create_topics, delete_topics, wait_for_topics
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.groups import delete_groups, list_groups
from isthmus.recovery.drill_acts import OPERATION, Acts
from isthmus.recovery.drill_config import PARTITIONS, Scratch, scratch
from isthmus.recovery.drill_process import PipedReplicator, until
from isthmus.recovery.drill_report import DrillReport, Readers
from isthmus.recovery.drill_traffic import contents
from isthmus.recovery.failback import failback
from isthmus.recovery.failover import failover
from isthmus.recovery.journal import unfinished_in
from isthmus.recovery.operation import Tell
from isthmus.recovery.stage import Stage
from isthmus.recovery.timeline import Timeline

HOME_SECONDS = 3.0
CATCH_UP_SECONDS = 300.0
LEAVE_SECONDS = 15.0


def live_drill(config: Config, tell: Tell, *, site: str | None, rate: float, seconds: float) -> DrillReport:
    """Rehearse, clean up, and report."""
    made = scratch(config, site, uuid.uuid4().hex[:6])
    real = made.real
    report = DrillReport(
        "switch",
        real.source,
        real.target,
        True,
        Timeline([real.source, real.target, made.link.name, OPERATION]),
        Readers(made.group),
        [made.link.name],
        {real.source: [made.topic], real.target: [made.copy]},
        rate,
        notes=[
            f"link {made.link.name} is link {real.name} with one scratch topic, {made.topic}; nothing else is touched, and nothing is killed",
            *made.notes,
        ],
    )
    with Stage(made.config) as stage:
        had_table = {name: _look(stage, name) for name in (made.source, made.target)}
    play = Live(made, report, rate, seconds, tell)
    try:
        with play, tempfile.TemporaryDirectory(prefix="isthmus-drill-") as directory:
            play.act(Path(directory))
    except (IsthmusError, kerrors.KafkaError) as error:
        report.problems.append(getattr(error, "message", "") or f"{type(error).__name__}: {error}")
    finally:
        with _undisturbed():
            play.say(f"deleting {made.topic} and all that belongs to link {made.link.name}")
            # Side by side: each site is waited for, for its own reasons.
            with ThreadPoolExecutor(len(had_table)) as pool:
                both = list(pool.map(lambda name: _clean_up(made, name, had_table[name]), had_table))
            for left in both:
                report.problems += left
                for words in left:
                    play.say(words)
    return report


def _look(stage: Stage, name: str) -> bool:
    """Whether a site remembers operations; refuses to begin while one is under way."""
    table = stage.at(name, "reading the journal", read_table, state.SITES_TOPIC)
    for entry in unfinished_in(table):
        raise DataError(
            f"{stage.config.sites[name].bootstrap[0]}: there is an unfinished {entry.told()}; a drill would disturb it. Finish it first, or "
            "give it up with --abandon"
        )
    return bool(stage.at(name, "listing topics", _has_table))


async def _has_table(cluster: Cluster) -> bool:
    found = (await cluster.metadata([state.SITES_TOPIC])).topics[state.SITES_TOPIC]
    return found.error is not kerrors.UnknownTopicOrPartitionError


class Live(Acts):
    """One rehearsal with scratch things."""

    def __init__(self, made: Scratch, report: DrillReport, rate: float, seconds: float, tell: Tell) -> None:
        super().__init__(report, rate, tell)
        self.made, self.config, self.seconds = made, made.config, seconds
        self.source, self.target = made.config.sites[made.source], made.config.sites[made.target]
        self.topics, self.copies = {made.topic: PARTITIONS}, {made.copy: PARTITIONS}

    def act(self, directory: Path) -> None:
        here, there = self.report.site, self.report.survivor
        self.say(f"a drill at the real sites: scratch topic {self.made.topic} at {here}; it kills nothing")
        for name in (here, there, self.made.link.name):
            self.stand(name, "preparing", "wait")
        with Stage(self.config) as stage:
            stage.at(self.made.source, f"creating {self.made.topic}", _create, self.made.topic)
        self.run = PipedReplicator(self.config, directory / "run.log")
        until(self.config, [self.made.link], "running", self.run)
        self.stand(self.made.link.name, "running", "good")
        self.stand(here, "in service", "good")
        self.stand(there, "standby", "wait")
        self.write(f"{here}-1", self.source, self.topics, here)
        self.read(self.source, self.topics, here).begin()
        time.sleep(self.seconds)
        self._there()
        self._back()
        self._judge()

    def _there(self) -> None:
        here, there = self.report.site, self.report.survivor
        began = time.time()

        def stop() -> None:
            nonlocal began
            began = time.time()
            self.quiet(f"{here}-1")
            self.rest()
            self.stand(here, "quiet", "wait")

        self.when["fence"] = stop
        done = self.operation(
            "planned failover",
            failover,
            self.config,
            self.made.source,
            self.made.target,
            "planned",
            self.telling,
            fence="none",
            seconds=CATCH_UP_SECONDS,
        )
        self.report.rto_seconds = round(self.ready - began, 3)
        self.timeline.mark(there, f"{there} in service", "good")
        self.stand(there, "in service", "good")
        self.stand(here, "standby", "wait")
        self.stand(self.made.link.name, "held", "wait")
        held = {name for names in contents(self.target, self.copies).values() for name in names}
        lost = self.declared(done, f"{here}-1", held, began, self.config.links)
        if lost and not self.made.link.rules:
            self.report.problems.append(f"a planned move lost {len(lost)} records, such as {min(lost)}")
        self.write(f"{there}-1", self.target, self.copies, there)
        self.read(self.target, self.copies, there).begin()
        self.say(f"work goes on at {there}")
        time.sleep(self.seconds)

    def _back(self) -> None:
        here, there = self.report.site, self.report.survivor
        began = time.time()

        def stop() -> None:
            nonlocal began
            began = time.time()
            self.quiet()
            self.rest()
            self.stand(there, "quiet", "wait")

        self.when["switch-fence"] = stop
        done = self.operation(
            "failback",
            failback,
            self.config,
            self.made.source,
            self.telling,
            away=self.made.target,
            fence="none",
            seconds=CATCH_UP_SECONDS,
        )
        self.report.stranded = done["stranded_records"]
        self.report.home_rto_seconds = round(self.ready - began, 3)
        self.timeline.mark(here, f"{here} in service", "good")
        self.stand(here, "in service", "good")
        self.stand(there, "standby", "wait")
        self.stand(self.made.link.name, "running", "good")
        self.write(f"{here}-2", self.source, self.topics, here)
        self.read(self.source, self.topics, here)
        time.sleep(min(HOME_SECONDS, self.seconds))
        self.quiet()

    def _judge(self) -> None:
        link = self.made.link
        assert self.run is not None
        until(self.config, [link], "caught up", self.run)
        self.judge_readers(self.source, self.topics)
        for name, site, topics in (
            (self.report.site, self.source, self.topics),
            (self.report.survivor, self.target, self.copies),
        ):
            self.judge_site(
                name,
                site,
                topics,
                set(self.written),
                repeats=link.delivery != "exactly-once",
                rules=bool(link.rules),
            )
        self.judge_comparison(self.config)


async def _create(cluster: Cluster, topic: str) -> None:
    factor = min(3, max(1, len((await cluster.metadata([])).brokers)))
    for refusal in (await create_topics(cluster, [NewTopic(topic, PARTITIONS, factor, {})])).values():
        if refusal is not None:
            raise refusal.error(refusal.words)
    await wait_for_topics(cluster, [topic])


# -- taking it all away ------------------------------------------------------------------------------------------


def _clean_up(made: Scratch, site: str, had_table: bool) -> list[str]:
    """Delete what the drill made at a site; what could not be."""
    real = made.real.source if site == made.source else made.real.target
    try:
        with Stage(made.config) as stage:
            found: list[str] = stage.at(site, "cleaning up", _delete, made, had_table)
        return [f"{real}: {words}" for words in found]
    except (IsthmusError, kerrors.KafkaError, OSError) as error:
        return [
            f"{real}: could not be cleaned up ({getattr(error, 'message', error)}); delete {made.topic}, {made.copy} and what begins with "
            f"{STATE_PREFIX}{made.link.name} there"
        ]


async def _delete(cluster: Cluster, made: Scratch, had_table: bool) -> list[str]:
    own = f"{STATE_PREFIX}{made.link.name}"
    names = (await cluster.metadata(None)).topics
    topics = [n for n in names if n in (made.topic, made.copy) or n.startswith(f"{own}.")]
    if not had_table and state.SITES_TOPIC in names:
        topics.append(state.SITES_TOPIC)
    elif state.SITES_TOPIC in names:
        table = await read_table(cluster, state.SITES_TOPIC)
        mine = [key for key in table if key.rpartition("/")[2] in (made.source, made.target)]
        await write_table(cluster, state.SITES_TOPIC, dict.fromkeys(mine))
    groups = [
        g for g in await list_groups(cluster) if g in (made.group, own) or g.startswith((f"{own}.", f"{made.group}."))
    ]
    await delete_topics(cluster, topics)
    deadline = time.monotonic() + LEAVE_SECONDS
    while True:
        refused = {name: error for name, error in (await delete_groups(cluster, groups)).items() if error is not None}
        # Who was interrupted may not have left the group; its session ends soon.
        if kerrors.NonEmptyGroupError not in refused.values() or time.monotonic() > deadline:
            break
        await cluster.loop.sleep(0.5)
    return [f"group {name} could not be deleted: {error.__name__}" for name, error in refused.items()]


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """What was made goes, however often somebody presses Ctrl-C meanwhile."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
