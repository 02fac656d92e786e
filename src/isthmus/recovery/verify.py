"""``verify``: both sides of a link, compared record by record, as a Spark job.

    survey ─► units ─► Spark tasks read and judge ─► report ─► a look at the first offenders

Invariant: it only reads. Nothing is trusted but the two logs and the map; and it is right while records are being written and copied,
since only what lies before a watermark is judged (``verify_survey``).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Config, Link
from isthmus.config.topics import Topics
from isthmus.control.ends import Ends
from isthmus.control.memory import recall
from isthmus.control.topics import discover
from isthmus.engine.session import Spark, cores
from isthmus.engine.tasks import EngineError, error_from
from isthmus.errors import IsthmusError, UnknownLink, UsageError
from isthmus.recovery.standing import SERVED
from isthmus.recovery.verify_home import home_link, to_compare
from isthmus.recovery.verify_look import look
from isthmus.recovery.verify_read import Comparison, Errand, Outcome
from isthmus.recovery.verify_report import Report, add_up
from isthmus.recovery.verify_survey import Survey, survey
from isthmus.recovery.verify_units import Unit, cut_all, shares

#: Told how many units are done, and of how many.
Progress = Callable[[int, int], None]
#: Carries out an errand; the outcomes come in no order.
Workers = Callable[[Errand, list[Unit], Progress], list[Outcome]]

POLL_SECONDS = 0.2


def no_progress(done: int, total: int) -> None:
    """Nobody watches."""


def verify(
    config: Config,
    link: str,
    *,
    since: datetime | None = None,
    sample: float = 1.0,
    topics: Sequence[str] | None = None,
    spark: Spark | None = None,
    progress: Progress = no_progress,
    workers: Workers | None = None,
) -> Report:
    """Compare both sides of a link.

    ``topics`` are names or expressions between slashes, of source topics. ``spark`` is a Spark that runs already; without it, one is
    started and stopped. ``workers`` replaces Spark altogether (``in_this_process``).
    """
    if not 0 < sample <= 1:
        raise UsageError(f"sample {sample}: expected a part between 0 and 1, such as 0.1")
    chosen = config.link(link)
    began = time.monotonic()
    report = Report(
        link,
        chosen.source,
        chosen.target,
        datetime.now(UTC).isoformat(timespec="seconds"),
        since=since.isoformat() if since is not None else None,
        sample=sample,
        repeats_allowed=chosen.delivery != "exactly-once",
    )
    with Ends(chosen, config.sites[chosen.source], config.sites[chosen.target]) as ends:
        moment = None if since is None else int(since.timestamp() * 1000)
        names = _on(ends, _chosen, ends, chosen, topics)
        back = home_link(config, chosen)
        home = _on(ends, _home, ends, config, chosen, back, names, moment) if back is not None else None
        found = _on(ends, survey, ends.source, ends.target, config, chosen, names, moment, home)
        report.notes, report.faults = found.notes, [fault.to_json() for fault in found.faults]
        report.waiting = found.waiting + sum(max(0, pair.source_end - pair.watermark) for pair in found.pairs)
        errand = Errand(chosen, ends.source.site, ends.target.site, found.identities, found.schema_ids)
        ways = [(found.pairs, errand, (ends.source, ends.target))]
        if home is not None:
            pairs, back = to_compare(home, found, chosen)
            report.notes += [f"the way home: {fault.message}" for fault in home.faults]
            errand = Errand(back, ends.target.site, ends.source.site, home.identities, home.schema_ids)
            ways.append((pairs, errand, (ends.target, ends.source)))
        works = [(*way, cut_all(way[0], cores(), sample)) for way in ways]
        report.units = sum(len(units) for *_, units in works)
        with _workers(config, link, spark, workers, report.units) as run:
            done = 0
            for pairs, errand, clusters, units in works:
                outcomes = run(errand, units, _behind(progress, done, report.units)) if units else []
                first = add_up(report, pairs, outcomes)
                report.offenders += _on(ends, look, *clusters, errand, first)
                done += len(units)
    report.seconds = time.monotonic() - began
    return report


@contextmanager
def _workers(config: Config, link: str, spark: Spark | None, workers: Workers | None, units: int) -> Iterator[Workers]:
    """Those that were given; else one Spark for all ways, started only if there is something to do."""
    if workers is not None or not units:
        yield workers or in_this_process
        return
    running = spark or Spark(config.spark_options(link), cores())
    try:
        yield partial(on_spark, running)
    finally:
        if spark is None:
            running.stop()


def _behind(progress: Progress, done: int, total: int) -> Progress:
    """Told as a part of all units, behind those that are done."""
    return lambda some, _: progress(done + some, total)


def _on(ends: Ends, work: Callable[..., Any], *arguments: Any) -> Any:
    """Do something with both sites; what goes wrong names the one where it did."""
    from isthmus.control.resources import explained

    try:
        return ends.loop.run(work, *arguments)
    except (kerrors.KafkaError, OSError) as error:
        raise ends.loop.run(explained, error, ends, "comparing") from error


async def _chosen(ends: Ends, link: Link, wanted: Sequence[str] | None) -> list[str] | None:
    """The source topics that were asked for; None for all."""
    if wanted is None:
        return None
    try:
        filter_ = Topics(include=list(wanted))
    except ValueError as error:
        raise UsageError(f"--topics: {error}") from None
    known = await discover(ends.source, link)
    names = [name for name in known if filter_.matches(name)]
    if not names:
        raise UsageError(f"link {link.name} copies no topic that is {' or '.join(wanted)}")
    return names


async def _home(
    ends: Ends, config: Config, link: Link, back: Link, names: list[str] | None, moment: int | None
) -> Survey | None:
    """The way home as a failback has left it; None if work never came home along it. It takes rights at the source that a link does not need
    before its destination has served."""
    if SERVED not in await recall(ends.target, link.name):
        return None
    known = config.model_copy(update={"links": {**config.links, back.name: back}})
    try:
        if names is not None:
            topics = await discover(ends.target, back)
            names = [name for name, topic in topics.items() if topic.target in names]
        return await survey(ends.target, ends.source, known, back, names, moment)
    except UnknownLink:
        return None


# -- who does the work -------------------------------------------------------------------------------------


def in_this_process(errand: Errand, units: list[Unit], progress: Progress) -> list[Outcome]:
    """Without Spark: for little data, where Spark would cost more than it brings."""
    outcomes = Comparison(errand).run(units)
    progress(len(units), len(units))
    return outcomes


def _task(errand: Errand, done: Any, units: Iterable[list[Unit]]) -> Iterator[Outcome]:
    if threading.current_thread() is threading.main_thread():
        # A terminal's Ctrl-C reaches this process too, but only the driver decides how a comparison ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        comparison = Comparison(errand)
        for some in units:
            yield from comparison.run(some)
            done.add(len(some))
    except IsthmusError as error:
        raise EngineError(error) from error


def on_spark(spark: Spark, errand: Errand, units: list[Unit], progress: Progress) -> list[Outcome]:
    """As a Spark job of some tasks for each core."""
    context = spark.context()
    parallel = max(1, int(context.defaultParallelism))
    hands = shares(units, parallel)
    done = context.accumulator(0)
    # Units are plain numbers and may pass through files. The errand holds secrets: it is in the closure, which does not.
    job = context.parallelize(hands, len(hands)).mapPartitions(partial(_task, errand, done))
    results: list[Outcome] = []
    failures: list[BaseException] = []

    def collect() -> None:
        try:
            results.extend(job.collect())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=collect, name="comparison", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_SECONDS)
        progress(min(int(done.value), len(units)), len(units))  # a task that was tried twice counts twice
        spark.check_running()
    if failures:
        raise error_from(str(failures[0])) or failures[0]
    return results
