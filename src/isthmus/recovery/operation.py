"""An operation: steps in order, each idempotent, each written down when it is done.

Invariant: the order of the steps is the order of ``steps``; a step runs only when all before it are written as done. What a step
finds is plain JSON, and later steps read it from the journal, never from memory that a kill would lose. Before the first change every site that answers is
asked what it keeps; only an emergency begins without the other site of its pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import read_table
from isthmus.errors import Interrupted, IsthmusError, UsageError
from isthmus.kafka.cluster import Cluster
from isthmus.recovery.journal import Entry, Found, Journal
from isthmus.recovery.stage import Stage
from isthmus.recovery.unfinished import command, fences


@dataclass(frozen=True, slots=True)
class Step:
    """``does`` is the sentence that an operator reads before it is done; ``plan`` says what it would do right now."""

    name: str
    does: str
    act: Callable[[], Found]
    plan: Callable[[], list[str]] = list


@dataclass(frozen=True, slots=True)
class Telling:
    """Something to show while an operation goes on: a step ``begins``, is ``done``, was done ``before``, or a ``note``."""

    step: str
    state: str
    words: str
    seconds: float = 0.0
    found: Found | None = None


Tell = Callable[[Telling], None]


class Operation:
    """Carries out steps under a journal."""

    def __init__(self, stage: Stage, journal: Journal, tell: Tell) -> None:
        self.stage, self.journal, self.tell = stage, journal, tell
        self.resumed = False

    @property
    def entry(self) -> Entry:
        return self.journal.entry

    def open(self) -> None:
        """Take the journal. The other sites, if they answer, are asked as well whether something is unfinished."""
        self.resumed = self.stage.run(self.journal.open, self._others())
        if self.resumed:
            words = f"going on with the {self.entry.told()}; done before: {', '.join(self.entry.done) or 'nothing'}"
            self.tell(Telling("", "note", words))

    def _others(self) -> list[Cluster]:
        """All sites that answer: an operation is kept at the site that takes over, which may be a third one."""
        return [self.stage.site(name) for name in self._elsewhere if self.stage.answers(name)]

    @property
    def _elsewhere(self) -> list[str]:
        return [name for name in self.stage.config.sites if name != self.entry.to]

    def _begin(self) -> None:
        """Write that this is about to be done, where nobody else does what contradicts it, as far as sites answer."""
        if self.entry.mode != "emergency":
            self.stage.site(self.entry.site)  # raises: a move that is planned can wait until both sites can be asked
        for name in self._elsewhere:
            if not self.stage.answers(name):
                self.note("", f"{name} does not answer: whether somebody begins something else there is not known")
        self.stage.run(self.journal.begin, self._others())

    def note(self, step: str, words: str) -> None:
        self.tell(Telling(step, "note", words))

    def carry_out(self, steps: Sequence[Step]) -> None:
        for step in steps:
            done = self.entry.done.get(step.name)
            if done is not None:
                self.tell(Telling(step.name, "before", step.does, done["seconds"], done["found"]))
                continue
            try:
                self._do(step)
            except KeyboardInterrupt:
                raise self._stopped(step) from None

    def _do(self, step: Step) -> None:
        if step.name != "check" and not self.entry.unfinished:
            self._begin()
        self.tell(Telling(step.name, "begins", step.does))
        began = time.time()
        found = step.act()
        seconds = time.time() - began
        self.entry.done[step.name] = {"at": began, "seconds": round(seconds, 3), "found": found}
        if self.entry.unfinished:
            self.stage.run(self.journal.write)
        self.tell(Telling(step.name, "done", step.does, seconds, found))

    def _stopped(self, step: Step) -> Interrupted:
        """What to know after Ctrl-C: what is done, what is not, and how to go on."""
        if not self.entry.unfinished:
            return Interrupted(f"stopped in step {step.name}; nothing was changed")
        done = ", ".join(name for name in self.entry.done if name != step.name) or "nothing"
        how = command(self.entry)
        words = f"stopped. Done: {done}. Not done: {step.name} (perhaps in part) and all after it. `{how}` goes on, with --abandon it is given up"
        fence = next(
            (found for name, found in self._found() if name.endswith("fence") and found.get("how") != "none"), None
        )
        if fence is not None or step.name.endswith("fence"):
            words += f". Until then a fence keeps writers away from {self._left}"
        return Interrupted(words)

    @property
    def _left(self) -> str:
        """The site that work leaves, which is the one that is fenced."""
        return self.entry.to if self.entry.kind == "failback" else self.entry.site

    def _found(self) -> list[tuple[str, Found]]:
        return [(name, done["found"]) for name, done in self.entry.done.items()]

    def close(self) -> dict[str, Any]:
        """The end: written down, and told as a report."""
        self.entry.ended = time.time()
        self.stage.run(self.journal.write)
        return report(self.entry)

    def abandon(self) -> dict[str, Any]:
        """Give it up: what is done stays done, and the next operation begins anew."""
        if not self.resumed:
            raise UsageError(f"there is nothing to abandon: no {self.entry.kind} of {self.entry.site} is unfinished")
        self.entry.abandoned = True
        self.stage.run(self.journal.write)
        pair = (self.entry.site, self.entry.to)
        tables = {n: self.stage.at(n, "reading fences", read_table, SITES_TOPIC) for n in pair if self.stage.answers(n)}
        fenced = [site for site in fences(tables) if site == self._left]
        for site in fenced:
            self.note(
                "", f"{site} stays fenced: nobody but Isthmus may write there. `isthmus unfence {site}` lifts that"
            )
        return {**report(self.entry), "fenced": fenced}


def preview(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """What the steps would do, as things are now; changes nothing. What one step cannot tell yet does not keep the others from telling."""
    return [{"step": step.name, "does": step.does, "now": _planned(step)} for step in steps]


def _planned(step: Step) -> list[str]:
    try:
        return step.plan()
    except IsthmusError as error:
        return [error.message]


def report(entry: Entry) -> dict[str, Any]:
    """What became of an operation."""
    return {
        "operation": entry.kind,
        "mode": entry.mode or None,
        "site": entry.site,
        "to": entry.to,
        "id": entry.id,
        "began": entry.began,
        "ended": entry.ended or None,
        "abandoned": entry.abandoned,
        "attempts": entry.attempts,
        "seconds": round((entry.ended or time.time()) - entry.began, 3),
        "steps": [
            {"step": name, "at": done["at"], "seconds": done["seconds"], "found": done["found"]}
            for name, done in entry.done.items()
        ],
    }
