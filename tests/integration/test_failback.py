"""Work comes home record by record: what was stranded, what was written at either site at an awkward moment, and operations that are cut in half.

Both sites live on; an emergency only treats one as if it were dead. What is where is told by confluent-kafka.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disaster import Killed, values
from links import (
    Message,
    Setup,
    configure,
    copy_until_caught_up,
    create_topic,
    grow_topic,
    isthmus,
    new_name,
    one_link,
    produce,
    read,
    topics_of,
    wait_for,
)

from isthmus.errors import DataError
from isthmus.recovery import access
from isthmus.recovery import failback as module
from isthmus.recovery.failback import failback
from isthmus.recovery.failover import failover
from isthmus.recovery.operation import Telling
from isthmus.recovery.stage import Stage
from isthmus.recovery.verify import in_this_process, verify
from isthmus.sandbox import KafkaSite

Name = Callable[..., str]
Place = dict[int, list[bytes]]


def write(site: KafkaSite, topic: str, stem: str, counts: dict[int, int]) -> Place:
    """So many records to each partition."""
    some = {p: [f"{stem} {p} {n}".encode() for n in range(count)] for p, count in counts.items()}
    produce(site, topic, [Message(value, partition=p) for p, found in some.items() for value in found])
    return some


def at(site: KafkaSite, topic: str) -> Place:
    return values(read(site, topic))


def joined(*places: Place) -> Place:
    """One behind the other, partition by partition."""
    return {
        p: [v for place in places for v in place.get(p, [])] for p in sorted({p for place in places for p in place})
    }


def same_records(found: Place, *wanted: Place) -> None:
    """These records, each once, in whatever order."""
    every = joined(*wanted)
    for partition in found.keys() | every.keys():
        assert sorted(found.get(partition, [])) == sorted(every.get(partition, [])), partition


def quiet(_: Telling) -> None:
    pass


def emergency(setup: Setup, east: KafkaSite, west: KafkaSite) -> dict[str, Any]:
    return failover(setup.config, east.name, west.name, "emergency", quiet)


def clean(setup: Setup) -> None:
    for link in setup.config.links:
        report = verify(setup.config, link, workers=in_this_process)
        assert report.clean, (report.verdict, report.offenders)


def test_exactly_what_is_stranded(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    """Of three partitions one has stranded records, and one appears that nobody has copied; a second disaster is like the first."""
    # By chance, as each takes a minute; test_active_passive.py::test_stranded_records tries the other one.
    policy: Any = ("set-aside", "append")[seed % 2]
    topic = create_topic(east, unique_topic(policy), 3)
    setup = one_link(east, west, [topic])
    home: list[Place] = []
    away: list[Place] = []
    aside: list[Place] = []
    for number in range(2):
        common = write(east, topic, f"common {number}", {0: 20, 1: 20, 2: 20})
        copy_until_caught_up(setup)
        stranded = write(east, topic, f"stranded {number}", {number: 5})
        if number:
            grow_topic(east, topic, 4)
            new = write(east, topic, "new", {3: 4})
        emergency(setup, east, west)
        later = write(west, topic, f"later {number}", {0: 3, 1: 3})
        if not number:
            with pytest.raises(DataError, match="cannot be fenced"):  # quiet is no rest: somebody has to say so
                failback(setup.config, east.name, quiet, policy=policy, verify=False)
        report = failback(setup.config, east.name, quiet, policy=policy, fence="none", verify=False)
        assert report["stranded_records"] == 5
        home += [common, stranded, later]
        away += [common, later, stranded] if policy == "append" else [common, later]
        aside += [stranded]
        if number:
            home, away = [*home, new], [*away, new]
            copy_until_caught_up(setup)
        assert at(east, topic) == joined(*home)
        assert at(west, topic) == joined(*away)
        if policy == "set-aside":
            assert {p: found for p, found in at(west, f"{topic}.stranded").items() if found} == joined(*aside)
    assert not {name for name in topics_of(west) if f".{setup.link}.stranded-" in name}, (
        "nothing of what copied them stays"
    )
    clean(setup)


def test_set_aside_with_links_both_ways(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = unique_topic("both")
    for site in (east, west):
        create_topic(site, topic, 3)
    common = {"topics": [topic], "loop": "returning"}
    there, back = new_name("there"), new_name("back")
    setup = configure(
        {east.name: east, west.name: west},
        {there: {"from": east.name, "to": west.name, **common}, back: {"from": west.name, "to": east.name, **common}},
    )
    before = write(east, topic, "before", {0: 20, 1: 20, 2: 20})
    for link in (there, back):
        copy_until_caught_up(setup, link)
    stranded = write(east, topic, "stranded", {0: 5})
    emergency(setup, east, west)
    later = write(west, topic, "later", {1: 3})
    assert (
        failback(setup.config, east.name, quiet, policy="set-aside", fence="none", verify=False)["stranded_records"]
        == 5
    )
    assert {p: found for p, found in at(west, f"{topic}.stranded").items() if found} == stranded
    assert at(west, topic) == joined(before, later)
    same_records(at(east, topic), before, stranded, later)
    clean(setup)


def test_whatever_was_written_comes_home(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that moved before the command was given, or while the site was being promoted; and clients of home that write during failback."""
    topic = create_topic(east, unique_topic("early"), 2)
    setup = one_link(east, west, [topic])
    common = write(east, topic, "common", {0: 10})
    copy_until_caught_up(setup)
    early = write(west, topic, "early", {0: 5, 1: 2})
    window: list[Place] = []
    promote = access.promote

    def promoted(*arguments: Any) -> Any:
        found = promote(*arguments)
        window.append(write(west, topic, "window", {0: 3}))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(access, "promote", promoted)
        emergency(setup, east, west)
    later = write(west, topic, "later", {0: 4})
    own: list[Place] = []

    def tell(telling: Telling) -> None:
        # Before anything has come home, and behind some of it.
        if telling.state == "done" and telling.step in ("stranded", "back"):
            own.append(write(east, topic, f"own {telling.step}", {0: 3, 1: 1}))
            write_more = {"back": {0: 2}}.get(telling.step, {})
            window.append(write(west, topic, "last", write_more))

    failback(setup.config, east.name, tell, fence="none", verify=False)
    after = write(east, topic, "after", {0: 2})
    copy_until_caught_up(setup)
    every = (common, early, *window, later, *own, after)
    same_records(at(east, topic), *every)
    same_records(at(west, topic), *every)
    clean(setup)


def test_abandoned_and_done_again(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Since when the survivor serves is not forgotten, although the link went on for a while in between."""
    topic = create_topic(east, unique_topic("again"))
    setup = one_link(east, west, [topic])
    common = write(east, topic, "common", {0: 10})
    copy_until_caught_up(setup)

    def dies(telling: Telling) -> None:
        if (telling.step, telling.state) == ("promote", "done"):
            raise Killed

    with pytest.raises(Killed):
        failover(setup.config, east.name, west.name, "emergency", dies)
    first = write(west, topic, "first", {0: 4})
    assert isthmus(setup, "failover", east.name, "--to", west.name, "--emergency", "--abandon").code == 0
    assert isthmus(setup, "resume", setup.link, "--held").code == 0
    more = write(east, topic, "more", {0: 6})
    copy_until_caught_up(setup)
    second = write(west, topic, "second", {0: 3})
    emergency(setup, east, west)
    third = write(west, topic, "third", {0: 2})
    failback(setup.config, east.name, quiet, fence="none", verify=False)
    assert at(east, topic) == joined(common, more, first, second, third)
    assert at(west, topic) == joined(common, first, more, second, third)
    clean(setup)


# -- cut in half ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cut_everywhere(
    monkeypatch: pytest.MonkeyPatch, steps: set[str]
) -> Iterator[tuple[Callable[[Telling], None], set[str]]]:
    """In these steps the operation dies at whatever it asks of a site: once before that, and once behind it, before anything is written down."""
    now, before, after = [""], set[str](), set[str]()
    original, copying = Stage.at, module.catch_up

    def die(what: str, act: Callable[[], Any]) -> Any:
        if now[0] not in steps:
            return act()
        if what not in before:
            before.add(what)
            raise Killed
        found = act()
        if what not in after:
            after.add(what)
            raise Killed
        return found

    def asked(self: Stage, name: str, doing: str, *arguments: Any) -> Any:
        return die(f"{now[0]}: {doing}", lambda: original(self, name, doing, *arguments))

    def copied(config: Any, links: Any, *arguments: Any) -> Any:
        return die(f"{now[0]}: copying {links[0].name}", lambda: copying(config, links, *arguments))

    def tell(telling: Telling) -> None:
        if telling.state in ("begins", "done"):
            now[0] = telling.step if telling.state == "begins" else ""

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "at", asked)
        patch.setattr(module, "catch_up", copied)
        yield tell, after


def killed_while_it_copies(setup: Setup, home: KafkaSite, seen: Callable[[], int], least: int) -> None:
    """``isthmus failback`` as a process of its own, killed for real when some of the stranded records are there."""
    program = Path(sys.executable).with_name("isthmus")
    command = [str(program), "failback", home.name, "--fence", "none", "--no-verify", "--config", str(setup.path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: seen() >= least or process.poll() is not None, "some stranded records", 120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_cut_in_half(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """One way, with stranded records and clients at home: killed while it copies, then at every single thing that it asks of a site. Whether it was
    abandoned in between is left to chance: each takes minutes."""
    abandoned = bool(seed % 2)
    topic = create_topic(east, unique_topic("cut"), 2)
    setup = one_link(east, west, [topic], rate_limit="100 kB/s", commit_interval="100ms")
    common = write(east, topic, "common", {0: 10, 1: 10})
    copy_until_caught_up(setup)
    stranded = write(east, topic, "stranded" + "." * 1000, {0: 200})
    emergency(setup, east, west)
    later = write(west, topic, "later", {0: 3, 1: 3})
    there = 13

    def seen() -> int:
        return len(at(west, topic)[0]) - there

    killed_while_it_copies(setup, east, seen, 1)
    if abandoned:
        assert isthmus(setup, "failback", east.name, "--abandon").code == 0
    own: list[Place] = []
    with cut_everywhere(monkeypatch, {"stranded", "restore"}) as (tell, deaths):

        def told(telling: Telling) -> None:
            if (telling.step, telling.state) == ("stranded", "done"):
                own.append(write(east, topic, "own", {0: 2, 1: 2}))
            tell(telling)

        for _ in range(200):
            with contextlib.suppress(Killed):
                report = failback(setup.config, east.name, told, fence="none", verify=False)
                break
        else:
            pytest.fail(f"not done after it died at {sorted(deaths)}")
    assert report["attempts"] > len(deaths) > 10
    assert any("copying" in each and each.endswith("-own") for each in deaths), deaths
    same_records(at(east, topic), common, stranded, later, *own)
    same_records(at(west, topic), common, stranded, later, *own)
    clean(setup)
