"""Which records a link still has to copy behind a re-seed, decided from two logs. A model of sites says what is right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from isthmus.recovery.births import Log, NotKnown, ascending, decide, rebuilt, spread

A, B, C = range(3)
Row = tuple[int, int]


def log(rows: list[Row], start: int = 0, times: dict[Row, int] | None = None) -> Log:
    """Of births (site, number), at offsets from ``start`` on, with a hole now and then as markers leave it."""
    offset = np.array([start + at + at // 5 for at in range(len(rows))], np.int64)
    who, number = np.array(rows, np.int64).reshape(-1, 2).T
    time = np.array([(times or {}).get(row, 1000 * row[0] + row[1]) for row in rows], np.int64)
    return Log(start, int(offset[-1]) + 1 if len(offset) else start, offset, who.copy(), number.copy(), time)


def mixed(rng: random.Random, **counts: int) -> list[Row]:
    """The first births of some sites, each in its order, the sites anyhow."""
    left = {{"a": A, "b": B, "c": C}[name]: list(range(count)) for name, count in counts.items()}
    rows: list[Row] = []
    while any(left.values()):
        site = rng.choice([site for site, numbers in left.items() if numbers])
        rows.append((site, left[site].pop(0)))
    return rows


@pytest.mark.parametrize("seed", range(200))
def test_what_is_missing_comes_once_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    have = {name: rng.randrange(12) for name in "abc"}
    source = log(mixed(rng, **{name: max(have[name], rng.randrange(12)) for name in "abc"}))
    there = log(mixed(rng, **have))
    carried = [A, B] if rng.random() < 0.5 else [A]
    made = decide(source, there, there.offset, carried, A, A)
    rows = list(zip(source.offset.tolist(), source.who.tolist(), source.number.tolist(), strict=True))
    wanted = [o for o, who, number in rows if who in carried and number >= have["abc"[who]]]
    first, end = made.apart or (0, 0)
    apart = [o for o, who, n in rows if first <= o < end and who in carried and n >= made.before[who]]
    behind = [o for o, who, _ in rows if o >= made.position and who in carried]
    assert apart + behind == wanted, made
    # The same by the part's own rule, in which the source's births are told by offsets.
    own = [o for o, who, n in rows if first <= o < end and (who == A and o >= made.own)]
    assert own == [o for o, who, n in rows if o in apart and who == A]
    # Of each offset the smallest place of all records at or behind it, whatever the order of the logs is.
    runs = ascending(made.pairs)
    pairs = {int(o): int(p) for o, p in made.pairs}
    kept = {int(o): int(p) for o, p in spread(runs)}
    assert kept.items() <= pairs.items()
    assert list(kept.values()) == sorted(kept.values())
    for offset in range(source.end):
        rest = [place for o, place in pairs.items() if o >= offset]
        assert min((p for o, p in kept.items() if o >= offset), default=None) == min(rest, default=None)


def test_what_cannot_be_known() -> None:
    ours = [(A, 0), (B, 0), (A, 1)]
    for source, there, why in (
        (log(ours), log([(A, 0), (A, 0)]), "twice"),
        (log([(A, 1), (A, 0)]), log([]), "order"),
        (log(ours), log([(B, 0)], start=7), "retention"),
        (log(ours), log([(A, 0)], times={(A, 0): 5}), "not the same record"),
        (log(ours), log([(A, 7)]), "in common"),
        (log([*ours, (-2, -1)]), log([(A, 0)]), "cannot be told"),
        (log(ours), log([(-2, -1)]), "do not tell"),
    ):
        with pytest.raises(NotKnown, match=why):
            decide(source, there, there.offset, [A, B], A, C)


def test_what_the_destination_has_and_the_source_lacks() -> None:
    """Of another site it has to come first; of the lost one it never will."""
    source, there = log([(A, 0), (B, 0)]), log([(A, 0), (B, 0), (B, 1)])
    assert decide(source, there, there.offset, [A, B], A, A).lacking == B
    assert decide(source, there, there.offset, [A, B], A, B).lacking is None


def test_the_lost_sites_own_births_get_their_numbers_back() -> None:
    survivor = log([(A, 3), (B, 1), (A, 4), (B, 4)])  # its own births have its offsets as numbers
    runs = np.array([[0, 0, 4]], np.int64)
    again = log([(A, 0), (B, 1), (A, 2), (B, 4), (A, 5)])  # the last one is new
    found = rebuilt(again, runs, 4, survivor, A)
    assert found.number[:4].tolist() == [3, 1, 4, 4]
    assert found.number[4] > 1 << 61
    # Retention took the first one at the survivor: it is older than the others.
    gone = Log(1, 4, *(getattr(survivor, name)[1:] for name in ("offset", "who", "number", "time")))
    assert rebuilt(again, runs, 4, gone, A).number[0] < 0
