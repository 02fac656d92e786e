"""Leases as Spark tasks: one Spark job a lease, one task a slot, until told to stop.

    deal     the driver plans a lease: one share a slot (plan.py)
    job      Spark runs one task a slot; a task copies under its share (copy.py)
    again    when all tasks have returned, the next lease is dealt

A failed task is tried again by Spark, elsewhere if there is an elsewhere. Where copying goes on is kept at the destination
(state.py), so nothing is lost with the driver.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from isthmus import errors
from isthmus.engine.job import Job
from isthmus.engine.session import Spark
from isthmus.errors import IsthmusError, TakenOver
from isthmus.kafka.offsets import Partition

if TYPE_CHECKING:
    from isthmus.engine.lease import Lease

# Typed errors cross Spark as text: this word, then the error as JSON on the same line.
ERROR_MARK = "ISTHMUS-ERROR "
# How often to look whether a run that may not deal leases now may deal again.
IDLE_SECONDS = 0.5


class EngineError(Exception):
    """Carries an IsthmusError through Spark's text of an exception."""

    def __init__(self, error: IsthmusError) -> None:
        super().__init__(ERROR_MARK + json.dumps(error.to_json(), default=str))


def error_from(text: str) -> IsthmusError | None:
    """The typed error inside Spark's text of an exception."""
    for match in re.finditer(re.escape(ERROR_MARK) + r"(\{.*\})", text):
        try:
            body: dict[str, Any] = json.loads(match.group(1))
            kind = getattr(errors, body.pop("error"))
            error: IsthmusError = kind(**body)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
        return error
    return None


# -- on an executor ----------------------------------------------------------------------------------------


def carry_out(lease: Lease) -> None:
    """The task."""
    from isthmus.engine.copy import Copier

    if threading.current_thread() is threading.main_thread():
        # A terminal's Ctrl-C reaches this process too, but only the driver decides how a run ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    try:
        Copier(lease, should_stop=lambda: os.getppid() != parent).run()
    except TakenOver:
        # Not a failure of this task: retrying it would only disturb whoever has the link now. The planner looks
        # at the claim before it deals again and raises there if the link is really lost.
        return
    except IsthmusError as error:
        raise EngineError(error) from error
    if os.getppid() != parent:
        # Nobody could end this worker any more; the executor, if there is one, tries again with another.
        raise ChildProcessError("the Python daemon of this worker has died")


def _carry_out_share(leases: list[Lease], number: int) -> None:
    carry_out(leases[number])


# -- on the driver -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dealt:
    """A lease, as the driver remembers it: its number, how many partitions each slot got, and which they are."""

    number: int
    hands: dict[int, int]
    partitions: frozenset[Partition]

    @classmethod
    def of(cls, leases: list[Lease]) -> Dealt:
        hands = {lease.slot: len(lease.assignments) for lease in leases if lease.assignments}
        return cls(leases[0].number, hands, frozenset(a.source for lease in leases for a in lease.assignments))


class Leasing(threading.Thread):
    """Deals one lease after another for one run of one link, and has Spark carry them out."""

    def __init__(self, spark: Spark, job: Job, make_planner: Callable[[Job], Any]) -> None:
        super().__init__(name=f"leases of {job.link.name}", daemon=True)
        self._spark, self._job, self._make_planner = spark, job, make_planner
        self._group = f"isthmus-{job.link.name}-{job.run[:8]}-{id(self)}"
        self._over = threading.Event()
        self.working = False
        """Whether tasks may be copying right now."""
        self.planner: Any = None
        self.dealt: Dealt | None = None
        """The newest lease."""
        self.error: BaseException | None = None
        """Why it ended, if it was not told to."""

    def run(self) -> None:
        try:
            self.planner = self._make_planner(self._job)
            try:
                self._deal_and_wait(self.planner)
            finally:
                self.planner.close()
        except BaseException as error:
            if not self._over.is_set():
                self.error = error

    def _deal_and_wait(self, planner: Any) -> None:
        link = self._job.link.name
        while not self._over.is_set():
            control = planner.control()
            if control.resting or control.stop == self._job.run:
                self._over.wait(IDLE_SECONDS)
                continue
            planned = planner.plan()
            self.dealt = Dealt.of(planned)
            leases = [lease for lease in planned if lease.assignments]
            if not leases:
                self._over.wait(IDLE_SECONDS)  # nothing to copy yet: look again soon
                continue
            context = self._spark.context()
            if self._over.is_set():
                return
            context.setJobGroup(self._group, f"link {link}, lease {leases[0].number}", interruptOnCancel=True)
            self.working = True
            try:
                # In the closure and not in the data set: what is in a data set, and a lease holds secrets, goes through files.
                context.parallelize(range(len(leases)), len(leases)).foreach(partial(_carry_out_share, leases))
            finally:
                self.working = False

    def stop(self, seconds: float) -> None:
        """Deal no more; tasks that have not returned by then are cut off, which costs their open transaction."""
        deadline = time.monotonic() + seconds
        while self.working and self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._over.set()
        if self.working:
            self._spark.context().cancelJobGroup(self._group)
        self.join(seconds)
