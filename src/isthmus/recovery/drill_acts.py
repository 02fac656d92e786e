"""What every drill does: write, read, carry out operations, and draw all of it on one line of time.

Invariant: whoever leaves the ``with`` block leaves no writer, reader or run behind.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from isthmus.config import Config, Site
from isthmus.recovery.drill_process import PipedReplicator, Replicator
from isthmus.recovery.drill_report import DrillReport
from isthmus.recovery.drill_traffic import Judgement, Reader, Writer, contents, judge
from isthmus.recovery.operation import Tell, Telling
from isthmus.recovery.timeline import Bar, Kind

OPERATION = "operation"
# What was on its way between a record's acknowledgement and a task's last word of its source.
ON_THE_WAY_SECONDS = 1.0
READ_SECONDS = 60.0


class Acts:
    """The parts of a drill that are the same wherever it is played."""

    def __init__(self, report: DrillReport, rate: float, tell: Tell) -> None:
        self.report, self.timeline = report, report.timeline
        self.writers: list[Writer] = []
        self.seen: Counter[str] = Counter()
        self.reader: Reader | None = None
        self.run: Replicator | PipedReplicator | None = None
        self.when: dict[str, Callable[[], None]] = {}
        """What to do when a step of an operation begins: where an operator would act, the drill does."""
        self.then: dict[str, Callable[[], None]] = {}
        """The same for when a step is done."""
        self.ready = 0.0
        self._rate, self._tell = rate, tell
        self._bars: dict[str, Bar] = {}

    def __enter__(self) -> Acts:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        # Brokers of this machine end right after; real ones are left as a client should leave them.
        self.rest(dead=not self.report.live)
        self.quiet(dead=not self.report.live)
        if self.run is not None:
            self.run.stop()
            self.run = None
        self.timeline.close()

    # -- telling ----------------------------------------------------------------------------------------------

    def say(self, words: str) -> None:
        self._tell(Telling("", "note", words))

    def telling(self, telling: Telling) -> None:
        """What an operation says, passed on and drawn."""
        if telling.state == "begins" and telling.step in self.when:
            self.when.pop(telling.step)()
        self.timeline.step(OPERATION, telling)
        if telling.state == "done" and telling.step in ("promote", "switch-promote"):
            self.ready = time.time()
        self._tell(telling)
        if telling.state == "done" and telling.step in self.then:
            self.then.pop(telling.step)()

    def stand(self, lane: str, label: str, kind: Kind) -> None:
        self.timeline.state(lane, label, kind)

    def operation(self, name: str, work: Callable[..., dict[str, Any]], *arguments: Any, **options: Any) -> Any:
        """Carry out an operation; its report."""
        self.timeline.mark(OPERATION, name)
        done = self.report.add(work(*arguments, **options))
        for step in done["steps"]:
            if step["step"].endswith("groups"):
                for rows in step["found"]["links"].values():
                    told = {f"group {row['group']}: {why}" for row in rows for why in row.get("reasons", [])}
                    self.report.notes += sorted(f"{name}: {words}" for words in told)
        return done

    # -- traffic ----------------------------------------------------------------------------------------------

    def write(self, name: str, site: Site, topics: Mapping[str, int], lane: str | None = None) -> Writer:
        writer = Writer(name, site, topics, self._rate)
        self.writers.append(writer)
        self._bars[name] = self.timeline.begin(lane or site.name, f"writer {name}", "traffic")
        return writer

    def quiet(self, *names: str, dead: bool = False) -> None:
        """End these writers, or all."""
        for writer in self.writers:
            if not names or writer.name in names:
                writer.stop(dead)
                self.timeline.end(self._bars[writer.name])
                self.report.acknowledged[writer.name] = len(writer.acknowledged)

    def read(self, site: Site, topics: Mapping[str, int], lane: str | None = None) -> Reader:
        self.rest()
        self.reader = Reader(self.report.readers.group, site, topics, self.seen)
        self._bars["reader"] = self.timeline.begin(lane or site.name, "group reads", "traffic")
        return self.reader

    def rest(self, dead: bool = False) -> None:
        """The group's member leaves."""
        if self.reader is not None:
            self.reader.stop(dead)
            self.report.readers.read += self.reader.read
            self.timeline.end(self._bars["reader"])
            self.reader = None

    @property
    def written(self) -> dict[str, float]:
        """All that was acknowledged, with its time."""
        return {name: at for writer in self.writers for name, at in writer.acknowledged.items()}

    # -- judging ----------------------------------------------------------------------------------------------

    def declared(self, failover: dict[str, Any], writer: str, held: set[str], died: float) -> set[str]:
        """Compare what was declared as lost of a writer's records with what is; what is lost."""
        loss = self.report.loss
        loss.declared_records, loss.declared_seconds = failover["rpo_records"], failover["rpo_seconds"]
        loss.unknown_since_seconds = failover["unknown_since_seconds"]
        written = next(each.acknowledged for each in self.writers if each.name == writer)
        lost = written.keys() - held
        loss.true_records = len(lost)
        loss.true_seconds = max((died - written[name] for name in lost), default=0.0)
        heard = [
            each["heard"]
            for step in failover["steps"]
            if step["step"] == "declare"
            for each in step["found"]["links"]
            if each["heard"]
        ]
        known = [name for name in lost if written[name] < max(heard, default=0.0) - ON_THE_WAY_SECONDS]
        if len(known) > loss.declared_records:
            self.report.problems.append(
                f"{len(known)} records that {self.report.site} had taken before it was last heard never arrived, and only "
                f"{loss.declared_records} were declared"
            )
        return set(lost)

    def judge_site(
        self, name: str, site: Site, topics: Mapping[str, int], wanted: set[str], *, repeats: bool, rules: bool
    ) -> Judgement:
        found = judge(name, contents(site, topics), wanted)
        self.report.sites.append(found.to_json())
        if found.missing and rules:
            self.report.notes.append(
                f"{name}: {len(found.missing)} records are not there; links have rules of yours, which may leave records out"
            )
        elif found.missing:
            self.report.problems.append(
                f"{name}: {len(found.missing)} acknowledged records are missing, such as {found.missing[0]}"
            )
        if found.doubled and not repeats:
            self.report.problems.append(
                f"{name}: {len(found.doubled)} records are there twice, such as {found.doubled[0]}"
            )
        if found.out_of_order and not repeats:
            self.report.problems.append(
                f"{name}: {len(found.out_of_order)} records stand out of order, such as {found.out_of_order[0]}"
            )
        return found

    def judge_readers(self, home: Site, topics: Mapping[str, int]) -> None:
        """The group, which reads at home by now, has read all that is there, however often."""
        there = {name for names in contents(home, topics).values() for name in names}
        left = self.reader.wait(there, READ_SECONDS) if self.reader is not None else there - self.seen.keys()
        why = f" (its last trouble: {self.reader.trouble})" if self.reader is not None and self.reader.trouble else ""
        self.rest()
        readers = self.report.readers
        readers.skipped = sorted(left)
        readers.read_twice = sum(count - 1 for count in self.seen.values())
        if left:
            self.report.problems.append(
                f"group {readers.group} never read {len(left)} records, such as {readers.skipped[0]}{why}"
            )

    def judge_comparison(self, config: Config) -> None:
        for found in self.report.verified:
            if not found["clean"]:
                self.report.problems.append(f"link {found['link']}: {found['verdict']}")
        if not self.report.verified:
            self.report.problems.append("the two sites were not compared")
