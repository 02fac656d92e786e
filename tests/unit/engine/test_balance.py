"""Dealing partitions out: complete, even by traffic, near by leader, and the same each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine.balance import deal, skew

partitions = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 200)), unique=True, max_size=200)


@given(partitions, st.integers(1, 9), st.randoms(use_true_random=False))
def test_each_partition_is_dealt_once(some, slots, random):
    weights = {p: random.expovariate(1e-6) for p in some if random.random() < 0.7}
    leaders = {p: random.randrange(3) for p in some}
    hands = deal(some, weights, leaders, slots)
    assert len(hands) == slots
    assert sorted(p for hand in hands for p in hand) == sorted(some)
    assert hands == deal(list(reversed(some)), weights, leaders, slots)


def test_one_busy_partition_gets_a_slot_nearly_for_itself():
    some = [("t", p) for p in range(20)]
    weights = {("t", 7): 19e6} | {("t", p): 1e6 for p in range(20) if p != 7}
    hands = deal(some, weights, {}, 2)
    assert skew(hands, weights) < 1.1
    assert [("t", 7)] in hands


def test_idle_partitions_are_spread():
    hands = deal([("t", p) for p in range(1000)], {}, {("t", p): p % 3 for p in range(1000)}, 4)
    assert {len(hand) for hand in hands} <= set(range(220, 281))


def test_equal_partitions_go_where_their_leader_is_read_already():
    some = [("t", p) for p in range(12)]
    leaders = {("t", p): p % 3 for p in range(12)}
    hands = deal(some, dict.fromkeys(some, 1e6), leaders, 3)
    assert all(len({leaders[p] for p in hand}) == 1 for hand in hands)
    assert [len(hand) for hand in hands] == [4, 4, 4]
