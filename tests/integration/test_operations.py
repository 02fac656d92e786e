"""Operations of recovery as such: who may go on when several are given, what an unfinished one leaves, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from links import configure, new_name

from isthmus.errors import DataError, TakenOver
from isthmus.kafka.produce import Interrupted
from isthmus.recovery.journal import Entry, Journal
from isthmus.recovery.stage import Stage
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


@pytest.fixture
def stage(east: KafkaSite, west: KafkaSite) -> Any:
    link = {"from": east.name, "to": west.name, "topics": [new_name("journal")]}
    setup = configure({east.name: east, west.name: west}, {new_name("journal"): link})
    with Stage(setup.config) as found:
        yield found


@pytest.mark.parametrize("trouble", ["fenced", "interrupted"])
def test_who_was_taken_over_stops_and_the_newer_one_goes_on(
    stage: Stage, west: KafkaSite, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = new_name("here"), new_name("there")
    older, newer = (Journal(stage.site(west.name), Entry("failover", here, there, "planned")) for _ in range(2))
    assert not stage.run(older.open)
    stage.run(older.begin)
    assert stage.run(newer.open), "it goes on with what the older one has begun"
    assert newer.entry.id == older.entry.id
    if trouble == "interrupted":

        async def lost(*_: object) -> None:
            raise Interrupted("the answer is lost")

        monkeypatch.setattr(older._producer, "commit", lost)
    older.entry.done["fence"] = {"at": 0.0, "seconds": 0.0, "found": {}}
    with pytest.raises(TakenOver):
        stage.run(older.write)
    newer.entry.done["fence"] = {"at": 0.0, "seconds": 0.0, "found": {}}
    stage.run(newer.write)
    newer.entry.ended = 1.0
    stage.run(newer.write)


def test_of_two_that_contradict_each_other_at_most_one_begins(stage: Stage, east: KafkaSite, west: KafkaSite) -> None:
    here, there = new_name("here"), new_name("there")
    one = Journal(stage.site(west.name), Entry("failover", here, there, "planned"))
    other = Journal(stage.site(east.name), Entry("failover", there, here, "planned"))
    both = [stage.site(east.name), stage.site(west.name)]
    for journal in (one, other):  # neither sees anything of the other yet
        assert not stage.run(journal.open, both)
    stage.run(one.begin, both)
    with pytest.raises(DataError, match="unfinished planned failover"):
        stage.run(other.begin, both)
    # The one that was refused has left nothing behind.
    again = Journal(stage.site(east.name), Entry("failover", there, here, "planned"))
    with pytest.raises(DataError, match=f"of {here} to {there}"):
        stage.run(again.open, both)
    one.entry.abandoned = True
    stage.run(one.write)
    assert not stage.run(again.open, both)
