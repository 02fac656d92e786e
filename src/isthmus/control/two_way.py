"""A group's position at the other site where both sites are written to. Pure: no site is asked here.

The two logs hold the same records in different orders. A group that has read up to ``p`` here has not read what stands here
at or after ``p``, nor what has not come here yet. It goes on there at the first of all those.

    here   a b x c y | d e        (| is p; a..e were written here, x and y came from there)
    there  x a y b c   d z        z has not come here yet
                       ^          of d, e and z the first there: what stands before it was read

Each of the two maps ascends on both sides, whatever was reset or re-seeded: so the first record of one map at or after ``p``
is also the first there of all its records at or after ``p``, and the smaller one of the two maps' answers is the smallest of all.

Invariant: an answer never lies behind a record there that the group has not read. Where the two logs have one order (one
site is written to at a time), nothing is read again either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from isthmus.control.translation import Position, Target
from isthmus.engine.offset_map import PartitionMap

Ranges = npt.NDArray[np.int64]


def inverse(known: PartitionMap) -> PartitionMap:
    """The same map read from its destination: offsets there -> offsets at the source."""
    return replace(known, runs=known.runs[:, [1, 0, 2]])


class TwoWay:
    """One partition, with the link's own map (``out``) and the other link's (``back``), either of which may be missing.

    ``come`` is where the other link goes on there: what stands there before it has come here, or never will.
    ``known`` is how far there everything is known: what this link has brought behind it is in no map yet.
    """

    def __init__(self, out: PartitionMap | None, back: PartitionMap | None, come: int, known: int) -> None:
        maps = [each for each in (out, back and inverse(back)) if each is not None and len(each.runs)]
        self._maps, self._out = maps, out
        self._end = max((int(each.runs[-1, 1] + each.runs[-1, 2]) for each in maps), default=known)
        brought = int(out.runs[-1, 1] + out.runs[-1, 2]) if out is not None and len(out.runs) else 0
        self._known = max(known, brought)
        self._come = come

    def unexplained(self) -> Ranges:
        """Ranges there, as (first, end), that this link did not write and the other one has not read: they hold markers of
        transactions, or records that have not come here. The last one ends where knowledge ends."""
        runs = self._out.runs if self._out is not None else np.empty((0, 3), np.int64)
        first = np.concatenate(([0], runs[:, 1] + runs[:, 2]))
        end = np.concatenate((runs[:, 1], [self._known]))
        found = np.column_stack((np.maximum(first, self._come), np.minimum(end, self._known)))
        return found[found[:, 0] < found[:, 1]]

    @property
    def has_copies(self) -> bool:
        """Whether either link has copied a record of it."""
        return bool(self._maps)

    @property
    def known(self) -> int:
        return self._known

    def positions(self, offsets: Sequence[int], limit: int, target: Target) -> list[Position]:
        """Where groups with these offsets go on there; ``limit`` is the first record that has not come here, or ``known``."""
        wanted = np.asarray(offsets, np.int64)
        place = np.full(len(wanted), np.iinfo(np.int64).max, np.int64)
        exact, copied = np.zeros((2, len(wanted)), np.bool_)
        for each in self._maps:
            found, is_exact, is_copied = each.translate_many(wanted)
            better = is_copied & (found < place)
            place = np.where(better, found, place)
            exact = np.where(better, is_exact, exact)
            copied |= is_copied
        place = np.where(copied, place, self._end)
        held_back = place > limit
        place = np.where(held_back, limit, place)
        return [
            Position(max(at, target.start), "two-way", is_exact and at >= target.start, is_copied)
            for at, is_exact, is_copied in zip(
                place.tolist(), (exact & ~held_back).tolist(), (copied & ~held_back).tolist(), strict=True
            )
        ]
