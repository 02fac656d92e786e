"""What every drill does: write, read, carry out operations, and draw all of it on one line of time.

Invariant: whoever leaves the ``with`` block leaves no writer, reader or run behind.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from isthmus.config import Config, Link, Site
from isthmus.kafka.offsets import Partition
from isthmus.recovery.drill_process import PipedReplicator, Replicator
from isthmus.recovery.drill_report import DrillReport
from isthmus.recovery.drill_traffic import Judgement, Reader, Writer, contents, judge
from isthmus.recovery.losses import known_until, seen_of
from isthmus.recovery.operation import Tell, Telling
from isthmus.recovery.timeline import Bar, Kind

OPERATION = "operation"
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
        dead = not self.report.live
        # All are asked before any is waited for: each has its patience, and on a busy machine their sum is minutes.
        if self.run is not None:
            self.run.ask_to_stop()
        if self.reader is not None:
            self.reader.ask_to_stop(dead)
        for writer in self.writers:
            writer.ask_to_stop()
        try:
            self.rest(dead)
            self.quiet(dead=dead)
        finally:
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

    def declared(
        self, failover: dict[str, Any], writer: str, held: set[str], died: float, links: Mapping[str, Link]
    ) -> set[str]:
        """Compare what was declared as lost of a writer's records with what is; what is lost."""
        loss = self.report.loss
        loss.declared_records, loss.declared_seconds = failover["rpo_records"], failover["rpo_seconds"]
        loss.at_most, loss.known_until = failover["at_most"], failover["known_until"]
        loss.unknown_since_seconds = failover["unknown_since_seconds"]
        author = next(each for each in self.writers if each.name == writer)
        written = author.acknowledged
        lost = written.keys() - held
        loss.true_records = len(lost)
        loss.true_seconds = max((died - written[name] for name in lost), default=0.0)
        by_place: dict[Partition, list[float]] = {}
        for name in lost:
            by_place.setdefault(author.places[name], []).append(written[name])
        found = [each for step in failover["steps"] if step["step"] == "declare" for each in step["found"]["links"]]
        for place, times in sorted(by_place.items()):
            mine = [each for each in found if links[each["link"]].topics.matches(place[0])]
            beyond = len([at for at in times if all(at < known_until(each, place) for each in mine)])
            if mine and beyond > (seen := sum(seen_of(each, place) for each in mine)):
                loss.beyond += beyond - seen
                self.report.problems.append(
                    f"{place[0]}[{place[1]}]: {beyond} records that {self.report.site} had acknowledged before it was last asked never arrived, and "
                    f"only {seen} were declared"
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
