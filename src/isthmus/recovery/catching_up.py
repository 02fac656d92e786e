"""Waiting until links have copied all that is there, and running them where nobody does.

Invariant: a link that somebody runs is only watched: starting it here would take it away from there. What counts as "all" is fixed
when the waiting begins, so it ends under traffic too; who wants it to be all for ever has fenced the source before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from isthmus.config import Config, Link
from isthmus.config.turned import RESEED
from isthmus.engine.snapshot import LinkState, Observer
from isthmus.errors import ConnectionFailed, DataError
from isthmus.kafka.offsets import Partition

Goal = dict[Partition, int]

LOOK_SECONDS = 0.3
# A run that was just started has not reported yet, and one between two leases may be quiet: so long before it counts as nobody's.
NOBODY_SECONDS = 12.0
# In the names of links that only recovery makes, and that nobody else can run; no name in a file has it.
OURS = "."


def catch_up(
    config: Config, links: Sequence[Link], note: Callable[[str], None], seconds: float
) -> list[dict[str, Any]]:
    """Return when each link has copied all that its source held at the beginning; how long that took and what was copied."""
    began = time.monotonic()
    deadline = began + seconds
    nobodys: list[tuple[Link, Goal]] = []
    results: list[dict[str, Any]] = []
    for link in links:
        with _observed(config, link) as observer:
            first = _first_look(observer, deadline)
            goal = {(p.topic, p.partition): p.end for p in first.partitions if p.end is not None}
            if first.rate_limit is not None and _left(first, goal):
                note(_limited(link, first.rate_limit))
            patience = 0.0 if OURS in link.name else NOBODY_SECONDS
            if not _watch(observer, first, goal, deadline, note, patience):
                nobodys.append((link, goal))
            results.append({"link": link.name, "behind_at_first": first.lag})
    if nobodys:
        names = [link.name for link, _ in nobodys]
        note(f"nobody runs {', '.join(names)}; running until caught up")
        from isthmus.engine.runner import Runner

        with_links = config.model_copy(update={"links": {**config.links, **{link.name: link for link, _ in nobodys}}})
        runner = Runner(
            with_links, names, lambda event: note(f"link {event.link}: {event.text}"), temporary=True
        )  # who ran one of them before, and only stood still, has it back then
        runner.run(until_caught_up=True, duration=max(1.0, deadline - time.monotonic()))
        for link, goal in nobodys:
            with _observed(config, link) as observer:
                now = observer.look()
                if left := _left(now, goal):
                    raise _late(now, left)
    for result in results:
        result["seconds"] = round(time.monotonic() - began, 3)
    return results


def _limited(link: Link, rate: int) -> str:
    """Why waiting may take long, and what shortens it; links that only recovery makes take the limit of the one that they stand for."""
    mend = f"`isthmus limit {link.name} off` lifts that"
    if link.name.endswith(OURS):
        mend = "that is rate_limit of its link in the configuration"
    return f"link {link.name} is limited to {rate / 1e6:g} MB/s, which this step waits for; {mend}"


@contextlib.contextmanager
def _observed(config: Config, link: Link) -> Iterator[Observer]:
    with Observer(link, config.sites[link.source], config.sites[link.target]) as observer:
        observer.connect()
        yield observer


def _first_look(observer: Observer, deadline: float) -> LinkState:
    """How the link stands, with all ends known: a partition that nobody leads now may hold anything."""
    first = observer.look()
    while first.topics and first.unknown and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        first = observer.look()
    if first.topics and first.unknown:
        raise _late(first, {})
    return first


def _left(now: LinkState, goal: Goal) -> dict[Partition, int]:
    """How far each partition is behind the goal; faulted ones say so themselves."""
    at = {(p.topic, p.partition): p.position for p in now.partitions}
    return {key: end - (at.get(key) or 0) for key, end in goal.items() if (at.get(key) or 0) < end}


def _late(now: LinkState, left: Mapping[Partition, int]) -> ConnectionFailed:
    words = "; ".join(now.trouble) or f"still {sum(left.values())} behind in {len(left)} partitions"
    return ConnectionFailed(f"link {now.link}: not caught up in time: {words}", now.source)


def _watch(
    observer: Observer, first: LinkState, goal: Goal, deadline: float, note: Callable[[str], None], patience: float
) -> bool:
    """Wait for somebody's run to catch up; False if nobody runs it."""
    seen_alive, told, now = time.monotonic(), 0.0, first
    while True:
        _refuse_faults(now)
        left = _left(now, goal)
        # Nothing to copy is no reason not to run a link that rebuilds: others go on behind the positions that it leaves.
        must_run = now.link.endswith(RESEED) and not now.lease and bool(first.topics)
        if not left and not must_run and (first.topics or not first.trouble):
            return True
        moment = time.monotonic()
        if now.state == "paused":
            raise DataError(f"link {now.link} is paused, and would never catch up. `isthmus resume {now.link}` first")
        if now.state == "running":
            seen_alive = moment
        elif moment - seen_alive > patience:
            return False
        if moment > deadline:
            raise _late(now, left)
        if moment - told > 5:
            told = moment
            note(f"link {now.link}: {sum(left.values())} behind")
        time.sleep(LOOK_SECONDS)
        now = observer.look()


def _refuse_faults(now: LinkState) -> None:
    if now.faults:
        first = now.faults[0]
        more = f" (and {len(now.faults) - 1} more)" if len(now.faults) > 1 else ""
        raise DataError(
            f"link {now.link}: {first.topic}[{first.partition}] stands still{more}: {first.message}. Mend that first, see `isthmus status {now.link}`"
        )
