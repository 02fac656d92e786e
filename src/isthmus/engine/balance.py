"""Deal partitions out to slots by measured traffic and by leader.

The heaviest partition goes first, to the slot with the least load (within 4/3 of the best possible split).
Among slots whose loads are as good as equal, one that already reads from the partition's leader wins, so that a
slot talks to few brokers and a request carries many partitions. Idle partitions weigh a little, so that they are
spread too. Linear in partitions but for the sort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.kafka.offsets import Partition

# What an idle partition weighs (bytes a second): enough to spread thousands of them evenly, too little to
# push a busy one aside.
IDLE_WEIGHT = 100.0
# Loads closer than this share of the mean are equal for the choice by leader.
NEAR = 0.05


def deal(
    partitions: Sequence[Partition],
    weights: Mapping[Partition, float],
    leaders: Mapping[Partition, int],
    slots: int,
) -> list[list[Partition]]:
    """Partitions of each slot; every partition exactly once."""
    hands: list[list[Partition]] = [[] for _ in range(slots)]
    loads = [0.0] * slots
    known: list[set[int]] = [set() for _ in range(slots)]
    weight = {p: weights.get(p, 0.0) + IDLE_WEIGHT for p in partitions}
    mean = sum(weight.values()) / max(1, slots)
    # Among equal weights, leaders take turns, so that each finds a slot of its own first; then names decide, so that
    # the same input is dealt the same way.
    turn: dict[Partition, int] = {}
    seen: dict[int, int] = {}
    for partition in sorted(partitions):
        leader = leaders.get(partition, -1)
        turn[partition] = seen[leader] = seen.get(leader, -1) + 1
    for partition in sorted(partitions, key=lambda p: (-weight[p], turn[p], p)):
        leader = leaders.get(partition, -1)
        least = min(loads)
        near = [s for s in range(slots) if loads[s] <= least + NEAR * mean]
        slot = min(near, key=lambda s: (leader not in known[s], loads[s], s))
        hands[slot].append(partition)
        loads[slot] += weight[partition]
        known[slot].add(leader)
    return hands


def skew(hands: Sequence[Sequence[Partition]], weights: Mapping[Partition, float]) -> float:
    """Load of the fullest slot over the mean: 1.0 is even."""
    loads = [sum(weights.get(p, 0.0) for p in hand) for hand in hands]
    mean = sum(loads) / max(1, len(loads))
    return max(loads) / mean if mean > 0 else 1.0
