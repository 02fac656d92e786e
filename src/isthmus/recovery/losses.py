"""What a disaster at a link's source has cost: by partition, in records and seconds.

Invariants:
- what was written at the source after it was last heard, nobody here can know, and the loss says so;
- a source that answers is counted, by the link's own rules, as far as that takes no time to speak of; otherwise offsets are compared, which also
  count markers and what would not be copied: then the number is a bound.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link
from isthmus.errors import IsthmusError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import LATEST, Partition, list_offsets
from isthmus.kafka.peek import Glimpse, peek
from isthmus.recovery.seeded import map_of
from isthmus.recovery.standing import Standing, standing
from isthmus.recovery.stranded import Ranges, count
from isthmus.rules import Identities

# In an emergency nobody waits for a large number to become exact: about a second of reading.
MOST_COUNTED = 1_000_000
ASK_SECONDS = 5.0
COUNT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one partition: copied up to ``position``, seen to reach ``end``, at ``most`` so many records lost. Times are those of records, in
    milliseconds: of the last one that was copied, and of the first one that was not, where they are known."""

    topic: str
    partition: int
    position: int
    end: int
    most: int
    copied_until: int | None = None
    lost_from: int | None = None

    @property
    def since(self) -> int | None:
        return self.lost_from if self.lost_from is not None else self.copied_until

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def declare(
    target: Cluster,
    link: Link,
    source: Cluster | None,
    identities: Identities | None = None,
    until: float | None = None,
) -> dict[str, Any]:
    """What never arrived, as far as it can be known.

    A source that still answers is asked; otherwise what tasks saw last counts. ``until`` is when it was given up: what nobody
    knows is what was written there between the two.
    """
    now = await standing(target, link)
    seen, asked = now.seen_ends(), False
    if source is not None:
        try:
            # Behind an open transaction too: what others wrote there is acknowledged, and lost with the site.
            wanted = dict.fromkeys(now.progress, LATEST)
            answers = await list_offsets(source, wanted, committed_only=False, timeout=ASK_SECONDS)
            seen = {key: end for key, end in answers.items() if isinstance(end, int)}
            asked = len(seen) == len(now.progress)
        except (kerrors.KafkaError, OSError):
            pass
    lost = _behind(now, seen)
    if asked and source is not None and identities is not None and sum(loss.most for loss in lost) <= MOST_COUNTED:
        lost = await _counted(source, link, lost, identities)
    lost = await _copied_until(target, link, now, lost)
    heard = time.time() if asked else now.heard
    oldest = min((loss.since for loss in lost if loss.since is not None), default=None)
    return {
        "link": link.name,
        "partitions": [loss.to_json() for loss in lost],
        "records_at_most": sum(loss.most for loss in lost),
        # Until when everything had arrived; what was written later and was not heard of is not in the list.
        "heard": heard or None,
        "behind_seconds": round(max(0.0, heard - oldest / 1000), 3) if oldest is not None and heard else 0.0,
        "unknown_since_seconds": 0.0
        if asked
        else round(max(0.0, (until or time.time()) - heard), 3)
        if heard
        else None,
        "source_answers": asked,
    }


def _behind(now: Standing, ends: Mapping[Partition, int]) -> list[Loss]:
    """The partitions whose source was seen to reach beyond what is here."""
    return [
        Loss(topic, partition, progress.offset, ends[topic, partition], ends[topic, partition] - progress.offset)
        for (topic, partition), progress in sorted(now.progress.items())
        if ends.get((topic, partition), -1) > progress.offset
    ]


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
            counted.append(replace(loss, most=most, lost_from=_time_at(seen.get(key), found[key].first)))
    return counted


async def _copied_until(target: Cluster, link: Link, now: Standing, lost: list[Loss]) -> list[Loss]:
    """The same, with the time of the last record that was copied: by the map, since others may have written behind it."""
    ids = {key: now.progress[key].source_id for key in ((loss.topic, loss.partition) for loss in lost)}
    maps = await map_of(target, link, ids) if ids else {}
    at: dict[Partition, int] = {}
    for key in ids.keys() & maps.keys():
        if len(runs := maps[key].runs):
            at[now.targets[key], key[1]] = int(runs[-1, 1] + runs[-1, 2]) - 1
    seen = await peek(target, at, ASK_SECONDS) if at else {}
    found = []
    for loss in lost:
        place = (now.targets[loss.topic, loss.partition], loss.partition)
        found.append(replace(loss, copied_until=_time_at(seen.get(place), at.get(place, 0))))
    return found


def _time_at(glimpse: Glimpse | type[Exception] | None, offset: int) -> int | None:
    if not isinstance(glimpse, Glimpse):
        return None
    return next((record.timestamp for record in glimpse.records if record.offset >= offset), None)
