"""What is told about running links, as metrics: lag in records and seconds, rates, faults, and the control plane's work.

Invariant: a scrape asks no site anything; it tells what the driver saw when it last looked, and what was counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

from isthmus.control.meter import METER, Meter, Tally
from isthmus.engine.report import PlanReport
from isthmus.engine.snapshot import LinkState
from isthmus.web.openmetrics import Family, render

Key = tuple[str, str, int]
# Moments that are remembered of one partition; when there are more, every other one is forgotten.
MOST_MARKS = 256


class LagClock:
    """How long the oldest record that is not copied has waited, by when its place at the log's end was first seen.

    Invariant: marks ascend in time and in offset, and only those beyond the position are kept. What was at the source before
    the first look has waited since then at least; for how much longer is known from the records themselves (control/backlog.py).
    """

    def __init__(self) -> None:
        self._marks: dict[Key, deque[tuple[float, int]]] = {}

    def seconds(self, key: Key, position: int, end: int, now: float) -> float:
        marks = self._marks.setdefault(key, deque())
        while marks and marks[0][1] <= position:
            marks.popleft()
        if position >= end:
            return 0.0
        if not marks or marks[-1][1] < end:
            marks.append((now, end))
            if len(marks) > MOST_MARKS:
                # Every other one goes, never the oldest: records of a mark that is gone count as seen with the next one.
                self._marks[key] = marks = deque(list(marks)[::2])
        return now - marks[0][0]


class Exporter:
    """Takes the states of links as the driver sees them, and gives text to whoever asks, from any thread."""

    def __init__(self, redpanda_names: bool = False, meter: Meter = METER) -> None:
        self._redpanda, self._meter = redpanda_names, meter
        self._clock = LagClock()
        self._lock = threading.Lock()
        self._families: list[Family] = []
        self._topics: dict[tuple[str, str], Tally] = {}

    def take(self, states: Sequence[LinkState]) -> None:
        """What the links look like now."""
        families = self._links(states, time.monotonic())
        topics = {(s.link, "topics"): _tally(s.made) for s in states if s.made is not None}
        with self._lock:
            self._families, self._topics = families, {**self._topics, **topics}

    def text(self) -> str:
        with self._lock:
            families, topics = list(self._families), self._topics
        # Topics are created by the planner of leases, in a process of its own, which reports it.
        resources, groups = {**self._meter.resources(), **topics}, self._meter.groups()
        levels = self._meter.levels()
        families += _control(resources, groups) + _levels(levels) + _tables(self._meter.tables())
        if self._redpanda:
            families += _redpanda(resources, groups, levels)
        return render(families)

    def _links(self, states: Iterable[LinkState], now: float) -> list[Family]:
        running = Family("isthmus_link_running", "gauge", "Whether tasks of the link report")
        records = Family("isthmus_link_records_per_second", "gauge", "Records copied a second")
        size = Family("isthmus_link_bytes_per_second", "gauge", "Bytes copied a second")
        lag = Family("isthmus_lag_records", "gauge", "Source offsets that are not copied yet")
        waited = Family("isthmus_lag_seconds", "gauge", "How long the oldest record that is not copied has waited")
        position = Family("isthmus_position", "gauge", "Next source offset to copy")
        faults = Family("isthmus_partition_fault", "gauge", "1 while a partition stands still, by the fault's name")
        met = Family("isthmus_schema_ids", "counter", "Keys and values by what the rule schema_ids met in them")
        theirs = Family("redpanda_lag", "gauge", "Lag in messages")
        since, today = self._meter.waiting(), time.time()
        for state in states:
            running.add(float(state.state == "running"), link=state.link)
            records.add(round(state.records_per_second, 3), link=state.link)
            size.add(round(state.bytes_per_second, 3), link=state.link)
            for name, count in state.schema_ids_watched.items():
                met.add(count, link=state.link, met=name)
            for p in state.partitions:
                labels = {"link": state.link, "topic": p.topic, "partition": str(p.partition)}
                if p.lag is not None and p.position is not None and p.end is not None:
                    lag.add(p.lag, **labels)
                    key = (state.link, p.topic, p.partition)
                    seconds = self._clock.seconds(key, p.position, p.end, now)
                    if p.lag and key in since:
                        seconds = max(seconds, today - since[key])
                    waited.add(round(seconds, 3), **labels)
                    position.add(p.position, **labels)
                    if self._redpanda:
                        theirs.add(p.lag, **labels)
                if p.fault:
                    faults.add(1, **labels, fault=p.fault)
        return [running, records, size, lag, waited, position, faults, met, theirs]


def _tally(made: PlanReport) -> Tally:
    tally = Tally(errors=made.refused, applies=made.times, apply_seconds=made.seconds)
    tally.done.update(create=made.created, grow=made.grown)
    return tally


def _control(resources: dict[tuple[str, str], Tally], groups: dict[tuple[str, str], Tally]) -> list[Family]:
    changes = Family("isthmus_control_changes", "counter", "Changes carried out at the destination")
    errors = Family("isthmus_control_errors", "counter", "Changes that failed, and comparisons that could not be made")
    blocked = Family("isthmus_control_blocked", "gauge", "What should change and cannot")
    plans = Family("isthmus_control_plan_seconds", "summary", "How long comparing both sides took")
    applies = Family("isthmus_control_apply_seconds", "summary", "How long carrying changes out took")
    for (link, resource), tally in sorted(resources.items()):
        labels = {"link": link, "resource": resource}
        for action in ("create", "grow", "alter", "delete"):
            if tally.done[action]:
                changes.add(tally.done[action], **labels, action=action)
        errors.add(tally.errors, **labels)
        blocked.add(tally.blocked, **labels)
        plans.add((tally.plans, tally.plan_seconds), **labels)
        applies.add((tally.applies, tally.apply_seconds), **labels)
    translated = Family("isthmus_group_offsets_translated", "counter", "Positions of a group that were to be moved")
    stuck = Family("isthmus_group_translation_errors", "counter", "Positions of a group that could not be found")
    finding = Family("isthmus_group_translation_seconds", "summary", "How long finding took, with the groups beside it")
    written = Family("isthmus_group_offsets_committed", "counter", "Positions of a group that were written")
    refused = Family("isthmus_group_commit_errors", "counter", "Times that a group's positions were refused")
    committing = Family("isthmus_group_commit_seconds", "summary", "How long writing took, with the groups beside it")
    for (link, group), tally in sorted(groups.items()):
        labels = {"link": link, "group": group}
        translated.add(tally.done["translated"], **labels)
        stuck.add(tally.blocked, **labels)
        finding.add((tally.plans, tally.plan_seconds), **labels)
        written.add(tally.done["committed"], **labels)
        refused.add(tally.errors, **labels)
        committing.add((tally.applies, tally.apply_seconds), **labels)
    return [changes, errors, blocked, plans, applies, translated, stuck, finding, written, refused, committing]


def _levels(levels: dict[str, Tally]) -> list[Family]:
    updates = Family("isthmus_compatibility_updates", "counter", "Compatibility levels set or taken away")
    errors = Family("isthmus_compatibility_update_errors", "counter", "Compatibility levels that could not be set")
    seconds = Family("isthmus_compatibility_update_seconds", "summary", "How long setting a level took, done or not")
    for link, tally in sorted(levels.items()):
        updates.add(tally.done["set"], link=link)
        errors.add(tally.errors, link=link)
        seconds.add((tally.applies, tally.apply_seconds), link=link)
    return [updates, errors, seconds]


def _tables(tables: dict[tuple[str, str], tuple[int, int]]) -> list[Family]:
    forged = Family("isthmus_state_forged_records", "gauge", "Records of state that somebody else wrote; ignored")
    bad = Family("isthmus_state_bad_records", "gauge", "Records of state that cannot be read")
    for (site, topic), (strange, unreadable) in sorted(tables.items()):
        forged.add(strange, site=site, topic=topic)
        bad.add(unreadable, site=site, topic=topic)
    return [forged, bad]


def _redpanda(
    resources: dict[tuple[str, str], Tally], groups: dict[tuple[str, str], Tally], levels: dict[str, Tally]
) -> list[Family]:
    """The same numbers under the names of Redpanda's migrator, with one label more; times are in nanoseconds there."""
    found: dict[str, Family] = {}

    def add(name: str, kind: str, value: float | tuple[int, float], **labels: str) -> None:
        full = f"redpanda_migrator_{name}"
        family = found.setdefault(full, Family(full, kind, "As Redpanda's migrator calls it"))  # type: ignore[arg-type]
        family.add(value, **labels)

    for (link, resource), tally in sorted(resources.items()):
        nanos = (tally.applies, tally.apply_seconds * 1e9)
        if resource == "topics":
            add("topic_create_errors", "counter", tally.errors, link=link)
            add("topic_create_latency_ns", "summary", nanos, link=link)
            add("topics_created", "counter", tally.done["create"], link=link)
        elif resource == "schemas":
            add("sr_schemas_created", "counter", tally.done["versions"], link=link)
            add("sr_schema_create_errors", "counter", tally.errors, link=link)
            add("sr_schema_create_latency_ns", "summary", nanos, link=link)
            level = levels.get(link, Tally())
            add("sr_compatibility_updates", "counter", level.done["set"], link=link)
            add("sr_compatibility_update_errors", "counter", level.errors, link=link)
            add("sr_compatibility_update_latency_ns", "summary", (level.applies, level.apply_seconds * 1e9), link=link)
    for (link, group), tally in sorted(groups.items()):
        add("cg_offsets_translated", "counter", tally.done["translated"], link=link, group=group)
        add("cg_offset_translation_errors", "counter", tally.blocked, link=link, group=group)
        add(
            "cg_offset_translation_latency_ns",
            "summary",
            (tally.plans, tally.plan_seconds * 1e9),
            link=link,
            group=group,
        )
        add("cg_offsets_committed", "counter", tally.done["committed"], link=link, group=group)
        add("cg_offset_commit_errors", "counter", tally.errors, link=link, group=group)
        add(
            "cg_offset_commit_latency_ns", "summary", (tally.applies, tally.apply_seconds * 1e9), link=link, group=group
        )
    return list(found.values())
