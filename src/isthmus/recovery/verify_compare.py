"""One unit, judged: what stands at the source, after its rules, against what stands at the destination, by the map.

Invariant: pure, and every record that was read on either side is counted exactly once, in ``compared`` or in another class. A record that is
wrong in several ways counts in the first of: looped, out of order, altered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isthmus.recovery.verify_digest import Digested, Digests
from isthmus.recovery.verify_units import Longs, Unit, unpack

Rows = npt.NDArray[np.bool_]

DAMAGE = ("missing", "doubled", "out_of_order", "altered", "looped", "unexpected")
"""What should never be; see docs/design.md for each."""
EXPLAINED = ("expired", "compacted", "dropped", "before_start", "stranded", "others", "local", "returned")
"""Records of one side that have a reason to be alone."""
NOT_JUDGED = ("expired", "compacted", "before_start", "stranded", "local")
"""Of these, nobody can tell whether something is missing, altered or too many among them: there is no other side to compare. A report names where they
are, and never calls them right."""
HERE, THERE = "source", "destination"
"""The side of which offsets are."""
CLASSES = ("compared", *DAMAGE, *EXPLAINED)

#: So many of each class are named by each unit.
NAMED = 10


class Offender(NamedTuple):
    """One record that is wrong. Offsets are -1 where there is none; ``claims`` is the source offset that its header tells."""

    kind: str
    why: str
    source: int
    target: int
    claims: int = -1


WHY = {
    "not copied": "the map has no place for it, and rules want it",
    "not there": "nothing stands at the place that the map names",
    "beyond the end": "the destination's log ends before the place that the map names",
    "second copy": "a second copy of this source offset, which the map has elsewhere",
    "another record": "at this place stands another record of the same source partition",
    "differs": "what stands at its place is not what it should be",
    "came home": "it was born at the destination and has come back",
    "no link": "no link has copied it, and only links write here",
    "strange header": "it has a link's header, but the map does not know it",
    "strange origin": "it says that it was born at the source, but the map does not know it",
    "no source": "the map says it is a copy, but the source has no such record",
    "unwanted": "the link's rules leave this record out, and yet it was copied",
    "not seeded": "it stands in a range that was seeded, but the map does not know it",
}


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a link adds to records."""

    offset_header: bool
    """Whether copies carry their source offset."""
    origin: bool
    """Whether copies carry where they were born."""
    source_identities: tuple[int, ...] = ()
    target_identities: tuple[int, ...] = ()
    """Digests of all names that each site has, or had, in origin headers."""
    loop_rule: bool = False
    """Whether the link has a rule against loops: what that lets pass is no loop."""


@dataclass(slots=True)
class Judgement:
    """What became of a unit's records."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    offenders: list[Offender] = field(default_factory=list)
    not_judged: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """By class and side, of what is not judged: the first and the last offset, and how many records."""

    def leave(self, kind: str, side: str, offsets: Longs) -> None:
        """Count records that cannot be judged; their offsets ascend."""
        if len(offsets):
            self.add(kind, len(offsets))
            self.not_judged[kind, side] = together(
                self.not_judged.get((kind, side)), (int(offsets[0]), int(offsets[-1]), len(offsets))
            )

    def add(self, kind: str, count: int) -> None:
        self.counts[kind] += count


def together(one: tuple[int, int, int] | None, other: tuple[int, int, int]) -> tuple[int, int, int]:
    """Two ranges that are not judged, with what is in them, as one."""
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2])


def judge(unit: Unit, here: Digested, kept: Rows, there: Digested, link: Expectations) -> Judgement:
    """Compare. ``kept`` are the source records that the link's rules let pass."""
    return _Judge(unit, here, kept, there, link).judge()


def inside(spans: Longs, values: Longs) -> Rows:
    """Which values lie in one of the intervals."""
    if not len(spans):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(np.ascontiguousarray(spans[:, 0]), values, side="right") - 1
    held: Rows = (at >= 0) & (values < spans[np.maximum(at, 0), 1])
    return held


def _across(runs: Longs, offsets: Longs, side: int) -> tuple[Rows, Longs]:
    """Where offsets of one side stand on the other one, as far as runs say so."""
    if not len(runs):
        return np.zeros(len(offsets), np.bool_), np.full(len(offsets), -1, np.int64)
    starts = np.ascontiguousarray(runs[:, side])
    at = np.maximum(np.searchsorted(starts, offsets, side="right") - 1, 0)
    within = offsets - starts[at]
    known = (within >= 0) & (within < runs[at, 2])
    return known, np.where(known, runs[at, 1 - side] + within, -1)


def _find(offsets: Longs, wanted: Longs) -> tuple[Rows, Longs]:
    """Which wanted offsets are there, and in which row (0 where they are not)."""
    if not len(offsets):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
    found = offsets[at] == wanted
    return found, np.where(found, at, 0)


class _Judge:
    def __init__(self, unit: Unit, here: Digested, kept: Rows, there: Digested, link: Expectations) -> None:
        self.unit, self.here, self.kept, self.there, self.link = unit, here, kept, there, link
        self.result = Judgement()
        self.headers = link.offset_header and not unit.seeded
        self.born_there = np.zeros(len(there), np.bool_)
        if not unit.seeded and there.identity.any():
            self.born_there = np.isin(there.identity, np.array(link.target_identities, np.uint64))

    @cached_property
    def copied(self) -> Longs:
        """Source offsets that the map knows at all; needed only where something is wrong."""
        return unpack(self.unit.copied)

    def judge(self) -> Judgement:
        if self._all_the_same():
            self.result.add("compared", len(self.here))
            return self.result
        self.mapped, self.place = _across(self.unit.runs, self.here.offset, 0)
        self.found, self.row = _find(self.there.offset, self.place)
        self.found &= self.mapped
        if self.unit.seeded:
            self.kept = self.kept | self.mapped  # however it came there
        self._pairs()
        self._source_alone()
        copies, sources = _across(self.unit.runs, self.there.offset, 1)
        self._target_alone(copies, sources)
        self._outside(~copies)
        return self.result

    def _all_the_same(self) -> bool:
        """The usual case, seen at a glance: on both sides stands what the map says and nothing else, and it is the same."""
        here, there, runs = self.here, self.there, self.unit.runs
        if self.unit.seeded or len(here) != len(there) or self.born_there.any() or not self.kept.all():
            return False
        if int(runs[:, 2].sum()) != len(here):
            return False
        # Offset i of all runs, one after another, is i and a difference that is the same in a run.
        before = np.cumsum(runs[:, 2]) - runs[:, 2]
        number = np.arange(len(here))
        for side, offsets in ((0, here.offset), (1, there.offset)):
            if not np.array_equal(offsets, number + np.repeat(runs[:, side] - before, runs[:, 2])):
                return False
        return bool(
            np.array_equal(here.digest, there.digest)
            and (not self.headers or np.array_equal(there.header, here.offset))
            and self._origins(here.origin, there.origin, there.identity).all()
        )

    def _tell(
        self, kind: str, why: str, rows: Rows | Longs, name: Callable[[int], tuple[int, int, int]], count: int
    ) -> None:
        """Count rows, and name the first of them."""
        if not count:
            return
        self.result.add(kind, count)
        known = sum(o.kind == kind for o in self.result.offenders)
        for row in rows[: max(0, NAMED - known)].tolist():
            self.result.offenders.append(Offender(kind, why, *name(int(row))))

    # -- records that are on both sides --------------------------------------------------------------------

    def _pairs(self) -> None:
        here, there, link = self.here, self.there, self.link
        rows = np.flatnonzero(self.found & self.kept)
        at = self.row[rows]
        offsets, claims = here.offset[rows], there.header[at]
        same = here.digest[rows] == there.digest[at]
        if self.headers:
            same &= claims == offsets
        if not self.unit.seeded:
            same &= self._origins(here.origin[rows], there.origin[at], there.identity[at])
        looped = np.zeros(len(rows), np.bool_) if link.loop_rule else self.born_there[at]
        self.result.add("compared", int(np.count_nonzero(same & ~looped)))
        if not looped.any() and same.all():
            return
        swapped = ~same & ~looped
        swapped &= self._another(offsets, claims, there.digest[at], here.digest[rows], swapped)

        def name(number: int) -> tuple[int, int, int]:
            return int(offsets[number]), int(there.offset[at[number]]), int(claims[number])

        for kind, why, which in (
            ("looped", "came home", looped),
            ("out_of_order", "another record", swapped),
            ("altered", "differs", ~same & ~looped & ~swapped),
        ):
            self._tell(kind, why, np.flatnonzero(which), name, int(np.count_nonzero(which)))

    def _origins(self, before: Digests, after: Digests, identity: Digests) -> Rows:
        """An origin travels on as it is; who has none gets the source's, if the link stamps."""
        carried: Rows = after == before
        if not self.link.origin:
            return carried
        stamped: Rows = np.isin(identity, np.array(self.link.source_identities, np.uint64))
        return np.where(before == 0, stamped, carried)

    def _another(self, offsets: Longs, claims: Longs, digests: Digests, wanted: Digests, wrong: Rows) -> Rows:
        """Which wrong records are others of the same source partition: by their header, else by what they hold."""
        if not self.headers:
            return np.isin(digests, wanted[wrong])
        other: Rows = (claims != offsets) & inside(self.copied, claims)
        near, row = _find(self.here.offset, claims)
        # What a header claims is believed only if the record that it names looks like this one, where that can be seen.
        return other & (~near | (self.here.digest[row] == digests) if len(self.here) else other)

    # -- records that are at the source only ---------------------------------------------------------------

    def _source_alone(self) -> None:
        unit, pair, offset = self.unit, self.unit.pair, self.here.offset
        self.result.add("dropped", int(np.count_nonzero(~self.kept & ~self.found)))
        alone = self.kept & ~self.found
        if not alone.any():
            return

        def take(which: Rows) -> Rows:
            nonlocal alone
            taken = alone & which
            alone = alone & ~which
            return taken

        def name(row: int) -> tuple[int, int, int]:
            return int(offset[row]), int(self.place[row]), -1

        def count(kind: str, which: Rows, why: str = "") -> None:
            number = int(np.count_nonzero(which))
            if why:
                self._tell(kind, why, np.flatnonzero(which), name, number)
            else:
                self.result.add(kind, number)

        unmapped = ~self.mapped
        # What came home is among what the link leaves out, and is judged on the way home.
        count("returned", take(unmapped & inside(pair.returned, offset)))
        self.result.leave("stranded", HERE, offset[take(unmapped & inside(pair.stranded, offset))])
        if unit.seeded:
            count("unexpected", take(unmapped), "not seeded")
        self.result.leave("before_start", HERE, offset[take(unmapped & (offset < pair.expected_from))])
        count("missing", take(unmapped), "not copied")
        self.result.leave("expired", HERE, offset[take(self.place < pair.target_start)])
        count("missing", take(self.place >= pair.target_end), "beyond the end")
        if pair.target_compacted:
            self.result.leave("compacted", HERE, offset[alone])
        else:
            count("missing", alone, "not there")

    # -- records that are at the destination only ----------------------------------------------------------

    def _target_alone(self, copies: Rows, sources: Longs) -> None:
        """Places of the map at which the source has nothing any more, or should not have been copied from."""
        pair, there = self.unit.pair, self.there
        present, row = _find(self.here.offset, sources)
        present &= copies
        unwanted = present & ~self.kept[row] if len(self.here) else present
        gone = copies & ~present
        if not (unwanted.any() or gone.any()):
            return

        def name(row: int) -> tuple[int, int, int]:
            return int(sources[row]), int(there.offset[row]), int(there.header[row])

        def tell(kind: str, why: str, which: Rows) -> None:
            self._tell(kind, why, np.flatnonzero(which), name, int(np.count_nonzero(which)))

        looped = (unwanted | gone) & self.born_there & (unwanted | ~np.bool_(self.link.loop_rule))
        tell("looped", "came home", looped)
        tell("unexpected", "unwanted", unwanted & ~looped)
        gone &= ~looped
        if self.headers:
            strange = gone & (there.header != sources)
            swapped = strange & inside(self.copied, there.header)
            tell("out_of_order", "another record", swapped)
            tell("altered", "differs", strange & ~swapped)
            gone &= ~strange
        expired = gone & ((sources < pair.source_start) | (sources >= pair.source_end))
        self.result.leave("expired", THERE, there.offset[expired])
        gone &= ~expired
        if pair.source_compacted:
            self.result.leave("compacted", THERE, there.offset[gone])
        else:
            tell("unexpected", "no source", gone)

    def _outside(self, outside: Rows) -> None:
        """Records that this link's map does not know."""
        pair, there, unit = self.unit.pair, self.there, self.unit
        outside = outside & (there.offset < pair.explained)
        if len(unit.ahead):
            outside &= ~inside(unit.ahead, there.offset)
        if not outside.any():
            return

        def name(row: int) -> tuple[int, int, int]:
            return -1, int(there.offset[row]), int(there.header[row])

        def tell(kind: str, why: str, which: Rows) -> None:
            self._tell(kind, why, np.flatnonzero(which), name, int(np.count_nonzero(which)))

        for kind, spans in (("others", pair.others), ("returned", pair.brought)):
            known = outside & inside(spans, there.offset)
            self.result.add(kind, int(np.count_nonzero(known)))
            outside &= ~known
        claims_source = np.zeros(len(there), np.bool_)
        if self.link.origin:
            claims_source = np.isin(there.identity, np.array(self.link.source_identities, np.uint64))
        if pair.home:
            outside &= claims_source  # the rest is the link's to judge
        looped = outside & self.born_there
        tell("looped", "came home", looped)
        outside &= ~looped
        if self.link.offset_header:
            claimed = outside & (there.header >= 0)
            doubled = claimed & (there.header < pair.watermark) & inside(self.copied, there.header)
            tell("doubled", "second copy", doubled)
            tell("unexpected", "strange header", claimed & ~doubled)
            outside &= ~claimed
        # Applications add no origin: who names the source has come from there, and the map should know.
        strange = outside & claims_source
        tell("unexpected", "strange origin", strange)
        outside &= ~strange
        local = outside & inside(pair.local, there.offset)
        self.result.leave("local", THERE, there.offset[local])
        tell("unexpected", "no link", outside & ~local)
