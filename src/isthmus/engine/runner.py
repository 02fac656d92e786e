"""Runs links in one Spark application until told to stop, until they have caught up, or for a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from isthmus.config import Config
from isthmus.config.spark import Options
from isthmus.control.ends import opposite
from isthmus.engine.job import Job
from isthmus.engine.session import Spark, cores, slots_for
from isthmus.engine.snapshot import LinkState
from isthmus.engine.supervise import Event, LinkRun
from isthmus.errors import Interrupted, IsthmusError, TakenOver, UsageError

TICK_SECONDS = 0.1


class Runner:
    """One process, one Spark application, one thread of leases a link. ``stop`` may be called from a signal handler."""

    def __init__(
        self,
        config: Config,
        names: Sequence[str],
        say: Callable[[Event], None],
        show: Callable[[list[LinkState]], None] = lambda states: None,
        temporary: bool = False,
    ) -> None:
        self._config = config
        self._names = list(names) or list(config.links)
        unknown = [name for name in self._names if name not in config.links]
        if unknown:
            known = ", ".join(config.links) or "none"
            raise UsageError(f"no link named {', '.join(unknown)} in the configuration; there are: {known}")
        if not self._names:
            raise UsageError("the configuration has no links to run")
        self._say, self._show, self._temporary = say, show, temporary
        self._runs: list[LinkRun] = []
        self._stopping = False
        # The links that had not caught up when the time was over.
        self.late: list[str] = []

    def stop(self) -> None:
        self._stopping = True

    @property
    def states(self) -> list[LinkState]:
        return [run.last for run in self._runs if run.last is not None]

    def run(self, until_caught_up: bool = False, duration: float | None = None) -> list[LinkState]:
        """Replicate; returns the last states. Raises why a link failed, or which partitions stand still."""
        config, links = self._config, [self._config.links[name] for name in self._names]
        options: Options = dict(config.spark)
        for link in links:
            options.update(link.spark)
        master = str(options.get("spark.master", "local[*]"))
        local = master.startswith("local")
        parallelism = (
            cores()
            if local
            else int(str(options.get("spark.cores.max", options.get("spark.default.parallelism", "0"))) or 0)
        )
        jobs = []
        for link in links:
            slots = slots_for(len(links), link.tasks, parallelism) if local or parallelism else (link.tasks or 0)
            ends = (config.sites[link.source], config.sites[link.target])
            jobs.append(Job(link, *ends, slots, temporary=self._temporary))
        self._runs = runs = []
        # Both sites are reached before Spark is started: a wrong address should not cost the seconds of a JVM.
        with contextlib.ExitStack() as stack:
            alone = len(jobs) == 1
            probes = [LinkRun(None, job, self._say, opposite(config, job.link), alone=alone) for job in jobs]
            for probe in probes:
                stack.callback(probe.close)
            self._for_each(probes, LinkRun.reach)
            spark = Spark(options, sum(max(1, job.slots) for job in jobs))
            stack.callback(spark.stop)
            # Everything else goes on while the JVM starts.
            self._for_each(probes, LinkRun.prepare)
            for probe in probes:
                if probe.job.slots == 0:
                    total = max(1, spark.context().defaultParallelism)
                    probe.job = replace(probe.job, slots=max(1, total // len(jobs)))  # the same run
                probe.spark = spark
                runs.append(probe)
            try:
                self._loop(spark, runs, until_caught_up, duration)
            finally:
                for run in runs:
                    run.ask_to_stop()
                for run in runs:
                    run.stop()
                self._last_look(runs)
        return self._outcome(runs)

    def _for_each(self, runs: list[LinkRun], step: Callable[[LinkRun], None]) -> None:
        """A step of the start. A site that is away must not keep links between other sites from running."""
        away: list[IsthmusError] = []
        for run in runs:
            if run.away is None:
                try:
                    step(run)
                except IsthmusError as error:
                    if not run.set_aside(error):
                        raise
            if run.away is not None:
                away.append(run.away)
        if len(away) == len(runs):
            raise away[0]

    def _ended(self, runs: list[LinkRun], until_caught_up: bool) -> bool:
        """Whether a link's failure ends the run: always if the caller waits for all links, or if none is left."""
        for run in runs:
            if run.failed is None or run.left:
                continue
            if until_caught_up:
                return True
            if not run.set_aside(run.failed):
                if run.alone or not isinstance(run.failed, TakenOver):
                    return True
                run.leave(run.failed)
        return all(run.left for run in runs)

    def _loop(self, spark: Spark, runs: list[LinkRun], until_caught_up: bool, duration: float | None) -> None:
        deadline = None if duration is None else time.monotonic() + duration
        shown = 0.0
        while not self._stopping:
            spark.check()
            for run in runs:
                run.tick()
            if self._ended(runs, until_caught_up):
                return
            if until_caught_up:
                for run in runs:
                    run.check_reachable()
                if all(run.caught_up() for run in runs):
                    return
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                self.late = [run.job.link.name for run in runs if until_caught_up and not run.caught_up()]
                return
            if now - shown >= 0.5:
                shown = now
                self._show(self.states)
            time.sleep(TICK_SECONDS)

    def _last_look(self, runs: list[LinkRun]) -> None:
        for run in runs:
            if run.failed is None:
                with contextlib.suppress(IsthmusError):
                    run.last = run.observer.look()
                    run.last.state = "stopped"
        self._show(self.states)

    def _outcome(self, runs: list[LinkRun]) -> list[LinkState]:
        for run in runs:
            error = run.outcome()
            if error is not None:
                raise error
        if self._stopping:
            raise Interrupted(
                "stopped; everything committed is at the destination, and the next run goes on from there"
            )
        return self.states
