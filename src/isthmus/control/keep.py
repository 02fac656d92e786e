"""Keeps a running link's resources in step, each at its own interval, beside the data and never in its way.

Invariants:
- one thread with connections of its own does all of it; the driver only reads its news, so nothing here can hold up
  the data or the look at it;
- a resource that fails is told of once, and tried again; what it left undone is in its next plan;
- a held link's resources rest with it;
- topics are not kept here: the planner of leases creates and grows them the moment they are needed (topics.py);
- the age of what was waiting before the run began is looked at as well (backlog.py), until it is copied; and what Isthmus keeps at both sites, whether
  somebody else writes there.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from isthmus.config import Link, Site
from isthmus.control.backlog import Backlog
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends, Resource
from isthmus.control.resources import TROUBLE, applied, planned, resources
from isthmus.engine.state import SITES_TOPIC, control_topic
from isthmus.engine.steer import read_control
from isthmus.engine.table import read_table
from isthmus.errors import BadState, NotAllowed, UnknownLink

KEPT = ("configs", "acls", "schemas", "groups")
# Trouble is looked at again after this long, however rarely the resource is compared otherwise.
AGAIN_SECONDS = 15.0
BACKLOG, BACKLOG_SECONDS = "backlog", 5.0
STATE, STATE_SECONDS = "state", 60.0
# The data goes first: the seconds in which Spark starts are not shared.
FIRST_SECONDS = 5.0
# However much there is to compare, comparing takes a tenth of the time at most.
REST = 9
STOP_SECONDS = 3.0
_DONE = {"create": "created", "grow": "grown", "alter": "altered", "delete": "deleted", "stage": "staged"}


@dataclass(frozen=True, slots=True)
class News:
    """Something worth a line for the operator."""

    level: str
    text: str


class Keeper:
    """Started and stopped by the driver; ``news`` is everything since it was last asked for."""

    def __init__(self, link: Link, source: Site, target: Site, others: tuple[Link, ...] = ()) -> None:
        self._link, self._source, self._target, self._others = link, source, target, others
        self._news: deque[News] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"isthmus-keep-{link.name}", daemon=True)
        self._troubles: dict[str, frozenset[str]] = {}
        self._ends: Ends | None = None
        self._backlog = Backlog()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends it after what it is doing now; a site that does not answer is not waited for."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def news(self) -> list[News]:
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        todo = {resource.name: resource for resource in resources(KEPT) if _enabled(self._link, resource.name)}
        due = dict.fromkeys([BACKLOG, STATE, *todo], time.monotonic() + FIRST_SECONDS)
        try:
            while due and not self._stop.is_set():
                name = min(due, key=lambda each: due[each])
                if self._stop.wait(max(0.0, due[name] - time.monotonic())):
                    return
                began = time.monotonic()
                interval = self._look(name, todo)
                took = time.monotonic() - began
                if interval is None:
                    del due[name]
                else:
                    due[name] = time.monotonic() + max(interval, REST * took)
        finally:
            self._disconnect()

    def _look(self, name: str, todo: dict[str, Resource]) -> float | None:
        """Do what is due; after how long again, if ever."""
        if name == BACKLOG:
            return self._look_back()
        return self._look_at_state() if name == STATE else self._keep(todo[name])

    def _look_back(self) -> float | None:
        """Look how old the backlog is; when to look again, if some is left."""
        try:
            ends = self._connect()
            return BACKLOG_SECONDS if ends.loop.run(self._backlog.look, ends) else None
        except Exception:
            # Nothing depends on it, and what is wrong is told by those who need the site.
            self._disconnect()
            return AGAIN_SECONDS

    def _look_at_state(self) -> float:
        """Look whether somebody else writes what Isthmus keeps; what was read is counted where it is read (table.py)."""
        words: set[str] = set()
        try:
            ends = self._connect()
            for cluster, topic in (
                (ends.target, control_topic(self._link.name)),
                (ends.target, SITES_TOPIC),
                (ends.source, SITES_TOPIC),
            ):
                with suppress(NotAllowed):
                    words |= {ends.loop.run(read_table, cluster, topic).forged()}
        except BadState as error:
            words.add(error.message)
        except Exception:
            self._disconnect()
            return AGAIN_SECONDS
        self._tell(STATE, words - {""}, "all that counts is ours, and nothing else is there")
        return STATE_SECONDS

    def _keep(self, resource: Resource) -> float:
        fine = self._once(resource)
        interval = float(getattr(self._link.sync, resource.name).interval)
        return interval if fine else min(interval, AGAIN_SECONDS)

    def _once(self, resource: Resource) -> bool:
        """Compare and mend once; whether it went through."""
        try:
            ends = self._connect()
            if self._held(ends):
                return True  # its source is out of service: what it has is not what should be
            changes = ends.loop.run(planned, resource, ends)
            outcomes = ends.loop.run(applied, resource, ends, changes)
        except Exception as error:
            # Whatever it is, it must not end the keeping of the other resources; connections are made anew.
            self._disconnect()
            words = getattr(error, "message", "") if isinstance(error, TROUBLE) else ""
            self._tell(resource.name, {words or f"{type(error).__name__}: {error}"})
            return False
        self._tell(resource.name, _troubles(changes, outcomes))
        done = Counter(outcome.change.action for outcome in outcomes if outcome.done)
        if done:
            words = ", ".join(f"{count} {_DONE[action]}" for action, count in done.items())
            self._news.append(News("info", f"{resource.name}: {words}"))
        return all(outcome.done for outcome in outcomes) and not any(
            c.name == "*" and c.action == "blocked" for c in changes
        )

    def _held(self, ends: Ends) -> bool:
        try:
            return bool(ends.loop.run(read_control, ends.target, self._link.name).held)
        except UnknownLink:  # it has no state yet, so nobody holds it
            return False

    def _tell(self, name: str, troubles: set[str], end: str = "in step again") -> None:
        """News of what is wrong that was not wrong the last time, and of its end."""
        before = self._troubles.get(name, frozenset())
        for words in sorted(troubles - before):
            self._news.append(News("warning", f"{name}: {words}"))
        if before and not troubles:
            self._news.append(News("info", f"{name}: {end}"))
        self._troubles[name] = frozenset(troubles)

    def _connect(self) -> Ends:
        if self._ends is None:
            made = Ends(self._link, self._source, self._target, self._others)
            try:
                made.loop.run(made.connect)
            except BaseException:
                made.close()
                raise
            self._ends = made
        return self._ends

    def _disconnect(self) -> None:
        if self._ends is not None:
            self._ends.close()
            self._ends = None


def _enabled(link: Link, name: str) -> bool:
    options: Any = getattr(link.sync, name, None)
    return options is not None and bool(options.enabled)


def _troubles(changes: list[Change], outcomes: list[Outcome]) -> set[str]:
    words = {f"{c.name}: {c.why}" if c.name != "*" else c.why for c in changes if c.action == "blocked"}
    return words | {f"{o.change.name}: {o.error}" for o in outcomes if not o.done}
