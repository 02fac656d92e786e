"""A site of three is lost and rebuilt where links send on what others wrote: rings and hubs. The links with the third site go on by themselves.

Links are run by hand, one after another, so that each site has what the test wants it to have when one is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from disaster import values
from links import Message, configure, copy_until_caught_up, create_topic, isthmus, new_name, produce, read

from isthmus.recovery.verify import in_this_process, verify
from isthmus.sandbox import KafkaSite

Sites = tuple[KafkaSite, KafkaSite, KafkaSite]


@pytest.fixture(scope="module")
def sites(make_module_site: Callable[..., KafkaSite]) -> Sites:
    """The first one is lost again and again."""
    return make_module_site("lost-3"), make_module_site("second-3"), make_module_site("third-3")


class Three:
    """A topic of two partitions at three sites, and links between them; sites are numbers."""

    def __init__(self, sites: Sites, ways: dict[tuple[int, int], str]) -> None:
        self.sites, self.topic = sites, new_name("three")
        for site in sites:
            create_topic(site, self.topic, 2)
        self.links = {way: f"{self.topic}-{way[0]}-{way[1]}" for way in ways}
        names = [site.name for site in sites]
        self.setup = configure(
            {site.name: site for site in sites},
            {
                self.links[way]: {"from": names[way[0]], "to": names[way[1]], "topics": [self.topic], "loop": loop}
                for way, loop in ways.items()
            },
        )
        self.written: list[list[bytes]] = [[], [], []]

    def write(self, at: int, count: int) -> None:
        first = len(self.written[at])
        made = [f"{at} {first + n:04d}".encode() for n in range(count)]
        produce(self.sites[at], self.topic, [Message(value, partition=n % 2) for n, value in enumerate(made)])
        self.written[at] += made

    def copy(self, *ways: tuple[int, int]) -> None:
        for way in ways or (*self.links, *self.links):
            copy_until_caught_up(self.setup, self.links[way])

    def lose(self) -> None:
        for broker in self.sites[0].brokers:
            broker.kill()

    def done(self, *arguments: str) -> dict[str, Any]:
        """A command that must succeed; what its steps found."""
        answer = isthmus(self.setup, *arguments, "--json")
        assert answer.code == 0, f"{arguments}: {answer.code}\n{answer.out}\n{answer.err}"
        return {step["step"]: step["found"] for step in answer.document["steps"]}

    def judge(self) -> None:
        """Each record once at each site, in the order of its birthplace; and verify says so of each link."""
        for site in self.sites:
            found = values(read(site, self.topic))
            for at, written in enumerate(self.written):
                stem = b"%d " % at
                for partition, log in found.items():
                    mine = [value for value in log if value.startswith(stem)]
                    assert mine == sorted(set(mine)), (site.name, at, partition, mine)
                here = {value for log in found.values() for value in log if value.startswith(stem)}
                assert here == set(written), (site.name, at, sorted(set(written) ^ here))
        for name in self.links.values():
            report = verify(self.setup.config, name, workers=in_this_process)
            assert report.clean, (name, report.verdict, report.offenders)


RING = {(0, 1): "returning", (1, 2): "returning", (2, 0): "returning"}
HUB = {(1, 0): "foreign", (2, 0): "foreign", (0, 1): "returning", (0, 2): "returning"}


@pytest.mark.parametrize("survivor", [1, 2], ids=["next", "before"])
def test_a_site_of_a_ring(sites: Sites, survivor: int) -> None:
    """It is lost while records are on their way round, and rebuilt from the next site, or from the one before it."""
    three = Three(sites, RING)
    for at in range(3):
        three.write(at, 20)
    three.copy()
    three.write(2, 5)  # comes to the lost site, and to the next one
    three.copy((2, 0), (0, 1))
    three.write(1, 6)
    three.write(0, 7)  # is at the next site, and not at the third
    three.copy((0, 1))
    three.write(2, 5)  # comes to the lost site, and no further
    three.copy((2, 0))
    three.lose()
    lost, saviour = sites[0].name, sites[survivor].name
    if survivor == 1:
        three.done("failover", lost, "--to", saviour, "--emergency")
    for _ in range(3):
        three.write(1, 4)
        three.copy((1, 2))
        three.write(2, 3)
    three.write(1, 2)
    if survivor == 2:
        three.copy((1, 2))  # else it has not gone on: the re-seed sees to that
    sites[0].wipe()
    found = three.done("reseed", lost, "--from", saviour, "--no-verify")
    assert found["release"]["held"] == {}
    for at in range(3):
        three.write(at, 4)
    three.copy()
    three.judge()
    if survivor == 1:
        answer = isthmus(three.setup, "failback", lost)
        assert answer.code == 2, answer
        assert "would double it" in answer.err


def test_a_hub(sites: Sites) -> None:
    """It is rebuilt from one of its spokes; both links with the other one go on."""
    three = Three(sites, HUB)
    for at in range(3):
        three.write(at, 20)
    three.copy()
    three.write(1, 5)  # has not left the survivor, and stands there before what both spokes have
    three.write(0, 4)
    three.copy((0, 1), (0, 2))
    three.write(2, 6)  # came to the hub, and no further
    three.write(0, 3)  # came to the survivor only
    three.copy((2, 0), (0, 1))
    three.write(2, 2)
    three.lose()
    lost, saviour = sites[0].name, sites[1].name
    three.done("failover", lost, "--to", saviour, "--emergency")
    three.write(1, 6)
    three.write(2, 3)
    sites[0].wipe()
    found = three.done("reseed", lost, "--from", saviour, "--no-verify")
    assert found["onward"]["elsewhere"] == {three.links[0, 2]: "2 partitions set"}
    for at in range(3):
        three.write(at, 4)
    three.copy()
    three.judge()
