"""A site dies for real, under load, with consumers attached; and everything that brings it back.

Each test leaves both sites up, the same, and in service as they were. What is where is told by confluent-kafka (disaster.py).
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from disaster import PARTITIONS, Killed, Reader, Traffic, World, dying, in_order, judge, values, within_declared
from links import (
    QUIET,
    Message,
    configure,
    copy_until_caught_up,
    create_topic,
    isthmus,
    new_name,
    produce,
    read,
    status,
    wait_for,
)
from readers import commit, positions

from isthmus.engine import state
from isthmus.recovery.verify import in_this_process, verify
from isthmus.sandbox import KafkaSite

TWO_WAY = {
    "loop": "returning",
    "commit_interval": "100ms",
    "sync": {"groups": {"include": "/.*/", "only_empty": False, "interval": "1s"}},
}


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture(scope="module")
def pair(make_module_site: Callable[..., KafkaSite]) -> tuple[KafkaSite, KafkaSite]:
    east, west = (make_module_site(name, wait=False) for name in ("east-dr", "west-dr"))
    east.wait()
    west.wait()
    return east, west


@pytest.fixture(scope="module")
def world(pair: tuple[KafkaSite, KafkaSite]) -> Iterator[World]:
    """Two sites that are both written to."""
    east, west = pair
    topic = new_name("orders")
    create_topic(east, topic, PARTITIONS)
    create_topic(west, topic, PARTITIONS)
    setup = configure(
        {east.name: east, west.name: west},
        {
            "there": {"from": east.name, "to": west.name, "topics": [topic], **TWO_WAY},
            "back": {"from": west.name, "to": east.name, "topics": [topic], **TWO_WAY},
        },
    )
    made = World(east, west, topic, setup)
    made.start()
    wait_for(lambda: in_service(made, "there") and in_service(made, "back"), "both links to run", 90)
    yield made
    made.stop()


def settled(world: World) -> None:
    """All that is written has been copied, both ways."""

    def still() -> bool:
        return all(status(world.setup, link)["lag"] == 0 for link in world.setup.config.links)

    wait_for(still, "both links to catch up", 90)


def stands(world: World, link: str) -> str:
    """A link's state, also while one of its sites is dead."""
    return str(isthmus(world.setup, "status", link, "--json").document[0]["state"])


def in_service(world: World, link: str) -> bool:
    return bool(status(world.setup, link)["state"] == "running")


def open_transaction(site: KafkaSite, topic: str) -> Producer:
    """A stock producer in the middle of its transaction, which ends ten seconds after the producer is gone."""
    settings = {"transactional.id": new_name("halfway"), "transaction.timeout.ms": 10_000}
    producer = Producer({"bootstrap.servers": site.admin_bootstrap, **settings, **QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"halfway", partition=0)
    assert producer.flush(30) == 0
    return producer


def test_a_site_dies_and_returns_with_its_data(world: World) -> None:
    east, west, group = world.east, world.west, new_name("billing")
    with Traffic(west, world.topic, "w1") as at_west:
        with Traffic(east, world.topic, "e1") as at_east, Reader(east, world.topic, group) as reader:
            wait_for(lambda: at_east.count > 600 and len(reader.committed) > 300, "traffic and a reader")
            wait_for(lambda: positions(west, group), "the group's position at west")
            # Somebody's transaction is open when the site dies: it hides what others wrote behind it, also for a while after the return.
            opened = open_transaction(east, world.topic)
            written = at_east.count
            wait_for(lambda: at_east.count > written + 30, "traffic behind an open transaction", pause=0.01)
            world.kill(east)
            time.sleep(1)
            reader.stop(dead=True)
            del opened
        report = world.done("failover", east.name, "--to", west.name, "--emergency")
        assert report["mode"] == "emergency"
        assert report["rto_seconds"] > 0
        assert report["clients"]["bootstrap"] == west.bootstrap
        assert group in report["clients"]["groups"]
        assert stands(world, "there") == "held"
        print(report)

        # The group goes on at west: with nothing skipped of what is there, and nothing read again that it had committed but for what
        # the last look at its position did not know yet.
        settled_there = {v for found in values(read(west, world.topic)).values() for v in found}
        with Reader(west, world.topic, group) as going_on:
            with Traffic(west, world.topic, "w2") as later:
                wait_for(lambda: later.count > 200, "traffic after the failover")
            wait_for(lambda: settled_there <= set(reader.committed) | set(going_on.seen), "the group to go on", 60)
    assert going_on.seen, "the group has read nothing at west"

    east.start()
    wait_for(lambda: world.command("sites", "list").code == 0, "east to answer", 60)
    # What never came across, also what east has written and had no time to acknowledge.
    written_at_east = [r for found in read(east, world.topic, committed=False).values() for r in found]
    left = {r.value for r in written_at_east if (r.value or b"").startswith(b"e1")} - settled_there
    assert {v for found in at_east.acked.values() for v in found} - settled_there <= left
    gone = {p: [at_east.at[v] for v in found if v not in settled_there] for p, found in at_east.acked.items()}
    within_declared(world.setup, report, {(world.topic, p): times for p, times in gone.items()})
    assert not report["at_most"]
    home = world.done("failback", east.name, "--fence", "none")
    assert home["stranded_records"] == len(left)
    settled(world)
    assert judge(world, at_east, at_west, later) >= at_east.count + at_west.count + later.count
    for traffic in (at_east, at_west, later):
        in_order(values(read(east, world.topic)), traffic.stem)
    assert status(world.setup, "there")["state"] == "running"


def test_a_planned_switch_and_back_three_times(world: World) -> None:
    east, west = world.east, world.west
    settled(world)
    written = []
    for number in range(3):
        for old, new in ((east, west), (west, east)):
            with Traffic(old, world.topic, f"s{number}{old.name}") as traffic:
                wait_for(lambda traffic=traffic: traffic.count > 60, "some traffic")
            report = world.done("failover", old.name, "--to", new.name, "--planned", "--fence", "none")
            assert report["rpo_records"] == 0
            written.append(traffic)
    settled(world)
    judge(world, *written)
    for link in world.setup.config.links:
        assert isthmus(world.setup, "verify", link).code == 0


def test_without_a_fence_a_planned_switch_is_a_choice_and_tells_what_came_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.recovery.switch import Switch

    east, west, original = world.east, world.west, Switch.promote
    settled(world)
    refused = world.command("failover", east.name, "--to", west.name, "--planned")
    assert (refused.code, "--fence none" in refused.out) == (6, True), refused

    def promote(self: Switch) -> Any:
        found = original(self)
        produce(east, world.topic, [Message(b"late", partition=1)])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Switch, "promote", promote)
        late = world.command("failover", east.name, "--to", west.name, "--planned", "--fence", "none")
    assert (late.code, f"{world.topic}[1] (" in late.out) == (6, True), late
    assert world.done("failover", west.name, "--to", east.name, "--planned", "--fence", "none")["rpo_records"] == 0
    settled(world)
    judge(world)


def test_a_site_dies_with_its_data_and_is_rebuilt_under_traffic(world: World) -> None:
    east, west, group = world.east, world.west, new_name("ledger")
    with Traffic(east, world.topic, "e3") as at_east, Traffic(west, world.topic, "w3") as at_west:
        with Reader(west, world.topic, group) as reader:
            wait_for(lambda: at_east.count > 300 and len(reader.committed) > 300, "traffic and a reader")
        world.kill(east)
        at_east.stop()
        report = world.done("failover", east.name, "--to", west.name, "--emergency")
        survived = {v for found in values(read(west, world.topic)).values() for v in found}
        lost = {v for found in at_east.acked.values() for v in found} - survived
        gone = {p: [at_east.at[v] for v in found if v in lost] for p, found in at_east.acked.items()}
        within_declared(world.setup, report, {(world.topic, p): times for p, times in gone.items()})
        east.wipe()
        refused = world.command("failback", east.name)
        assert refused.code == 6
        assert "reseed" in refused.out
        seeded = world.command("reseed", east.name, "--from", west.name)
        assert (seeded.code, seeded.document["steps"][-1]["step"]) == (0, "verify"), seeded
        assert "reset the link" not in seeded.err, "what is said to be mended has to be"
        wait_for(lambda: in_service(world, "there") and in_service(world, "back"), "both links to go on", 90)
        with Traffic(east, world.topic, "e4") as again:
            wait_for(lambda: again.count > 200, "traffic at the rebuilt site")
    settled(world)
    judge(world, at_east, at_west, again, but=lost)
    # As before the outage: east's own records have no origin there, west's have.
    for records, home in ((read(east, world.topic), east), (read(west, world.topic), west)):
        for found in records.values():
            for record in found:
                born_here = (record.value or b"").startswith(b"e") == (home is east)
                if (record.value or b"")[:2] in (b"e3", b"w3", b"e4"):
                    assert born_here == (not any(key == "isthmus-origin" for key, _ in record.headers)), record
    for traffic in (at_west, again):
        in_order(values(read(east, world.topic)), traffic.stem)
    world.done("failback", east.name, "--fence", "none")


@pytest.mark.parametrize("kind", ["failover", "failback", "reseed"])
def test_killed_at_every_step(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation dies before and after each of its steps is written, and goes on when it is given again."""
    east, west = world.east, world.west
    settled(world)
    with Traffic(east, world.topic, f"k{kind}") as traffic:
        wait_for(lambda: traffic.count > 60, "some traffic")
    settled(world)
    commands: dict[str, list[str]] = {
        "failover": ["failover", east.name, "--to", west.name, "--planned", "--fence", "none"],
        "failback": ["failback", east.name, "--fence", "none", "--no-verify"],
        "reseed": ["reseed", east.name, "--from", west.name, "--no-verify"],
    }
    stranded = 0
    if kind == "failback":
        # What is lost is counted as the link would copy it: what west itself wrote stands at east, too, and is not lost.
        assert world.command("pause", "there").code == 0
        time.sleep(2)  # its tasks obey within a second; nothing tells that they have
        stranded, own = 21, 30
        produce(
            east, world.topic, [Message(f"kept back {n}".encode(), partition=n % PARTITIONS) for n in range(stranded)]
        )
        time.sleep(1.5)
        produce(west, world.topic, [Message(f"west's own {n}".encode(), partition=n % PARTITIONS) for n in range(own)])
        wait_for(lambda: status(world.setup, "back")["lag"] == 0, "west's own at east")
        refused = world.command("failover", east.name, "--to", west.name, "--planned", "--fence", "none")
        assert (refused.code, "paused" in refused.out + refused.err) == (6, True), refused
        report = world.done("failover", east.name, "--to", west.name, "--emergency")
        assert report["rpo_records"] == stranded
        assert 1.5 <= report["rpo_seconds"] < 60
        # Resuming undoes the pause and nothing else: the link rests until work is home.
        assert world.command("resume", "there").code == 0
        assert stands(world, "there") == "held"
        # And a planned move is no way home.
        refused = world.command("failover", west.name, "--to", east.name, "--planned", "--fence", "none")
        assert (refused.code, "failback" in refused.out + refused.err) == (6, True), refused
    if kind == "reseed":
        world.kill(east)
        world.done("failover", east.name, "--to", west.name, "--emergency")
        east.wipe()
    reports: list[Any] = []
    with dying(monkeypatch) as deaths:
        for _ in range(60):
            try:
                reports.append(world.done(*commands[kind]))
                break
            except Killed:
                if kind == "failover" and deaths[0] == 2:  # it is fenced, and not forgotten
                    opposite = world.command("failover", west.name, "--to", east.name, "--planned", "--fence", "none")
                    assert (opposite.code, "unfinished" in opposite.out + opposite.err) == (6, True), opposite
    assert reports, f"not done after {deaths[0]} deaths"
    assert deaths[0] == 2 * len(reports[0]["steps"]), (
        "that it begins, and every step but the check: before and after it was written"
    )
    if kind == "failback":
        assert reports[0]["stranded_records"] == stranded, "counted once, however often it was interrupted"
        assert world.done("failback", east.name)["already"]
    if kind == "failover":
        world.done("failback", east.name, "--fence", "none", "--no-verify")
    settled(world)
    judge(world, traffic)
    for link in world.setup.config.links:
        assert isthmus(world.setup, "verify", link).code == 0


def test_killed_for_real(world: World, rng: random.Random) -> None:
    """The process of an operation is killed at any moment, again and again; in the end it is done, once."""
    east, west = world.east, world.west
    settled(world)
    with Traffic(east, world.topic, "real") as traffic:
        wait_for(lambda: traffic.count > 60, "some traffic")
    program = Path(sys.executable).with_name("isthmus")
    command = [
        str(program),
        "failover",
        east.name,
        "--to",
        west.name,
        "--planned",
        "--fence",
        "none",
        "--json",
        "--config",
        str(world.setup.path),
    ]

    def unfinished() -> bool:
        return any(row["unfinished"] for row in world.done("sites", "list"))

    # Once when it has surely begun, then at any moment.
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: unfinished() or first.poll() is not None, "the operation to begin", 90)
    first.kill()
    first.wait()
    for _ in range(20):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process.wait(rng.uniform(0.6, 2.5)) == 0:
                break
        process.kill()
        process.wait()
    else:
        report = world.done("failover", east.name, "--to", west.name, "--planned", "--fence", "none")
        assert report["attempts"] > 1
    world.done("failback", east.name, "--fence", "none", "--no-verify")
    settled(world)
    judge(world, traffic)


def test_rebuilt_with_links_one_way_only(world: World) -> None:
    """Active-passive: the standby takes over, rebuilds the lost site, and work comes home."""
    world.stop()
    east, west, topic, group = world.east, world.west, new_name("one-way"), new_name("readers")
    create_topic(east, topic, 1)
    link = {"from": east.name, "to": west.name, "topics": [topic], "origin": True}
    setup = configure({east.name: east, west.name: west}, {new_name("only"): link})
    first = [Message(f"first {n}".encode()) for n in range(40)]
    produce(east, topic, first)
    commit(east, group, {(topic, 0): 30})
    copy_until_caught_up(setup)
    assert isthmus(setup, "groups", "sync").code == 0

    def done(*arguments: str) -> None:
        answer = isthmus(setup, *arguments, "--json")
        assert answer.code == 0, f"{arguments}: {answer.code}\n{answer.out}\n{answer.err}"

    # What other configurations' links keep at a site is none of this one's business.
    preview = isthmus(setup, "reseed", west.name, "--from", east.name, "--wipe", "--dry-run", "--json").document
    (lines,) = (step["now"] for step in preview["steps"] if step["step"] == "empty")
    assert {line.split()[1] for line in lines} == {topic, *state.topics_of(setup.link)}
    world.kill(east)
    done("failover", east.name, "--to", west.name, "--emergency")
    second = [Message(f"second {n}".encode()) for n in range(20)]
    produce(west, topic, second)
    east.wipe()
    done("reseed", east.name, "--from", west.name)
    third = [Message(f"third {n}".encode()) for n in range(10)]
    produce(west, topic, third)
    done("failback", east.name, "--fence", "none")
    expected = [message.value for message in first + second + third]
    assert [record.value for record in read(east, topic)[0]] == expected
    assert [record.value for record in read(west, topic)[0]] == expected
    # Born at east: as it was; born at west: with its origin.
    origins = [dict(record.headers).get("isthmus-origin") for record in read(east, topic)[0]]
    assert origins == [None] * 40 + [west.name.encode()] * 30
    place = positions(east, group)[topic, 0].offset
    assert next(record.value for record in read(east, topic)[0] if record.offset >= place) == b"first 30"
    produce(east, topic, [Message(b"home")])
    copy_until_caught_up(setup)
    assert [record.value for record in read(west, topic)[0]] == [*expected, b"home"]
    assert isthmus(setup, "verify", setup.link).code == 0


def test_rebuilt_in_a_mesh(
    world: World, pair: tuple[KafkaSite, KafkaSite], make_module_site: Callable[..., KafkaSite]
) -> None:
    """A site of three is rebuilt from one of the others; its links to the third one go on exactly, too."""
    world.stop()
    third = make_module_site("third-dr")
    sites = {site.name: site for site in (*pair, third)}
    topic = new_name("mesh")
    for site in sites.values():
        create_topic(site, topic, 1)
    ways = {
        f"{topic}-{a}-{b}": {"from": a, "to": b, "topics": [topic], "loop": "foreign"}
        for a in sites
        for b in sites
        if a != b
    }
    setup = configure(sites, ways)

    def write(stem: str, count: int, *where: KafkaSite) -> None:
        for site in where or sites.values():
            produce(site, topic, [Message(f"{site.name} {stem} {n}".encode()) for n in range(count)])

    def copy(*names: str) -> None:
        for name in names or ways:
            copy_until_caught_up(setup, name)

    lost, survivor = pair
    write("first", 20)
    copy()
    # What the lost site has sent to the survivor, but not to the third one; and what the third one has sent to neither.
    write("second", 7, lost)
    copy(f"{topic}-{lost.name}-{survivor.name}")
    write("third", 5, third)
    world.kill(lost)
    for arguments in (
        ("failover", lost.name, "--to", survivor.name, "--emergency"),
        ("reseed", lost.name, "--from", survivor.name, "--no-verify"),
    ):
        if arguments[0] == "reseed":
            write("fourth", 6, survivor)
            lost.wipe()
        answer = isthmus(setup, *arguments, "--json")
        assert answer.code == 0, f"{arguments}: {answer.code}\n{answer.out}\n{answer.err}"
    write("fifth", 4)
    copy()
    for site in sites.values():
        found = [record.value or b"" for record in read(site, topic)[0]]
        assert len(found) == len(set(found)) == 3 * 20 + 7 + 5 + 6 + 3 * 4, (site.name, len(found), len(set(found)))
        for writer in sites:
            # In the order of its birthplace, everywhere.
            mine = [value for value in found if value.startswith(writer.encode())]
            assert [value.rpartition(b" ")[0] for value in mine] == sorted(
                (value.rpartition(b" ")[0] for value in mine),
                key=lambda v: [b"first", b"second", b"third", b"fourth", b"fifth"].index(v.rpartition(b" ")[2]),
            )
    for name in ways:
        report = verify(setup.config, name, workers=in_this_process)
        assert report.clean, (name, report.verdict, report.offenders)


def test_a_site_is_rebuilt_though_a_link_has_nothing_to_copy(make_site: Any, unique_topic: Any) -> None:
    """One link's topics are empty, one has no topic yet: the site is rebuilt, and all three go on. Nothing is said that is to be mended."""
    east, west = make_site("empty-a"), make_site("empty-b")
    full, empty = create_topic(east, unique_topic("full")), create_topic(east, unique_topic("empty"))
    later = unique_topic("later")
    common = {"from": east.name, "to": west.name}
    links = {new_name(name): {**common, "topics": [topic]} for name, topic in (("f", full), ("e", empty))}
    setup = configure(
        {east.name: east, west.name: west}, {**links, new_name("l"): {**common, "topics": [f"/{later}.*/"]}}
    )
    produce(east, full, [Message(b"%d" % n) for n in range(10)])
    for link in list(setup.config.links)[:2]:
        copy_until_caught_up(setup, link)
    west.wipe()
    answer = isthmus(setup, "reseed", west.name, "--from", east.name, "--no-verify", "--json")
    assert answer.code == 0, answer
    assert "reset the link" not in answer.err
    create_topic(east, later)
    for topic in (full, empty, later):
        produce(east, topic, [Message(b"after")])
    for link in setup.config.links:
        copy_until_caught_up(setup, link)
    found = {topic: values(read(west, topic))[0] for topic in (full, empty, later)}
    assert found == {full: [*(b"%d" % n for n in range(10)), b"after"], empty: [b"after"], later: [b"after"]}


def test_an_emergency_goes_on_though_a_link_has_never_run(make_site: Any, unique_topic: Any) -> None:
    east, west = make_site("never-a"), make_site("never-b")
    one, two = create_topic(east, unique_topic("one")), create_topic(east, unique_topic("two"))
    common = {"from": east.name, "to": west.name}
    ran, never = new_name("ran"), new_name("never")
    links = {ran: {**common, "topics": [one]}, never: {**common, "topics": [two]}}
    setup = configure({east.name: east, west.name: west}, links)
    produce(east, one, [Message(b"%d" % n) for n in range(10)])
    copy_until_caught_up(setup, ran)
    for broker in east.brokers:
        broker.kill()
    answer = isthmus(setup, "failover", east.name, "--to", west.name, "--emergency", "--json")
    assert answer.code == 0, answer
    assert f"link {never} has never run: nothing of {two} is at {west.name}" in answer.err
    assert [found for step in answer.document["steps"] for found in step["found"].get("never_ran", [])] == [never]
