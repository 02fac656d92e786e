"""The driver's side of a run: starts the leasing of a link, watches, deals anew when something changed, stops cleanly.

States of a link's run:

    starting ──> running ──> stopping ──> ended
       ^            │ a task failed for good, or a slot fell silent
       ├── backoff ─┘        (an error that retrying will not cure is the end of the link's run)
       └── set aside         (beside other links: a site that is away, or another cluster than it was; always: a recovery
                              operation that runs the link for a while. It is tried again)

Another replicator that has taken the link over is the end of the link's run: who tries again takes it back, and the two would
take it from each other for as long as both live. The run's other links go on.

Stopping: the control line names our run, tasks commit and return, and only then leasing is stopped; so Ctrl-C ends
at a transaction boundary. A task that cannot be reached any more is cut off after a while: exactly-once makes that
safe, it only costs the open transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus import errors
from isthmus.config import Link
from isthmus.control.keep import Keeper
from isthmus.engine import state
from isthmus.engine.balance import deal, skew
from isthmus.engine.identity import recognise
from isthmus.engine.job import Job
from isthmus.engine.plan import Planner, check_features, check_identity, ensure_state_topics
from isthmus.engine.report import Seen, Sight, SourceReport
from isthmus.engine.session import Spark
from isthmus.engine.snapshot import LinkState, Observer
from isthmus.engine.steer import steer
from isthmus.engine.table import write_records
from isthmus.engine.tasks import Leasing, error_from
from isthmus.errors import ClusterChanged, ConnectionFailed, DataError, IsthmusError, PartitionFault, TakenOver
from isthmus.kafka.cluster import whose
from isthmus.kafka.offsets import Partition

# How often the sites are looked at; seldom enough that looking takes no more than one in so many parts of a core.
LOOK_SECONDS, LONGEST_LOOK_SECONDS, LOOK_REST = 2.0, 15.0, 40
# A new topic or partition is seen within this long; with the tasks' second and the planning it is copied well
# within half a minute.
DISCOVER_SECONDS = 8.0
# A deal is judged after this long, and only when there is enough traffic to matter.
LOPSIDED_SECONDS = 60.0
LOPSIDED_BYTES = 1 << 20
# A step of planning that takes longer than this is told: nothing new is dealt meanwhile.
PLANNING_SECONDS = 20.0
# A slot silent for this long is cut off: its worker is dead, stopped, or cut from the destination.
SILENT_SECONDS = 60.0
STOP_SECONDS = 20.0
FIRST_BACKOFF, LAST_BACKOFF = 0.5, 15.0
# In --until-caught-up, a site that has not answered for this long ends the run.
UNREACHABLE_SECONDS = 60.0
# A link whose site is away is tried again this often, and not for long: the driver has other links to look after.
AWAY_SECONDS, BRIEF_SECONDS = 4.0, 2.0
# A recovery operation that has not been seen at work for this long has given the link back, or is dead.
GIVEN_BACK_SECONDS = 10.0

_FATAL = (
    "TakenOver",
    "ClusterChanged",
    "SameCluster",
    "ConfigError",
    "AuthenticationFailed",
    "AuthorisationFailed",
    "UsageError",
)


@dataclass(slots=True)
class Event:
    """Something worth a line for the operator."""

    link: str
    level: str
    text: str


@dataclass(slots=True)
class LinkRun:
    """One link's run, driven by ``tick`` from the driver's loop."""

    spark: Spark | None
    job: Job
    say: Callable[[Event], None]
    others: tuple[Link, ...] = ()
    """The links of the other direction, for positions of groups."""
    observer: Observer = field(init=False)
    leasing: Leasing | None = None
    last: LinkState | None = None
    goal: dict[Partition, int | None] | None = None
    """Where each partition ended when this run first looked; None where that was not known yet."""
    failed: IsthmusError | None = None
    left: bool = False
    """Another replicator has it; ``failed`` says who."""
    away: IsthmusError | None = None
    """Why it was set aside; it is tried again."""
    alone: bool = False
    """Whether it is the only link of its run."""
    _backoff: float = FIRST_BACKOFF
    _restart_at: float = 0.0
    _next_look: float = 0.0
    _dealt: float = 0.0
    _told: set[tuple[str, int, str]] = field(default_factory=set)
    _troubled: tuple[str, ...] = ()
    _slow: str = ""
    _unreachable_since: float = 0.0
    _seen_at_work: float = 0.0
    _started: float = 0.0
    _keeper: Keeper | None = None

    def __post_init__(self) -> None:
        self.observer = Observer(self.job.link, self.job.source, self.job.target, self.job.run)

    # -- starting -----------------------------------------------------------------------------------------

    def reach(self, seconds: float = 30.0) -> None:
        """Reach both sites and check that they are two; raises what the user must mend."""
        self.observer.connect(seconds)
        check_identity(self.job, self.observer.source, self.observer.target)
        check_features(self.job, self.observer.source, self.observer.target)

    def prepare(self) -> None:
        """Check that the sites are those that were linked before, and make what the link keeps at the destination."""
        try:
            self.observer.target.call(recognise, self.observer.source, self.observer.target)
            self.observer.target.call(ensure_state_topics, self.observer.target, self.job.link)
        except kerrors.KafkaError as error:
            site = whose(error, self.observer.source, self.observer.target)
            raise site.explain(error, "creating the link's own topics") from None

    def set_aside(self, error: IsthmusError) -> bool:
        """Let other links go on without this one, and try it again later; False if trying again is no use."""
        borrowed = isinstance(error, TakenOver) and error.temporary
        if not borrowed and (self.alone or not isinstance(error, (ConnectionFailed, ClusterChanged))):
            return False
        if self.away is None or self.away.message != error.message:
            words = "this run goes on with it then" if borrowed else "the other links go on, this one is tried again"
            self.say(Event(self.job.link.name, "warning" if borrowed else "error", f"{error.message}; {words}"))
        self.failed, self.away = None, error
        self._restart_at = time.monotonic() + AWAY_SECONDS
        self._seen_at_work = time.monotonic()
        self._show_trouble(error)
        return True

    def leave(self, error: TakenOver) -> None:
        """Another replicator has the link: nothing is done for it here any more, and it is not taken back."""
        self.say(Event(self.job.link.name, "error", f"{error.message}; the other links go on"))
        self.left = True
        self._show_trouble(error)
        self._stop_keeper()

    def _show_trouble(self, error: IsthmusError) -> None:
        self.last = LinkState(self.job.link.name, self.job.link.source, self.job.link.target, "unknown")
        self.last.trouble.append(error.message)

    def _come_back(self) -> None:
        """A link that was set aside: its sites are met anew, because they may be other clusters now."""
        self.observer.close()
        self.observer = Observer(self.job.link, self.job.source, self.job.target, self.job.run)
        try:
            self.reach(BRIEF_SECONDS)
            self.prepare()
            if isinstance(self.away, TakenOver) and self._is_at_work():
                self._restart_at = time.monotonic() + AWAY_SECONDS
                return
        except IsthmusError as error:
            if isinstance(self.away, TakenOver) and isinstance(error, ConnectionFailed):
                self._restart_at = time.monotonic() + AWAY_SECONDS  # whether it was given back cannot be seen
            elif not self.set_aside(error):
                self.failed = error
            return
        self.away, self.goal, self._unreachable_since = None, None, 0.0
        self._told.clear()
        self.say(Event(self.job.link.name, "info", "its sites can be used again; going on"))

    def _is_at_work(self) -> bool:
        """Whether the operation that has the link still runs it: also while it has just begun, or is between two leases."""
        now = time.monotonic()
        if self.observer.look().state == "running":
            self._seen_at_work = now
        return now - self._seen_at_work < GIVEN_BACK_SECONDS

    def start(self) -> None:
        assert self.spark is not None
        self.leasing = Leasing(self.spark, self.job, Planner)
        self.leasing.start()
        self._started = time.monotonic()
        if self._keeper is None:
            self._keeper = Keeper(self.job.link, self.job.source, self.job.target, self.others)
            self._keeper.start()

    # -- watching -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look after the leasing and, every so often, at the sites."""
        if self.left:
            return
        now = time.monotonic()
        if self.leasing is not None and not self.leasing.is_alive():
            self._leasing_ended(self.leasing)
        if self.away is not None:
            if now >= self._restart_at:
                self._come_back()
            return
        if self.leasing is None and self.failed is None and now >= self._restart_at:
            self.start()
        self._tell_news()
        if now >= self._next_look:
            began = time.thread_time()
            self._look()
            # However many partitions there are, looking takes a small part of a core.
            used = time.thread_time() - began
            self._next_look = time.monotonic() + min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, LOOK_REST * used))

    def _tell_news(self) -> None:
        for news in self._keeper.news() if self._keeper is not None else ():
            self.say(Event(self.job.link.name, news.level, news.text))

    def _leasing_ended(self, ended: Leasing) -> None:
        self.leasing = None
        assert self.spark is not None
        self.spark.check_running()
        text = str(ended.error)
        error = ended.error if isinstance(ended.error, IsthmusError) else error_from(text)
        if error is not None and type(error).__name__ in _FATAL:
            self.failed = error
            return
        words = error.message if error is not None else _first_words(text)
        if time.monotonic() - self._started > 60:
            self._backoff = FIRST_BACKOFF
        self.say(Event(self.job.link.name, "warning", f"{words}; starting again in {self._backoff:.1f} s"))
        self._restart_at = time.monotonic() + self._backoff
        self._backoff = min(LAST_BACKOFF, self._backoff * 2)

    def _look(self) -> None:
        try:
            now = self.observer.look()
        except IsthmusError as error:
            now = LinkState(self.job.link.name, self.job.link.source, self.job.link.target, "unknown")
            now.trouble.append(error.message)
        if self.leasing is not None and now.state in ("stopped", "never ran"):
            now.state = "starting"
        self.last = now
        trouble = tuple(now.trouble)
        if trouble and trouble != self._troubled:
            for words in trouble:
                self.say(Event(self.job.link.name, "warning", words))
        self._troubled = trouble
        complete = bool(now.topics) or not trouble
        known = complete and now.judged and not now.unknown and now.state != "unknown"
        self._unreachable_since = 0.0 if known else (self._unreachable_since or time.monotonic())
        said = set()  # what is wrong with a whole topic is one line, however many partitions it has
        for partition in now.faults:
            key = (partition.topic, partition.partition, partition.fault)
            if key not in self._told:
                self._told.add(key)
                words = f"{partition.fault}: {partition.message}"
                if words not in said:
                    said.add(words)
                    self.say(Event(self.job.link.name, "error", words))
        self._tell_look(now)
        if complete:
            self._deal_if_useful(now)
            if self.goal is None:
                if not now.partitions:
                    words = "no topic at the source matches, or we may not describe any; looking again"
                    self.say(Event(self.job.link.name, "warning", words))
                self.goal = {(p.topic, p.partition): p.end for p in now.partitions}
            for p in now.partitions:
                if self.goal.get((p.topic, p.partition), 0) is None:
                    self.goal[p.topic, p.partition] = p.end
        self._cut_off_silent(now)
        self._tell_slow_planning(now)

    def _tell_slow_planning(self, now: LinkState) -> None:
        planner = self.leasing.planner if self.leasing is not None else None
        doing, since = planner.doing if planner is not None else ("", 0.0)
        if not doing or time.monotonic() - since < PLANNING_SECONDS:
            self._slow = ""
            return
        words = f"planning has stood for more than {PLANNING_SECONDS:.0f} s at: {doing}"
        now.trouble.append(words)
        if words != self._slow:
            self._slow = words
            self.say(Event(self.job.link.name, "warning", words))

    def _tell_look(self, now: LinkState) -> None:
        """Write down which topics were looked for, and what no task copies yet: after a disaster nobody could tell."""
        if self.leasing is None or not now.discovered or not now.lease:
            return
        fresh = {(p.topic, p.partition): p.end for p in now.partitions if p.position is None and p.end is not None}
        seen = Sight.of({key: Seen(-1, end, now.discovered) for key, end in fresh.items()})
        report = SourceReport(self.job.run, now.lease, now.discovered, seen)
        target, topic = self.observer.target, state.status_topic(self.job.link.name)
        try:
            # A report, not state: nothing is done because of it.
            target.call(lambda: write_records(target, topic, [(b"look", json.dumps(asdict(report)).encode())]))
        except (kerrors.KafkaError, IsthmusError, OSError):
            pass  # the look before this one stays true

    def _deal_if_useful(self, now: LinkState) -> None:
        """A partition that is in no hand was not there when the lease was dealt, or could not be; a lopsided deal leaves slots idle."""
        since = time.monotonic() - max(self._dealt, self._started)
        if self.leasing is None or now.state != "running" or since < DISCOVER_SECONDS:
            return
        dealt = self.leasing.dealt
        fresh = dealt is not None and any(
            (p.topic, p.partition) not in dealt.partitions and not p.fault and p.end is not None for p in now.partitions
        )
        if fresh or (since > LOPSIDED_SECONDS and _lopsided(now)):
            self._dealt = time.monotonic()
            self._steer(deal_again=True)

    def _cut_off_silent(self, now: LinkState) -> None:
        if self.leasing is None or now.state in ("paused", "held") or not now.slots:
            return
        silent = [slot for slot, at in now.slots.items() if time.time() - at > SILENT_SECONDS]
        if silent and time.monotonic() - self._started > SILENT_SECONDS and not now.trouble:
            self.say(
                Event(
                    self.job.link.name,
                    "warning",
                    f"slot {', '.join(map(str, silent))} has been silent for {SILENT_SECONDS:.0f} s; taking its work over",
                )
            )
            self.leasing.stop(0)
            self.leasing = None

    def _steer(self, **wish: Any) -> None:
        try:
            self.observer.target.call(lambda: steer(self.observer.target, self.job.link, **wish))
        except (kerrors.KafkaError, IsthmusError, OSError):
            pass  # the destination cannot be reached: tasks cannot be told, and will see the next wish

    # -- caught up ----------------------------------------------------------------------------------------

    def caught_up(self) -> bool:
        """Everything that was at the source when this run first looked is at the destination, or stands still with a fault of this run.

        Positions alone do not tell that: under the newest lease of this very run each partition has been looked at by a task, both its
        topics are those that its position is about, and its end is known.
        """
        now = self.last
        if now is None or self.goal is None or self._unreachable_since or not self._looked(now):
            return False
        return self._reached(now)

    def _looked(self, now: LinkState) -> bool:
        dealt = self.leasing.dealt if self.leasing is not None else None
        if dealt is None or now.run != self.job.run:
            return False
        # A lease without partitions is followed by another one at once.
        return not dealt.hands or (
            now.lease == dealt.number and all(now.looked.get(slot) == count for slot, count in dealt.hands.items())
        )

    def _reached(self, now: LinkState) -> bool:
        assert self.goal is not None
        at = {(p.topic, p.partition): p for p in now.partitions}
        dealt = self.leasing.dealt.partitions if self.leasing is not None and self.leasing.dealt is not None else ()
        for key, end in self.goal.items():
            partition = at.get(key)
            if partition is not None and partition.fault:
                continue
            if partition is None or end is None or key not in dealt:
                return False
            if partition.position is None or partition.position < end:
                return False
        return True

    def check_reachable(self) -> None:
        if self._unreachable_since and time.monotonic() - self._unreachable_since > UNREACHABLE_SECONDS:
            words = "; ".join(self._troubled) or "a site does not answer"
            raise ConnectionFailed(f"link {self.job.link.name}: {words}")

    def outcome(self) -> IsthmusError | None:
        """What to tell the caller in the end: why the run failed, or which partitions stand still."""
        if self.failed is not None or self.away is not None:
            return self.failed or self.away
        faults = self.last.faults if self.last is not None else []
        if not faults:
            return None
        first = faults[0]
        more = f" (and {len(faults) - 1} more partitions; see `isthmus status`)" if len(faults) > 1 else ""
        text = f"link {self.job.link.name}: {first.topic}[{first.partition}] stands still: {first.message}{more}"
        kind = getattr(errors, first.fault, None)
        if isinstance(kind, type) and issubclass(kind, PartitionFault):
            return kind(text, first.topic, first.partition)
        return DataError(text)

    # -- stopping -----------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        if self.leasing is not None:
            self._steer(stop=self.job.run)

    def stop(self) -> None:
        """End the leasing; after ``ask_to_stop``, tasks have a while to reach their commit."""
        if self.leasing is not None:
            self.leasing.stop(STOP_SECONDS)
            self.leasing = None

    def _stop_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()
            self._tell_news()
            self._keeper = None

    def close(self) -> None:
        self._stop_keeper()
        self.observer.close()


def _lopsided(now: LinkState) -> bool:
    """Whether dealing by the traffic measured now would relieve the fullest slot by a fifth or more."""
    weights = {p: rate for hand in now.hands for p, rate in hand.items()}
    if len(now.hands) < 2 or sum(weights.values()) < LOPSIDED_BYTES:
        return False
    better = deal(list(weights), weights, {}, len(now.hands))
    return skew([list(hand) for hand in now.hands], weights) > 1.2 * skew(better, weights)


def _first_words(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0][:300] if lines else "no reason given"
