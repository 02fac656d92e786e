"""Parts of a link, and the way home: records that are left out by their offsets."""

from __future__ import annotations

import pickle

from batch_tools import Rec, make

from isthmus.config import Link
from isthmus.config.part import part
from isthmus.config.turned import turned
from isthmus.records import Transcoder
from isthmus.rules import Rule, compile_rules
from isthmus.rules.ranges import Ranges

LINK = Link(**{"name": "there", "from": "east", "to": "west", "topics": ["orders"]})


def copied(rules: tuple[Rule, ...], topic: str, partition: int) -> list[int]:
    """Which of ten records are copied."""
    done = Transcoder(rules).feed(
        make([Rec(offset=n, value=b"%d" % n) for n in range(10)]), topic=topic, partition=partition, position=0
    )
    assert (done.fault, done.next_offset) == (None, 10)
    return [int(a) + n for batch in done.batches for a, count in batch.runs.tolist() for n in range(count)]


def test_a_part_copies_its_ranges_and_nothing_else() -> None:
    rules = pickle.loads(pickle.dumps(compile_rules(part(LINK, {"orders": {0: (3, 7)}}, name="there.part"))))
    assert copied(rules, "orders", 0) == [3, 4, 5, 6]
    assert copied(rules, "orders", 1) == [], "a partition that was not meant, or has appeared since"
    assert copied(rules, "others", 0) == []


def test_the_way_home_leaves_out_what_the_link_has_put_there() -> None:
    back = turned(LINK, ".back", without={"orders": {0: [(1, 3), (5, 6), (9, 12)]}})
    rules = compile_rules(back)
    assert copied(rules, "orders", 0) == [0, 3, 4, 6, 7, 8]
    assert copied(rules, "orders", 1) == list(range(10))


def test_other_links_do_without_it() -> None:
    assert not any(isinstance(rule, Ranges) for rule in compile_rules(LINK))
    assert not any(isinstance(rule, Ranges) for rule in compile_rules(turned(LINK, ".back")))
