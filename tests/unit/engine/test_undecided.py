"""What is told of a transaction that holds records back."""

from __future__ import annotations

import time
from typing import Any, cast

from isthmus.config import Site
from isthmus.engine.undecided import LONG_SECONDS, Undecided, is_long
from isthmus.kafka.cluster import Cluster


class _Site:
    site = Site(name="east", bootstrap=["a:1", "b:2"])


EAST = cast(Cluster, cast(Any, _Site()))


def test_whose_it_is_and_how_to_end_it() -> None:
    words = Undecided(7, 1000, 1_700_000_000.0, 12, "billing", True).words(("orders", 3), EAST)
    assert words.startswith(
        "orders[3]: 1000 offsets at site east stand behind a transaction that is open since 2023-11-14T22:13:20+00:00"
    )
    assert "of transactional id billing (producer id 12)." in words
    assert "--bootstrap-server a:1,b:2 abort --topic orders --partition 3 --start-offset 7`" in words


def test_what_nobody_tells() -> None:
    words = Undecided(7, 1000).words(("orders", 3), EAST)
    assert "that is open, from offset 7 on, of an unknown producer." in words
    assert "its coordinator does not know it" in Undecided(7, 1, producer=3, known=False).words(("orders", 3), EAST)


def test_short_ones_are_no_trouble() -> None:
    assert not is_long(Undecided(0, 1, time.time()))
    assert is_long(Undecided(0, 1, time.time() - LONG_SECONDS))
    assert is_long(Undecided(0, 1)), "nobody knows how old it is"
