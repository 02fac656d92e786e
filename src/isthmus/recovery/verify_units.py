"""The work, cut into units: a range of source offsets and the range of destination offsets that belongs to it.

A partition pair is a way through a plane: source offsets to the right, destination offsets upwards. Runs of the map climb; between
runs the way first goes right (source offsets that were not copied), then up (destination offsets that are no copies). It is cut
every so many steps, wherever that is, so a unit has an upper size whatever the partition is like.

    destination │            ┌──╱ the end that was read before the map
                │       ╱────┘
                │      ╱  a run
                │ ┌────
                └─┴────────────── source, up to the watermark

Invariant: units of a pair follow each other without a gap and without overlap on both sides, and each run, or part of a run, is in the
unit that holds both its source and its destination offsets. All of it is plain data without secrets: it travels in Spark's
data sets.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import cramjam
import numpy as np
import numpy.typing as npt

from isthmus.kafka.offsets import Partition

Longs = npt.NDArray[np.int64]

#: Offsets of one side in a unit (twice as many where the other side has none): a task needs some fifty bytes for each.
LARGEST, SMALLEST = 500_000, 50_000
#: Tasks for each core, at most: enough that none waits long for the last one. A task has so many steps at least, or connecting to both sites
#: would be most of what it does.
TASKS_PER_CORE, TASK_STEPS = 8, 4_000_000


def no_spans() -> Longs:
    """No intervals."""
    return np.empty((0, 2), np.int64)


def no_runs() -> Longs:
    """No runs."""
    return np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True)
class Pair:
    """A source partition and its copy, and all that is known of both before a record is read."""

    topic: str
    partition: int
    target_topic: str
    first: int
    """The first source offset to compare."""
    target_first: int
    watermark: int
    """The link's progress: everything before it must be there."""
    explained: int
    """Destination offsets before it are copies if the maps say so, and otherwise are not."""
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    expected_from: int = 0
    """Where the link began: earlier records are not expected."""
    runs: Longs = field(default_factory=no_runs)
    """The map, all of it."""
    others: Longs = field(default_factory=no_spans)
    """Destination offsets that another link, or an earlier incarnation of the source, explains."""
    seeded: Longs = field(default_factory=no_spans)
    """Source offsets that both sides got another way than by the link."""
    stranded: Longs = field(default_factory=no_spans)
    """Source offsets that were set aside."""
    source_compacted: bool = False
    target_compacted: bool = False
    local: Longs = field(default_factory=no_spans)
    """Destination offsets among which applications write, too."""
    returned: Longs = field(default_factory=no_spans)
    """Source offsets that came home from the destination: the way home judges them."""
    brought: Longs = field(default_factory=no_spans)
    """Destination offsets that were brought home."""
    home: bool = False
    """Whether this is the way home, which judges only what is its own."""

    @property
    def source(self) -> Partition:
        return (self.topic, self.partition)

    @property
    def target(self) -> Partition:
        return (self.target_topic, self.partition)


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a pair; ``pair`` is cut down to what the unit needs of it."""

    pair: Pair
    number: int
    """Which pair, in the order of the report."""
    first: int
    end: int
    target_first: int
    target_end: int
    runs: Longs
    """Of this unit: what is to be compared."""
    ahead: Longs
    """Destination offsets of copies from behind the watermark."""
    copied: bytes
    """Source offsets that the map knows at all, as packed intervals."""

    @property
    def seeded(self) -> bool:
        return bool(len(self.pair.seeded))

    @property
    def steps(self) -> int:
        return self.end - self.first + self.target_end - self.target_first


class Way:
    """The way of one pair, and the point on it after so many steps."""

    def __init__(self, pair: Pair) -> None:
        self.runs = clipped(pair.runs, pair.first, pair.watermark)
        runs = self.runs
        self.start = (
            min([pair.first, pair.watermark, *runs[:1, 0].tolist()]),
            min([pair.target_first, *runs[:1, 1].tolist()]),
        )
        last = int(runs[-1, 1] + runs[-1, 2]) if len(runs) else self.start[1]
        self.end = (max(pair.watermark, self.start[0]), max(last, pair.explained, self.start[1]))
        self._at = runs[:, 0] - self.start[0] + runs[:, 1] - self.start[1]
        self.steps = self.end[0] - self.start[0] + self.end[1] - self.start[1]

    def point(self, steps: int) -> tuple[int, int]:
        """Where one is after so many steps: a source offset and a destination offset."""
        runs = self.runs
        at = int(np.searchsorted(self._at, steps, side="right")) - 1
        source, target, done = *self.start, 0
        if at >= 0:
            source, target, length = runs[at].tolist()
            done = int(self._at[at])
            if steps < done + 2 * length:
                inside = (steps - done) // 2
                return source + inside, target + inside
            source, target, done = source + length, target + length, done + 2 * length
        next_source = int(runs[at + 1, 0]) if at + 1 < len(runs) else self.end[0]
        right = min(steps - done, next_source - source)
        return source + right, target + steps - done - right

    def steps_to(self, source: int) -> int:
        """How many steps lead to a source offset."""
        low, high = 0, self.steps
        while low < high:
            middle = (low + high) // 2
            if self.point(middle)[0] < source:
                low = middle + 1
            else:
                high = middle
        return low


def clipped(runs: Longs, first: int, end: int) -> Longs:
    """The parts of runs whose source offsets lie in a range."""
    if first >= end:
        return no_runs()
    low, high = bisect_right(runs[:, 0], first) - 1, bisect_left(runs[:, 0], end)
    if low < 0 or runs[low, 0] + runs[low, 2] <= first:
        low += 1
    kept = runs[low:high].copy()
    if len(kept):
        cut = max(0, first - int(kept[0, 0]))
        kept[0] += (cut, cut, -cut)
        kept[-1, 2] = min(kept[-1, 2], end - kept[-1, 0])
    return kept


def overlapping(spans: Longs, first: int, end: int) -> Longs:
    """The intervals that reach into a range; they ascend and do not overlap."""
    return spans[bisect_right(spans[:, 1], first) : bisect_left(spans[:, 0], end)]


def merged(spans: Longs) -> Longs:
    """Intervals, ascending, none touching another."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if len(spans) < 2:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    heads = np.flatnonzero(np.concatenate(([True], spans[1:, 0] > ends[:-1])))
    return np.stack([spans[heads, 0], ends[np.concatenate((heads[1:], [len(spans)])) - 1]], axis=1)


def spans_of(runs: Longs, column: int) -> Longs:
    """The intervals that runs cover on one side: 0 is the source, 1 the destination."""
    return merged(np.stack([runs[:, column], runs[:, column] + runs[:, 2]], axis=1))


def pack(spans: Longs) -> bytes:
    """Intervals, small: those of a compacted partition are many, and every unit carries them."""
    return bytes(cramjam.zstd.compress(np.diff(spans.ravel(), prepend=0).tobytes(), level=1))


def unpack(packed: bytes) -> Longs:
    """What was packed."""
    differences = np.frombuffer(bytes(cramjam.zstd.decompress(packed)), np.int64)
    return np.cumsum(differences, dtype=np.int64).reshape(-1, 2)


def cut(pair: Pair, number: int, size: int) -> list[Unit]:
    """The units of a pair, in order, each of at most ``size`` offsets on a side; those with nothing to read are left out."""
    way = Way(pair)
    parts = max(1, -(-way.steps // (2 * size)))
    marks = [way.steps * part // parts for part in range(parts)] if way.steps else []
    marks += [way.steps_to(edge) for edge in pair.seeded.ravel().tolist() if way.start[0] < edge < way.end[0]]
    points = [way.point(mark) for mark in sorted(set(marks))] + [way.end]
    copied = pack(spans_of(pair.runs, 0))
    ahead = spans_of(clipped(pair.runs, pair.watermark, 2**63 - 1), 1)
    units = []
    for (first, target_first), (end, target_end) in pairwise(points):
        if end <= pair.source_start and target_end <= pair.target_start:
            continue
        light = replace(
            pair,
            runs=no_runs(),
            others=overlapping(pair.others, target_first, target_end),
            seeded=overlapping(pair.seeded, first, end),
            stranded=overlapping(pair.stranded, first, end),
            local=overlapping(pair.local, target_first, target_end),
            returned=overlapping(pair.returned, first, end),
            brought=overlapping(pair.brought, target_first, target_end),
        )
        runs = clipped(way.runs, first, end)
        here = overlapping(ahead, target_first, target_end)
        units.append(Unit(light, number, first, end, target_first, target_end, runs, here, copied))
    return units


def cut_all(pairs: Sequence[Pair], cores: int, sample: float = 1.0, seed: int | None = None) -> list[Unit]:
    """The units of all pairs; with ``sample``, that part of them, evenly spread from a random start on."""
    steps = sum(Way(pair).steps for pair in pairs)
    size = int(min(LARGEST, max(SMALLEST, steps // 2 // max(1, cores * 2))))
    if sample < 1:
        size = max(SMALLEST // 10, size // 10)  # finer, so that a small part is spread as well
    units = [unit for number, pair in enumerate(pairs) for unit in cut(pair, number, size)]
    if sample >= 1 or not units:
        return units
    at = random.Random(seed).random() / sample
    chosen = []
    while at < len(units):
        chosen.append(units[int(at)])
        at += 1 / sample
    return chosen or [random.Random(seed).choice(units)]


def shares(units: Sequence[Unit], cores: int) -> list[list[Unit]]:
    """Units for each task: neighbours together, about the same number of steps each, the same number of tasks for each core."""
    total = sum(unit.steps for unit in units)
    tasks = cores * min(TASKS_PER_CORE, max(1, total // TASK_STEPS // cores))
    found: list[list[Unit]] = []
    done = 0
    for unit in units:
        if not found or done * tasks >= total * len(found):
            found.append([])
        found[-1].append(unit)
        done += max(1, unit.steps)
    return found
