"""What the links of the other direction have brought here, and what there has not come here yet.

Asked of both sites, for two_way.py to answer from. *Here* is the source of the link whose groups are translated; a link of the
other direction (``other``) keeps its map and its progress here.

Invariants:
- the other link's progress is read before its map: so a whole map (map_records.py) has all that stands there before that
  progress. Where a map is not whole, what it may hide counts as not come here: groups read something again, and miss nothing;
- places there that neither link explains are looked at, until a record is found that has not come here. A place that could not
  be looked at counts as such a record: groups may then read something again, and never miss anything;
- a link that has never run is as good as none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Link
from isthmus.config.turned import BACK
from isthmus.control.ends import Ends
from isthmus.control.map_records import MapRecords
from isthmus.control.rights import right
from isthmus.control.translation import Target, maps_between
from isthmus.control.two_way import Ranges, TwoWay
from isthmus.engine import state
from isthmus.engine.lines import committed_of
from isthmus.engine.offset_map import PartitionMap
from isthmus.engine.state import Claim, Progress
from isthmus.errors import AuthorisationFailed, ConfigError
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.offsets import Committed, Partition
from isthmus.kafka.peek import Glimpse, peek

# Rounds of looking at unexplained places, all partitions at once. While the other link runs there are few of them: what this
# link wrote since. Each round covers one transaction of this link, or some dozens of small ones.
LOOKS = 300

Ids = tuple[uuid.UUID, uuid.UUID]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A partition that goes both ways; ``limit`` is the first record there that has not come here."""

    both: TwoWay
    limit: int


@dataclass(frozen=True, slots=True)
class Hidden:
    """A partition of which nothing can be told until a transaction in a map has ended; ``words`` say which."""

    words: str


@dataclass(slots=True)
class Brought:
    """How far an other link has come, by the partitions here that it writes."""

    link: Link
    progress: dict[Partition, Progress]

    def writes(self, link: Link, here: Partition, there: Partition) -> bool:
        """Whether this is the link that brings ``there`` to ``here``, or would if there were anything."""
        known = self.progress.get(here)
        if known is not None:
            return known.source_topic == there[0]
        return meets(link, self.link, here[0])


def meets(link: Link, other: Link, topic: str) -> bool:
    """Whether a topic of the link's source is what the other link makes of that topic's copy: one topic, two ways."""
    with suppress(ConfigError):  # a name that cannot be: nothing is copied to it
        there = link.destination_topic(topic)
        return other.topics.matches(there) and other.destination_topic(there) == topic
    return False


async def brought(ends: Ends) -> list[Brought]:
    """The links of the other direction that have ever run, and how far each has come."""
    found = []
    for other in ends.others:
        try:
            committed = await committed_of(ends.source, other, stable=False, complete=False)
        except kerrors.GroupAuthorizationFailedError:
            if other.name.endswith(BACK):
                continue  # nobody asked for it, and who may not see its state here cannot have run it: it is kept here
            raise _not_allowed(ends, other) from None
        if Claim.read(committed.get((state.map_topic(other.name), 0))) is not None:
            found.append(Brought(other, progress_of(committed)))
    return found


def progress_of(committed: Mapping[Partition, Committed]) -> dict[Partition, Progress]:
    """A link's progress, by the partitions that it writes."""
    read = {key: Progress.read(value) for key, value in committed.items()}
    return {key: progress for key, progress in read.items() if progress is not None}


@dataclass(slots=True)
class Opposite:
    """Of one link; keeps what it has read of the other links' maps, and which places it has looked at."""

    _maps: dict[str, MapRecords] = field(default_factory=dict)
    _clear: dict[tuple[uuid.UUID, Partition], int] = field(default_factory=dict)

    async def meetings(
        self,
        ends: Ends,
        others: Iterable[Brought],
        places: Mapping[Partition, Partition],
        ids: Mapping[Partition, Ids],
        out: Mapping[Partition, PartitionMap],
        bounds: Mapping[Partition, Target],
        own: MapRecords,
    ) -> dict[Partition, Meeting | Hidden | str]:
        """The partitions of ``places`` (here -> there) that another link brings here, or why that cannot be told.

        ``out`` is this link's map, read as ``own``, and ``bounds`` what was known of the logs there before that was read.
        """
        found: dict[Partition, TwoWay] = {}
        refused: dict[Partition, Meeting | Hidden | str] = {}
        for other in others:
            keys = [
                key
                for key, there in places.items()
                if key in bounds and key not in found and other.writes(ends.link, key, there)
            ]
            if not keys:
                continue
            records = self._maps.setdefault(other.link.name, MapRecords(other.link.name, own.patience))
            back = await self._map_of(ends, other.link, records, {places[k]: (ids[k][1], ids[k][0]) for k in keys})
            for key in keys:
                owned = other.progress.get(key)
                if owned is not None and (changed := changed_topic(owned, ids[key][1], ids[key][0])):
                    refused[key] = f"link {other.link.name}: {changed}"
                    continue
                there, home = out.get(key), back.get(places[key])
                come = max(owned.offset if owned else 0, home.next_offset if home else 0, bounds[key].start)
                if not own.whole:
                    # What this link has brought there since, and the other one has passed over, is in no map that we see.
                    if there is None or not len(there.runs):
                        refused[key] = Hidden(own.open_from)
                        continue
                    come = min(come, int(there.runs[-1, 1] + there.runs[-1, 2]))
                if not records.whole and owned is not None and (home is None or home.next_offset < owned.offset):
                    if home is None:
                        refused[key] = Hidden(records.open_from)
                        continue
                    come = min(come, home.next_offset)
                found[key] = TwoWay(there, home, come, bounds[key].end)
        limits = await self._strangers(ends.target, {places[key]: (ids[key][1], both) for key, both in found.items()})
        return refused | {key: Meeting(both, limits[places[key]]) for key, both in found.items()}

    async def _map_of(
        self, ends: Ends, other: Link, records: MapRecords, ids: Mapping[Partition, Ids]
    ) -> dict[Partition, PartitionMap]:
        try:
            return maps_between(await records.look(ends.source), ids)
        except kerrors.TopicAuthorizationFailedError:
            raise _not_allowed(ends, other) from None

    async def _strangers(
        self, there: Cluster, asked: Mapping[Partition, tuple[uuid.UUID, TwoWay]]
    ) -> dict[Partition, int]:
        """The first record of each partition that has not come here; where knowledge ends, if there is none."""
        limits: dict[Partition, int] = {}
        ranges: dict[Partition, Ranges] = {}
        at: dict[Partition, int] = {}
        for key, (topic_id, both) in asked.items():
            limits[key] = both.known
            ranges[key] = both.unexplained()
            place = next_place(ranges[key], self._clear.get((topic_id, key), 0))
            if place is not None:
                at[key] = place
        for _ in range(LOOKS):
            if not at:
                break
            for key, seen in (await peek(there, at)).items():
                stranger = first_within(ranges[key], at[key], seen) if isinstance(seen, Glimpse) else at[key]
                if stranger is not None:
                    limits[key] = stranger
                    del at[key]
                    continue
                assert isinstance(seen, Glimpse)
                self._clear[asked[key][0], key] = seen.end
                place = next_place(ranges[key], seen.end)
                if place is None:
                    del at[key]
                else:
                    at[key] = place
        return limits | at


def next_place(ranges: Ranges, place: int) -> int | None:
    """The first place at or after this one that lies in a range; None if there is none."""
    number = int(np.searchsorted(ranges[:, 1], place, side="right"))
    return max(place, int(ranges[number, 0])) if number < len(ranges) else None


def first_within(ranges: Ranges, asked: int, seen: Glimpse) -> int | None:
    """The first record at or after the place asked for that stands in a range. A log that shows nothing hides something."""
    if seen.end <= asked:
        return asked
    places = (record.offset for record in seen.records if record.offset >= asked)
    return next((place for place in places if next_place(ranges, place) == place), None)


def changed_topic(progress: Progress, source_id: uuid.UUID, target_id: uuid.UUID) -> str:
    """Why what a link knows of a partition is not about the topics that have its names now."""
    for side, then, now in (("source", progress.source_id, source_id), ("destination", progress.target_id, target_id)):
        if then.int and now.int and then != now:
            return (
                f"the {side} topic was deleted and created again since the link copied it; reset the link there first"
            )
    return ""


def _not_allowed(ends: Ends, other: Link) -> AuthorisationFailed:
    site = ends.source.site
    needs = [
        right(site, "DESCRIBE", "group", STATE_PREFIX, prefixed=True),
        right(site, "READ", "topic", STATE_PREFIX, prefixed=True),
    ]
    words = (
        f"site {site.name}: not authorised to read the state of link {other.name}, which brings records the other way"
    )
    return AuthorisationFailed(words, site.name, "\n".join(map(str, needs)))
