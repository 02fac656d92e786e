"""What a disaster at a link's source has cost: by partition, in records and seconds.

Invariants:
- what the source acknowledged before ``known_until`` (of a partition in ``unknown``: before its ``since``) is at the destination, or counted here. What it
  acknowledged later nobody here can know, and the loss says so. "At most" is said only where all of it answered when it was fenced already;
- a source that answers is counted, by the link's own rules, as far as that takes no time to speak of; otherwise offsets are compared, which also
  count markers and what would not be copied: then the number is a bound of what was seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.control.topics import discover
from isthmus.errors import IsthmusError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import LATEST, Partition, list_offsets
from isthmus.kafka.peek import Glimpse, peek
from isthmus.recovery.seeded import map_of
from isthmus.recovery.standing import Known, Standing, standing
from isthmus.recovery.stranded import Ranges, count
from isthmus.rules import Identities

# In an emergency nobody waits for a large number to become exact: about a second of reading.
MOST_COUNTED = 1_000_000
ASK_SECONDS = 5.0
COUNT_SECONDS = 10.0
# The journal keeps the outcome in one record; the oldest are named, and how many more there are.
NAMED_UNKNOWN = 500
# How many partitions are shown to people.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one partition: copied up to ``position``, seen to reach ``end``, at ``most`` so many records between them. Times are those of records, in
    milliseconds: of the last one that was copied, and of the first one that was not, where they are known. ``counted``: by records, not by offsets."""

    topic: str
    partition: int
    position: int
    end: int
    most: int
    copied_until: int | None = None
    lost_from: int | None = None
    counted: bool = False

    @property
    def since(self) -> int | None:
        return self.lost_from if self.lost_from is not None else self.copied_until

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class _Asked:
    """What a source that still answers has told: ends of partitions by requests sent at ``at`` or later, and all topics."""

    at: float
    ends: dict[Partition, int]
    anew: set[Partition]
    silent: dict[Partition, str]
    """Which partitions did not answer, and why."""
    topics: set[str]


async def declare(
    target: Cluster,
    link: Link,
    source: Cluster | None,
    identities: Identities | None = None,
    until: float | None = None,
    fence: str = "none",
) -> dict[str, Any]:
    """What never arrived, as far as it can be known.

    A source that still answers is asked; otherwise what tasks saw last counts. ``until`` is when it was given up, ``fence`` how writers
    were kept away from it before this.
    """
    now = await standing(target, link)
    known = now.known()
    asked = await _ask(source, link, now) if source is not None else None
    if asked is not None:
        _update(known, asked)
    lost = _behind(now, known)
    if asked is not None and source is not None and identities is not None:
        here = [loss for loss in lost if (loss.topic, loss.partition) in asked.ends]
        if sum(loss.most for loss in here) <= MOST_COUNTED:
            there = [loss for loss in lost if (loss.topic, loss.partition) not in asked.ends]
            lost = sorted(
                [*await _counted(source, link, here, identities), *there], key=lambda each: (each.topic, each.partition)
            )
    lost = await _copied_until(target, link, now, lost)
    oldest = min((loss.since for loss in lost if loss.since is not None), default=None)
    all_answered = asked is not None and not asked.silent
    # A fence by ACLs is around the topics that the link has copied; others may still be written to.
    fenced = asked is not None and (
        fence == "hook" or (fence == "acls" and asked.topics <= {topic for topic, _ in now.progress})
    )
    unknown = _unknown(now, known, asked)
    return {
        "link": link.name,
        "partitions": [loss.to_json() for loss in lost],
        "records": sum(loss.most for loss in lost) + known.rest,
        "counted": all(loss.counted for loss in lost) and not known.rest,
        # Partitions that the last reports had no room to name; what they held beyond the copies then is in ``records``.
        "left_out": {"partitions": known.left_out, "records": known.rest},
        # Everything that the source acknowledged before is at the destination or in ``records``, but for the partitions in ``unknown``.
        "known_until": known.until or None,
        "unknown": unknown[:NAMED_UNKNOWN],
        "unknown_more": len(unknown[NAMED_UNKNOWN:]) + known.idle_more,
        "unknown_more_since": min(
            [each["since"] or 0.0 for each in unknown[NAMED_UNKNOWN:]] + [known.idle_since] * bool(known.idle_more),
            default=None,
        ),
        # Topics and partitions that were made later, nobody has heard of.
        "topics_known_until": known.discovered or None,
        "at_most": all_answered and fenced,
        "heard": (asked.at if asked is not None and asked.ends else now.heard) or None,
        "behind_seconds": round(max(0.0, known.until - oldest / 1000), 3)
        if oldest is not None and known.until
        else 0.0,
        "unknown_since_seconds": 0.0
        if all_answered and fenced
        else max(0.0, (until or time.time()) - known.until)
        if known.until
        else None,
        "source_answers": all_answered,
    }


async def _ask(source: Cluster, link: Link, now: Standing) -> _Asked | None:
    """Where all logs of a source end that still answers; None if it does not, or is another cluster than the one that was copied."""
    if source.cluster_id and now.claim.source_cluster and source.cluster_id != now.claim.source_cluster:
        return None
    at = time.time()
    try:
        topics = await discover(source, link)
        wanted = {(name, p) for name, topic in topics.items() for p in topic.source.partitions} | now.progress.keys()
        # Behind an open transaction too: what others wrote there is acknowledged, and lost with the site.
        answers = await list_offsets(source, dict.fromkeys(wanted, LATEST), committed_only=False, timeout=ASK_SECONDS)
    except (kerrors.KafkaError, OSError, IsthmusError):
        return None
    silent = {
        key: "the site does not have it now"
        if key[0] not in topics
        else f"no answer: {end.__name__.removesuffix('Error')}"
        for key, end in answers.items()
        if not isinstance(end, int)
    }
    ends = {key: end for key, end in answers.items() if isinstance(end, int)}
    anew = {
        key
        for key, progress in now.progress.items()
        if key[0] in topics and topics[key[0]].source.id.int and topics[key[0]].source.id != progress.source_id
    }
    return _Asked(at, ends, anew, silent, set(topics))


def _update(known: Known, asked: _Asked) -> None:
    """What the source says now is newer than what anybody has reported."""
    for key in asked.silent:
        known.late[key] = known.since(key)
    for key in asked.ends:
        known.late.pop(key, None)
    known.ends = {key: end for key, end in known.ends.items() if key in asked.silent} | asked.ends
    known.anew = {key for key in known.anew if key in asked.silent} | asked.anew
    known.until = known.discovered = asked.at
    # All there is was asked by name.
    known.left_out = known.rest = known.idle_more = 0


def _behind(now: Standing, known: Known) -> list[Loss]:
    """The partitions whose source was seen to reach beyond what is here."""
    found = []
    for (topic, partition), end in sorted(known.ends.items()):
        progress = now.progress.get((topic, partition))
        position = progress.offset if progress is not None and (topic, partition) not in known.anew else 0
        if end > position:
            found.append(Loss(topic, partition, position, end, end - position))
    return found


def _unknown(now: Standing, known: Known, asked: _Asked | None) -> list[dict[str, Any]]:
    """The partitions of which less is known than of the others, since when, and why; the longest unknown first."""
    found = []
    for key, since in sorted(known.late.items(), key=lambda item: (item[1], item[0])):
        fault = now.reports.faults.get(key)
        if asked is not None and key in asked.silent:
            why = asked.silent[key]
        elif fault is not None:
            why = f"it stands still: {fault.error}"
        elif key not in now.progress:
            why = "no task copies it yet"
        else:
            why = "its leader did not answer"
        found.append({"topic": key[0], "partition": key[1], "since": since or None, "why": why})
    return found


def known_until(found: Mapping[str, Any], partition: Partition) -> float:
    """Until when what is declared of a link is all there was of a partition: what was acknowledged before is copied, or counted as seen."""
    for each in found["unknown"]:
        if (each["topic"], each["partition"]) == partition:
            return float(each["since"] or 0.0)
    if found["unknown_more"]:
        return float(min(found["known_until"] or 0.0, found["unknown_more_since"] or 0.0))
    return float(found["known_until"] or 0.0)


def seen_of(found: Mapping[str, Any], partition: Partition) -> int:
    """How many records of a partition are declared as seen and not copied, or may be."""
    mine = (each["most"] for each in found["partitions"] if (each["topic"], each["partition"]) == partition)
    return int(sum(mine) + found["left_out"]["records"])


def told(found: Mapping[str, Any], site: str, began: float) -> list[str]:
    """What is declared of a link, in sentences; ``began`` is when the command was given."""
    records = found["records"]
    words = f"Seen at {site} and not copied: {records}"
    if not found["counted"] and records:
        words += " by offsets, which also count markers of transactions and what rules leave out"
    if left := found["left_out"]["partitions"]:
        words += f"; {found['left_out']['records']} of them in {left} partitions that the last reports had no room to name, as they stood then"
    if found["at_most"]:
        return [f"{words}. No more is lost: {site} was fenced, and every partition answered after that."]
    lines = [f"{words}. {_since(found['known_until'], began, f'What {site} acknowledged')}."]
    for each in found["unknown"][:SHOWN]:
        what = f"What {each['topic']}[{each['partition']}] acknowledged"
        lines.append(f"{_since(each['since'], began, what)}: {each['why']}.")
    more = len(found["unknown"][SHOWN:]) + found["unknown_more"]
    if more:
        times = [each["since"] for each in found["unknown"][SHOWN:]]
        times += [found["unknown_more_since"]] if found["unknown_more"] else []
        what = f"What {more} more partitions acknowledged"
        lines.append(f"{_since(min(time or 0.0 for time in times), began, what)}.")
    if found["topics_known_until"] != found["known_until"]:
        lines.append(
            f"{_since(found['topics_known_until'], began, f'What topics and partitions hold that were made at {site}')}."
        )
    return lines


def clock(at: float) -> str:
    """A time of day, never later than it was."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{math.floor(at % 1 * 100):02d}"


def _since(at: float | None, began: float, what: str) -> str:
    if not at:
        return f"{what} is not known: no report tells when it was last asked for"
    apart = (
        f"{_length(began - at)} before this command"
        if began >= at
        else f"{_length(at - began)} after this command began"
    )
    return f"{what} after {clock(at)} ({apart}) is not known"


def _length(seconds: float) -> str:
    """Never less than it was."""
    if seconds < 60:
        return f"{math.ceil(seconds * 100) / 100:.2f} s"
    return f"{math.ceil(seconds / 60)} min" if seconds < 7200 else f"{math.ceil(seconds / 3600)} h"


async def _counted(source: Cluster, link: Link, lost: list[Loss], identities: Identities) -> list[Loss]:
    """The same, counted as the link would copy them; what can't be counted now stays a bound."""
    try:
        keys = {(loss.topic, loss.partition): loss for loss in lost}
        stable = await list_offsets(source, dict.fromkeys(keys, LATEST), timeout=ASK_SECONDS)
        ranges: Ranges = {}
        for key, loss in keys.items():
            end = stable[key]
            if isinstance(end, int):
                ranges[key] = (loss.position, max(loss.position, end))
        found = await count(source, link, ranges, identities, COUNT_SECONDS)
        seen = await peek(source, {key: each.first for key, each in found.items() if each.first >= 0}, ASK_SECONDS)
    except (kerrors.KafkaError, OSError, IsthmusError):
        return lost
    counted = []
    for key, loss in keys.items():
        if key not in found:
            counted.append(loss)
            continue
        # What stands behind an open transaction nobody can read yet: it counts by its offsets.
        most = found[key].records + loss.end - ranges[key][1]
        if most:
            exact = loss.end == ranges[key][1]
            counted.append(replace(loss, most=most, lost_from=_time_at(seen.get(key), found[key].first), counted=exact))
    return counted


async def _copied_until(target: Cluster, link: Link, now: Standing, lost: list[Loss]) -> list[Loss]:
    """The same, with the time of the last record that was copied: by the map, since others may have written behind it."""
    keys = ((loss.topic, loss.partition) for loss in lost)
    ids = {key: now.progress[key].source_id for key in keys if key in now.progress}
    maps = await map_of(target, link, ids) if ids else {}
    at: dict[Partition, int] = {}
    for key in ids.keys() & maps.keys():
        if len(runs := maps[key].runs):
            at[now.targets[key], key[1]] = int(runs[-1, 1] + runs[-1, 2]) - 1
    seen = await peek(target, at, ASK_SECONDS) if at else {}
    found = []
    for loss in lost:
        if (loss.topic, loss.partition) not in now.targets:
            found.append(loss)
            continue
        place = (now.targets[loss.topic, loss.partition], loss.partition)
        found.append(replace(loss, copied_until=_time_at(seen.get(place), at.get(place, 0))))
    return found


def _time_at(glimpse: Glimpse | type[Exception] | None, offset: int) -> int | None:
    if not isinstance(glimpse, Glimpse):
        return None
    return next((record.timestamp for record in glimpse.records if record.offset >= offset), None)
