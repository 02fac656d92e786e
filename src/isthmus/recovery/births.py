"""Logs read by birth, and what that tells of a link that goes on behind a re-seed. See docs/design.md, third sites of a re-seed.

Invariants:
- of each origin both logs hold a beginning of the births (less what retention took), so what the destination has is all before one number. What speaks against it
  makes the partition unknown (``NotKnown``), and nothing is decided;
- a decision copies every record that the link carries and the destination has not got, once, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from isthmus.config.part import OWN
from isthmus.engine.offset_map import PartitionMap, Runs
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.fetch import Fetched
from isthmus.kafka.offsets import Partition, log_ranges
from isthmus.kafka.read import read_ranges
from isthmus.records import read as batches
from isthmus.records.model import Longs, read_only
from isthmus.rules.had import HERE, Marks

# Of a record whose birth cannot be told, and of one that carries the name of the site where it lies: no link copies that.
STRANGE, CAME_HOME = -2, -3
# Behind every number: of records that were born after all that anybody can have.
NEW = 1 << 62


class NotKnown(Exception):
    """Why it cannot be known what a site has of a partition."""


@dataclass(frozen=True, slots=True)
class Names:
    """How headers name sites: ``places`` in headers, and which site of ``sites`` each is."""

    marks: Marks
    sites: tuple[str, ...]
    places: tuple[str, ...]
    owner: Longs

    @classmethod
    def of(cls, marks: Marks, known: Mapping[str, Sequence[str]]) -> Names:
        """``known``: the sites, with all cluster ids that each ever had."""
        sites = tuple(known)
        pairs = [(p, at) for at, site in enumerate(sites) for p in ([site] if marks.style == "site" else known[site])]
        return cls(marks, sites, tuple(p for p, _ in pairs), np.array([at for _, at in pairs], np.int64))

    def places_of(self, site: str) -> list[str]:
        at = self.sites.index(site)
        return [place for place, owner in zip(self.places, self.owner.tolist(), strict=True) if owner == at]


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's log between two offsets: of each record its offset, the site of its birth and its number there, and its time."""

    start: int
    end: int
    offset: Longs
    who: Longs
    number: Longs
    time: Longs

    def __len__(self) -> int:
        return len(self.offset)

    def of(self, site: int) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = self.who == site
        return mine


async def read_log(cluster: Cluster, key: Partition, names: Names, end: int | None = None) -> Log:
    """All records before ``end``, or that are committed now."""
    found = (await log_ranges(cluster, [key])).get(key)
    if found is None:
        raise NotKnown(f"{cluster.site.name} does not tell where {key[0]}[{key[1]}] begins and ends")
    start, last = found
    end = last if end is None else end
    parts: list[tuple[Longs, Longs, Longs, Longs]] = []
    reader = batches.Reader(False)

    def take(piece: Fetched, position: int) -> None:
        data = read_only(np.frombuffer(piece.data, np.uint8))
        for group in reader.groups(batches.Fetched(*key, position, data, piece.aborted)):
            if group.fault is not None:
                raise NotKnown(group.fault.message)
            if (records := group.records) is not None and len(records):
                who, number = names.marks.births(records, names.places)
                parts.append((records.offset.copy(), who, number, records.timestamp.copy()))

    await read_ranges(cluster, {key: (start, end)}, take)
    offset, who, number, time = (np.concatenate([p[n] for p in parts] or [np.empty(0, np.int64)]) for n in range(4))
    kept = offset < end
    offset, who, number, time = offset[kept], who[kept], number[kept], time[kept]
    here = names.sites.index(cluster.site.name)
    away = who >= 0
    site = np.where(who == HERE, here, STRANGE)
    site[away] = names.owner[who[away]]
    site[away & (site == here)] = CAME_HOME
    return Log(start, end, offset, site, number, time)


@dataclass(frozen=True, slots=True)
class Decision:
    """How a link goes on: at ``position``, when a part has copied what is missing of ``apart``. ``before``: by origin, what is there.
    ``pairs``: which source offset stands at which place, of all that is there, in the order of the source."""

    position: int
    apart: tuple[int, int] | None
    before: dict[int, int]
    own: int
    """The same in offsets of the source, for what was born there."""
    pairs: Longs
    lacking: int | None = None
    """An origin of which the destination has more than the source: that must come to the source first."""


def decide(source: Log, there: Log, places: Longs, carried: Sequence[int], here: int, lost: int) -> Decision:
    """What a link whose source holds ``source`` has to copy where the destination holds ``there``, at ``places``.

    ``carried`` are the origins that it copies, ``here`` the one that is its source. What ``lost`` has lost never comes again.
    """
    if len(carried) > 1 and (source.who == STRANGE).any():
        raise NotKnown(f"where the record at offset {source.offset[source.who == STRANGE][0]} was born cannot be told")
    if (there.who == STRANGE).any():
        raise NotKnown("records at the destination do not tell where they were born, or with which offset")
    before: dict[int, int] = {}
    pairs = [np.empty((0, 2), np.int64)]
    needed, had = (np.zeros(len(source), np.bool_) for _ in range(2))
    lacking: int | None = None
    for origin in carried:
        mine, its = source.of(origin), there.of(origin)
        numbers, known = source.number[mine], there.number[its]
        for each in (numbers, known):
            if (np.diff(each) <= 0).any():
                raise NotKnown("births of one site stand twice, or not in their order")
        if not len(known) and there.start and len(numbers):
            raise NotKnown("retention has left no record of an origin there, and some may have been")
        before[origin] = int(known[-1]) + 1 if len(known) else 0
        first = before[origin] if len(known) else -NEW
        needed |= mine & (source.number >= first)
        had |= mine & (source.number < first)
        common, at, place = np.intersect1d(numbers, known, assume_unique=True, return_indices=True)
        if len(common) and (source.time[mine][at[-1]] != there.time[its][place[-1]]):
            raise NotKnown(f"the birth with offset {common[-1]} is not the same record on both sides")
        if not len(common) and len(known) and len(numbers) and numbers[0] < first:
            raise NotKnown("the sites' logs have no birth of an origin in common")
        pairs.append(np.stack([source.offset[mine][at], places[its][place]], axis=1))
        if origin != lost and len(known) and (not source.start or len(numbers)) and not (numbers >= first - 1).any():
            lacking = origin
    joined = np.concatenate(pairs)
    joined = joined[np.argsort(joined[:, 0], kind="stable")]
    own = source.offset[source.of(here) & needed]
    own_before = int(own[0]) if len(own) else source.end
    wanted, last = source.offset[needed], int(source.offset[had].max(initial=-1))
    if not len(wanted):
        return Decision(max(source.end, last + 1), None, before, own_before, joined, lacking)
    if wanted[0] > last:
        return Decision(int(wanted[0]), None, before, own_before, joined, lacking)
    return Decision(last + 1, (int(wanted[0]), last + 1), before, own_before, joined, lacking)


def had_by_place(decision: Decision, names: Names, here: int) -> dict[str, int]:
    """The same by the names that headers have."""
    found = {OWN: decision.own}
    for origin, number in decision.before.items():
        if origin != here:
            found |= dict.fromkeys(names.places_of(names.sites[origin]), number)
    return found


def rebuilt(log: Log, runs: Runs, end: int, survivor: Log, lost: int) -> Log:
    """The rebuilt site's log, in which its own old births have the numbers that the survivor still knows; its new ones are behind all."""
    number, mine = log.number.copy(), log.of(lost)
    number[mine & (log.offset >= end)] += NEW
    old = np.flatnonzero(mine & (log.offset < end))
    at, exact, _ = PartitionMap("", 0, runs=runs[:, [1, 0, 2]]).translate_many(log.offset[old])
    row = np.minimum(np.searchsorted(survivor.offset, at), max(0, len(survivor) - 1))
    fits = exact & (survivor.offset[row] == at) & (survivor.who[row] == lost) if len(survivor) else exact & False
    number[old] = np.where(fits, survivor.number[row] if len(survivor) else 0, -1)
    # What retention took at the survivor since is older than what it has left.
    older = np.arange(len(old)) < (int(np.flatnonzero(fits)[0]) if fits.any() else 0)
    number[old[older]] = log.offset[old[older]] - NEW
    if (strange := ~fits & ~older).any():
        raise NotKnown(f"where the record at offset {log.offset[old[strange]][0]} was born cannot be told")
    return replace(log, number=number)


def ascending(pairs: Longs) -> Runs:
    """The runs of those pairs of which no later one has a smaller place: a look-up in them gives, of each source offset, the smallest
    place of all records at or behind it."""
    if not len(pairs):
        return np.empty((0, 3), np.int64)
    pairs = np.unique(pairs, axis=0)
    pairs = pairs[pairs[:, 1] == np.minimum.accumulate(pairs[::-1, 1])[::-1]]
    heads = np.flatnonzero(np.concatenate(([True], (np.diff(pairs, axis=0) != 1).any(axis=1))))
    lengths = np.diff(np.concatenate((heads, [len(pairs)])))
    return np.column_stack((pairs[heads], lengths)).astype(np.int64)


def spread(runs: Runs) -> Longs:
    """Runs as pairs."""
    if not len(runs):
        return np.empty((0, 2), np.int64)
    within = np.arange(int(runs[:, 2].sum())) - np.repeat(np.cumsum(runs[:, 2]) - runs[:, 2], runs[:, 2])
    return np.stack([np.repeat(runs[:, side], runs[:, 2]) + within for side in (0, 1)], axis=1)
