"""A link from its first record to its last: where it starts, what it takes, how it is steered, stopped and guarded.

What needs no Spark runs without it; ``isthmus run`` is started for what only it does.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from links import (
    Message,
    Record,
    Replicator,
    Run,
    Setup,
    admin,
    allow,
    changed,
    compare,
    configure,
    copy_until_caught_up,
    create_topic,
    deny,
    ends,
    faults,
    grow_topic,
    isthmus,
    new_name,
    numbered,
    one_link,
    partitions_of,
    produce,
    quota,
    read,
    replicator_process,
    run,
    send,
    status,
    topic_config,
    topics_of,
    transaction,
    wait_for,
    wait_for_records,
)

from isthmus.engine.copy import Copier
from isthmus.kafka.produce import Interrupted, Producer
from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]
HERE = Path(__file__).parent


def values(site: KafkaSite, topic: str) -> list[bytes | None]:
    return [record.value for records in read(site, topic).values() for record in records]


# -- where it starts -------------------------------------------------------------------------------------


def test_starts(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("starts"), 2)
    base = 1_750_000_000_000
    produce(
        east, topic, [Message(b"%d" % n, timestamp=base + n * 1000, partition=p) for p in (0, 1) for n in range(20)]
    )
    moment = datetime.fromtimestamp(base / 1000 + 7.5, UTC).isoformat()
    late = datetime.fromtimestamp(base / 1000 + 3600, UTC).isoformat()
    cases: dict[str, tuple[Any, dict[int, int]]] = {
        "earliest": ("earliest", {}),
        "latest": ("latest", {0: 20, 1: 20}),
        "timestamp": ({"timestamp": moment}, {0: 8, 1: 8}),
        "after-all": ({"timestamp": late}, {0: 20, 1: 20}),
        "offsets": ({"offsets": {topic: {"1": 15}}}, {1: 15}),
    }
    links = {
        new_name(name): {
            "from": east.name,
            "to": west.name,
            "topics": [topic],
            "rename": "{link}.{topic}",
            "start": start,
        }
        for name, (start, _) in cases.items()
    }
    setup = configure({east.name: east, west.name: west}, links)
    for link, (_, since) in zip(links, cases.values(), strict=True):
        copy_until_caught_up(setup, link)
        assert compare(east, west, topic, f"{link}.{topic}", since=since) == sum(20 - since.get(p, 0) for p in (0, 1))
    produce(east, topic, numbered(5, partition=1))
    for link, (_, since) in zip(links, cases.values(), strict=True):
        copy_until_caught_up(setup, link)
        compare(east, west, topic, f"{link}.{topic}", since=since)


def test_what_appears_later_is_copied_from_its_first_record(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    stem = unique_topic("later")
    first = create_topic(east, f"{stem}.a")
    produce(east, first, numbered(10))
    setup = one_link(east, west, [f"/{stem}\\..*/"], start="latest")
    copy_until_caught_up(setup)
    assert values(west, first) == []
    second = create_topic(east, f"{stem}.b")
    grow_topic(east, first, 2)
    produce(east, second, numbered(10))
    produce(east, first, numbered(5, 100) + numbered(10, partition=1))
    copy_until_caught_up(setup)
    assert compare(east, west, second) == 10
    assert partitions_of(west, first) == 2
    assert compare(east, west, first, since={0: 10}) == 15


# -- what it takes ---------------------------------------------------------------------------------------


def test_topics_and_names(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem = unique_topic("take")
    names = ["orders.eu", "orders.us", "orders.test-1", "payments", "audit"]
    for name in names:
        produce(east, create_topic(east, f"{stem}.{name}"), numbered(3))
    # Internal topics exist at the source, and every pattern matches them.
    back = one_link(west, east, [f"{stem}.nothing"])
    create_topic(west, f"{stem}.nothing")
    copy_until_caught_up(back)
    assert any(topic.startswith("_isthmus.") for topic in topics_of(east))
    assert "__transaction_state" in topics_of(east)

    setup = one_link(
        east,
        west,
        {
            "include": [f"/{stem}\\.orders\\..*/", f"{stem}.payments", "/__.*/", "/_isthmus.*/"],
            "exclude": [f"{stem}.orders.us", "/.*test.*/"],
        },
        rename="{source}.{topic}.{link}",
    )
    before = topics_of(west)
    copy_until_caught_up(setup)
    made = {topic for topic in topics_of(west) - before if not topic.startswith("_isthmus.")}
    assert made == {f"{east.name}.{stem}.{name}.{setup.link}" for name in ("orders.eu", "payments")}
    assert compare(east, west, f"{stem}.payments", f"{east.name}.{stem}.payments.{setup.link}") == 3


def test_a_created_topic_is_like_its_source(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    settings = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "123456789",
        "max.message.bytes": "2000000",
        "segment.bytes": "20000000",
        "delete.retention.ms": "1234567",
    }
    topic = create_topic(east, unique_topic("like"), 7, **{k.replace(".", "_"): v for k, v in settings.items()})
    copy_until_caught_up(one_link(east, west, [topic]))
    assert partitions_of(west, topic) == 7
    assert {key: topic_config(west, topic)[key] for key in settings} == settings


def test_partitions_of_a_destination_that_exists(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("grown"), 4)
    create_topic(west, topic, 2)
    produce(east, topic, [m for p in range(4) for m in numbered(5, partition=p)])
    copy_until_caught_up(one_link(east, west, [topic]))
    assert compare(east, west, topic) == 20


# -- going on --------------------------------------------------------------------------------------------


def test_progress_survives_a_restart_and_another_name(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("restart"), 2)
    produce(east, topic, numbered(10) + numbered(10, partition=1))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    produce(east, topic, numbered(10, 10))
    copy_until_caught_up(setup, slots=3)
    assert compare(east, west, topic) == 30

    renamed = changed(setup, rename="new.{topic}")
    produce(east, topic, numbered(10, 20) + numbered(10, 10, partition=1))
    copy_until_caught_up(renamed)
    assert compare(east, west, topic, f"new.{topic}", since={0: 20, 1: 10}) == 20
    assert len(values(west, topic)) == 30
    # The positions that status shows are of the name that counts.
    assert {p["target"]: p["position"] for p in status(renamed)["partitions"] if p["partition"] == 0} == {
        f"new.{topic}": ends(east, topic)[0]
    }
    copy_until_caught_up(renamed)
    assert len(values(west, f"new.{topic}")) == 20


def test_expired_progress_is_restored_from_the_map(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("expired"), 3)
    produce(east, topic, numbered(50) + numbered(50, partition=1))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    with transaction(east, commit=False) as producer:
        send(producer, topic, numbered(10))
    copy_until_caught_up(setup)
    client = admin(west)
    group = f"_isthmus.{setup.link}"
    client.delete_consumer_groups([group])[group].result(30)
    produce(east, topic, numbered(10, 50) + numbered(10, partition=2))
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 120


def test_where_latest_was_outlives_expired_progress(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("expired-latest"))
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [topic], start="latest")
    copy_until_caught_up(setup)
    client = admin(west)
    group = f"_isthmus.{setup.link}"
    client.delete_consumer_groups([group])[group].result(30)
    produce(east, topic, numbered(5, 10))  # after the link was born: to be copied
    copy_until_caught_up(setup)
    assert compare(east, west, topic, since={0: 10}) == 5


def test_a_lease_that_ends_while_a_copy_begins_again(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in its commit, a task takes its ids again and then sees that its lease is over: nothing of what was on its way may count."""
    topic = create_topic(east, unique_topic("begins-again"))
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(100))
    commit, look, looks = Producer.commit, Copier._look_at_claim, []

    async def interrupted(self: Producer, group: str, progress: Any) -> None:
        if self.sent and not looks:
            looks.append("interrupted")
            raise Interrupted("by a test")
        await commit(self, group, progress)

    async def looking(self: Copier, stable: bool) -> None:
        await look(self, stable)
        if looks and len(looks) < 3:
            looks.append("looked")
            self._ending = len(looks) == 3

    monkeypatch.setattr(Producer, "commit", interrupted)
    monkeypatch.setattr(Copier, "_look_at_claim", looking)
    with Replicator(setup):
        wait_for_records(west, topic, 100, 60)
    assert looks == ["interrupted", "looked", "looked"]
    assert [record.value for record in read(west, topic)[0]] == [record.value for record in read(east, topic)[0]]


def test_at_least_once(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("at-least-once"), 2)
    setup = one_link(east, west, [topic], delivery="at-least-once")
    produce(east, topic, [m for p in (0, 1) for m in numbered(20_000, partition=p, size=500)])
    with replicator_process(setup) as process:
        wait_for(lambda: topic in topics_of(west) and sum(ends(west, topic).values()) > 1000, "records", pause=0)
        process.kill()
    copy_until_caught_up(setup)
    assert compare(east, west, topic, twice_is_fine=True) == 40_000
    # Nothing is transactional about it: no markers, no transactional ids.
    found = read(west, topic)
    assert all([r.offset for r in records] == list(range(len(records))) for records in found.values())
    produce(east, topic, numbered(10))
    before = sum(len(records) for records in found.values())
    copy_until_caught_up(setup)
    assert len(values(west, topic)) == before + 10


# -- steering --------------------------------------------------------------------------------------------


def copied(setup: Setup, topic: str) -> int:
    return sum(p["position"] or 0 for p in status(setup)["partitions"] if p["topic"] == topic)


def wait_until_held(setup: Setup, topic: str) -> None:
    """Return when a record that is produced now is not copied. Tasks look once a second, on a busy machine later."""

    def held() -> bool:
        produce(setup.source, topic, [Message(b"held?")])
        time.sleep(1.0)  # nothing tells that something does not happen
        return copied(setup, topic) < sum(ends(setup.source, topic).values())

    wait_for(held, "the link to be held")


def test_a_pause_outlives_the_brokers_memory(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Brokers forget a group's offsets after a week without a commit; what an operator asked for still holds."""
    topic = create_topic(east, unique_topic("forgotten"))
    setup = one_link(east, west, [topic])
    produce(east, topic, numbered(10))
    copy_until_caught_up(setup)
    assert isthmus(setup, "pause", setup.link).code == 0
    client = admin(west)
    client.delete_consumer_groups([f"_isthmus.{setup.link}"])[f"_isthmus.{setup.link}"].result(30)
    with Replicator(setup):
        wait_for(lambda: status(setup)["state"] == "paused", "the pause to be put back")
        produce(east, topic, numbered(10, 10))
        assert isthmus(setup, "resume", setup.link).code == 0
        wait_for_records(west, topic, 20)
    assert compare(east, west, topic) == 20


def test_pause_resume_and_limit_reach_a_lease_in_flight(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("steered"), 2)
    setup = one_link(east, west, [topic], lease="10m")
    assert isthmus(setup, "pause", setup.link).code == 6  # UnknownLink: it never ran
    produce(east, topic, numbered(10))
    with Replicator(setup) as replicator:
        wait_for_records(west, topic, 10)
        assert isthmus(setup, "pause", setup.link, "--json").document == {
            "link": setup.link,
            "paused": True,
            "rate_limit": None,
            "held": "",
        }
        assert status(setup)["state"] == "paused"
        wait_until_held(setup, topic)
        assert isthmus(setup, "resume", setup.link).code == 0
        produced = sum(ends(east, topic).values())
        wait_for_records(west, topic, produced)

        isthmus(setup, "limit", setup.link, "200kB/s")
        assert status(setup)["rate_limit"] == 200_000
        time.sleep(2.0)  # nothing tells that a task has read it
        # Small batches in many requests, so that a piece is small against the limit.
        started = time.monotonic()
        for part in range(40):
            produce(east, topic, numbered(20, part * 20, partition=part % 2, size=1000))
        wait_for(lambda: copied(setup, topic) > produced + 200, "some records")
        seconds, sent = time.monotonic() - started, (copied(setup, topic) - produced) * 1000
        # Half a second may be saved up, and each slot may overdraw by what it had fetched.
        assert sent < 200_000 * (seconds + 3.5), f"{sent} bytes in {seconds:.1f} s"
        isthmus(setup, "limit", setup.link, "off")
        wait_for_records(west, topic, produced + 800)
        assert replicator.leases == 1
        isthmus(setup, "limit", setup.link, "config")
        assert status(setup)["rate_limit"] is None
    assert compare(east, west, topic) == produced + 800


def test_rate_limit(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("limited"), 4)
    produce(east, topic, [m for p in range(4) for m in numbered(2500, partition=p, size=1000)])
    setup = one_link(east, west, [topic], rate_limit="2 MB/s")
    started = time.monotonic()
    copy_until_caught_up(setup)
    seconds = time.monotonic() - started
    print(f"10 MB at 2 MB/s took {seconds:.1f} s")
    # The first 4 MB of a slot are not held up, but what is over the limit then is waited for.
    assert 3.0 < seconds < 60
    free = changed(setup, rate_limit=None, rename="{topic}.free")
    copy_until_caught_up(free)
    assert compare(east, west, topic) == 10_000


def test_a_quota_of_the_broker_is_waited_for(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("quota"), 4)
    produce(east, topic, [m for p in range(4) for m in numbered(12_000, partition=p, size=1000)])
    setup = one_link(east, west, [topic])
    # The broker judges the last eleven seconds: 22 MB pass before it bids its client wait.
    with quota(west, producer_byte_rate=2_000_000.0):
        started = time.monotonic()
        copy_until_caught_up(setup)
        print(f"48 MB with a quota of 2 MB/s took {time.monotonic() - started:.1f} s")
    assert compare(east, west, topic) == 48_000
    # Waiting is all that happened: no transaction was given up for it.
    assert sum(len(records) for records in read(west, topic, committed=False).values()) == 48_000


# -- what status says ------------------------------------------------------------------------------------


def test_status_numbers(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("numbers"), 3)
    setup = one_link(east, west, [topic], rename="copy.{topic}", rate_limit="50 MB/s")
    never = status(setup)
    assert (never["state"], never["lag"], never["lease"]) == ("never ran", 0, 0)
    produce(east, topic, numbered(100) + numbered(50, partition=1))
    copy_until_caught_up(setup)
    produce(east, topic, numbered(7, partition=1))
    with transaction(east) as producer:
        send(producer, topic, numbered(3, partition=2))
    found = status(setup)
    assert found["link"] == setup.link
    assert (found["from"], found["to"]) == (east.name, west.name)
    assert found["rate_limit"] == 50_000_000
    assert found["lease"] == 1
    assert [(p["partition"], p["target"], p["position"], p["end"], p["lag"]) for p in found["partitions"]] == [
        (0, f"copy.{topic}", 100, 100, 0),
        (1, f"copy.{topic}", 50, 57, 7),
        (2, f"copy.{topic}", 0, 4, 4),
    ]
    assert found["lag"] == 11
    with Replicator(setup):
        wait_for(lambda: status(setup)["state"] == "running", "the link to run")
        wait_for(lambda: status(setup)["lag"] == 0, "no lag")
    table = isthmus(setup, "status", setup.link)
    assert table.code == 0
    assert f"{topic}[1]" in table.out
    assert "57" in table.out
    unknown = isthmus(setup, "status", "no-such-link")
    assert unknown.code == 2
    assert setup.link in unknown.err


# -- isthmus run -----------------------------------------------------------------------------------------


def test_two_links_a_rule_and_a_second_run(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    plain, ruled = create_topic(east, unique_topic("plain"), 2), create_topic(east, unique_topic("ruled"))
    produce(east, plain, numbered(1000) + numbered(1000, partition=1))
    cards = [
        Message(b"card 4111111111111111 of %d" % n, b"test-1" if n % 5 == 0 else b"real", [("n", b"%d" % n)])
        for n in range(1000)
    ]
    produce(east, ruled, cards)
    first, second = new_name("plain"), new_name("ruled")
    ends_ = {"from": east.name, "to": west.name}
    setup = configure(
        {east.name: east, west.name: west},
        {
            first: {**ends_, "topics": [plain]},
            second: {**ends_, "topics": [ruled], "rules": ["mask_cards:without_tests", "mask_cards:mask"]},
        },
    )
    env = {"PYTHONPATH": str(HERE.parent.parent / "examples")}

    def masked(record: Record) -> Record | None:
        if record.key == b"test-1":
            return None
        value = (record.value or b"").replace(b"4111111111111111", b"************1111")
        return Record(record.offset, record.key, value, record.headers, record.timestamp_type, record.timestamp)

    for rounds in (1, 2):
        # Spark's checkpoint is gone with the run; what is at the destination is enough to go on.
        answer = run(setup, "--until-caught-up", env=env)
        assert answer.code == 0, answer
        assert [line["state"] for line in answer.lines[-2:]] == ["stopped", "stopped"]
        assert {line["link"]: line["lag"] for line in answer.lines[-2:]} == {first: 0, second: 0}
        assert compare(east, west, plain) == 2000 * rounds
        assert compare(east, west, ruled, expect=masked) == 800 * rounds
        produce(east, plain, numbered(1000, 1000) + numbered(1000, 1000, partition=1))
        produce(east, ruled, cards)
    assert read(west, ruled)[0][0].value == b"card ************1111 of 1"


def test_a_run_follows_its_source_and_its_operators(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    stem = unique_topic("follow")
    topic = create_topic(east, f"{stem}.a")
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [f"/{stem}\\..*/"])
    with Run(setup) as started:
        wait_for_records(west, topic, 10)
        added = create_topic(east, f"{stem}.b")
        grow_topic(east, topic, 2)
        produce(east, added, numbered(10))
        produce(east, topic, numbered(10, partition=1))
        appeared = time.monotonic()
        wait_for_records(west, added, 10)
        wait_for_records(west, topic, 20)
        seconds, busy = time.monotonic() - appeared, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        print(f"a new topic and a new partition were copied after {seconds:.1f} s, with {busy:.1f} times the work")
        assert seconds < 30 * busy

        isthmus(setup, "pause", setup.link)
        wait_until_held(setup, topic)
        isthmus(setup, "resume", setup.link)
        produced = sum(ends(east, topic).values())
        wait_for_records(west, topic, produced)
        assert started.so_far().code == -1
        assert {p["lag"] for p in status(setup)["partitions"]} == {0}

        # Ctrl-C in the middle of a stream of records.
        produce(east, topic, [m for p in (0, 1) for m in numbered(20_000, partition=p, size=1000)])
        wait_for(lambda: copied(setup, topic) > 1000, "the stream", pause=0)
        started.interrupt()
        answer = started.finish(60)
        assert answer.code == 130, answer
        assert answer.lines[-1]["error"] == "Interrupted"
        wait_for(lambda: not started.processes(), "Spark to be gone", 10)
    # At a transaction boundary: nothing is left open, and nothing was aborted.
    assert ends(west, topic) == ends(west, topic, committed=False)
    there = values(west, topic)
    assert len(there) == len([r for records in read(west, topic, committed=False).values() for r in records])
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == produced + 40_000


def test_duration_and_exit_codes(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("timed"))
    setup = one_link(east, west, [topic, "not-there-yet"])
    produce(east, topic, numbered(10))
    answer = run(setup, setup.link, "--duration", "1s")
    assert answer.code == 0, answer
    assert answer.err == ""
    assert run(setup, "--duration", "soon").code == 2
    # Time that is over is not the same as done.
    assert isthmus(setup, "pause", setup.link).code == 0
    produce(east, topic, numbered(5))
    answer = run(setup, "--until-caught-up", "--duration", "2s")
    assert (answer.code, "not caught up after 2s" in answer.lines[-1]["message"]) == (1, True), answer
    assert isthmus(setup, "resume", setup.link).code == 0
    assert run(setup, "no-such-link").code == 2
    # A partition that stands still is the exit code of a run that caught up with all the others.
    create_topic(west, f"{topic}.small", max_message_bytes="2000")
    produce(east, topic, [Message(b"x" * 5000)])
    small = changed(setup, rename="{topic}.small")
    answer = run(small, "--until-caught-up")
    assert answer.code == 6, answer
    assert answer.lines[-1]["error"] == "RecordTooLarge"
    assert answer.lines[-1]["topic"] == topic
    assert faults(small) == {(topic, 0): "RecordTooLarge"}


# -- guarded sites ---------------------------------------------------------------------------------------

SECRET = f"s3cr3t-{os.urandom(8).hex()}"
SECURITY = HERE.parent.parent / "docs" / "security.md"


def documented(site: str) -> list[tuple[str, str, str]]:
    """Operation, kind and prefix of each right that docs/security.md lists for a site."""
    _, _, text = SECURITY.read_text().partition(f"At the {site}:")
    rows = [line.split("|")[1:4] for line in text.strip().split("\n\n")[0].splitlines()[2:]]
    found = []
    for operation, kind, name in ([cell.strip() for cell in row] for row in rows):
        prefix = re.sub(r"`(.*)` \(prefix\)", r"\1", name)
        found.append((operation.lower().replace("_", "-"), kind.replace(" ", "-"), prefix))
    return found


@pytest.fixture(scope="module")
def guarded(box: Sandbox) -> Iterator[dict[str, KafkaSite]]:
    """A site for each way to prove who one is."""
    users = {"isthmus": SECRET}
    ways: dict[str, dict[str, Any]] = {
        "scram-tls": {"sasl": "SCRAM-SHA-256", "tls": True, "acls": True},
        "mutual-tls": {"mutual_tls": True, "acls": True},
        "plain": {"sasl": "PLAIN"},
        "scram-512": {"sasl": "SCRAM-SHA-512"},
        "oauth": {"sasl": "OAUTHBEARER"},
    }
    sites = {name: box.kafka(name, users=users, wait=False, **options) for name, options in ways.items()}
    for site in sites.values():
        site.wait()
    yield sites
    for name in sites:
        box.remove(name)


def grant(east: KafkaSite, west: KafkaSite, topics: str, without: tuple[str, str, str] | None = None) -> None:
    """Exactly the documented ACLs."""
    for site, acls in ((east, documented("source")), (west, documented("destination"))):
        deny(site)
        for operation, kind, prefix in acls:
            if (operation, kind, prefix) != without or site is east:
                allow(site, operation, kind, prefix.replace("TOPICS", topics))


def test_every_mechanism(guarded: dict[str, KafkaSite], unique_topic: Name) -> None:
    for source, target in (("plain", "scram-512"), ("scram-512", "oauth"), ("oauth", "plain")):
        east, west = guarded[source], guarded[target]
        topic = create_topic(east, unique_topic(f"from-{source}"))
        produce(east, topic, numbered(100))
        copy_until_caught_up(one_link(east, west, [topic]))
        assert compare(east, west, topic) == 100


def test_exactly_the_documented_acls(guarded: dict[str, KafkaSite], unique_topic: Name) -> None:
    east, west = guarded["scram-tls"], guarded["mutual-tls"]
    stem = unique_topic("acl")
    grant(east, west, stem)
    topic = create_topic(east, f"{stem}.a", 2, retention_bytes="123456789")
    produce(east, topic, numbered(100) + numbered(100, partition=1))
    setup = one_link(east, west, [f"/{stem}.*/"], name=new_name("acl"))
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 200
    assert topic_config(west, topic)["retention.bytes"] == "123456789"
    grow_topic(east, topic, 3)
    create_topic(east, f"{stem}.b")
    produce(east, topic, numbered(10, partition=2))
    copy_until_caught_up(setup)
    assert compare(east, west, topic) == 210
    for verb in (["pause"], ["resume"], ["limit", "1GB/s"]):
        assert isthmus(setup, verb[0], setup.link, *verb[1:]).code == 0
    assert isthmus(setup, "offsets", setup.link, f"{topic}:0", "5").code == 0
    assert isthmus(setup, "reset", setup.link, f"{topic}:0", "--to", "current").code == 0
    assert isthmus(setup, "config", "check", "--live").code == 0
    assert faults(setup) == {}
    # What the list calls optional: without it a topic is created as the destination's own are.
    for site in (east, west):
        deny(site, "describe-configs")
    plain = create_topic(east, f"{stem}.c", retention_bytes="123456789")
    produce(east, plain, numbered(10))
    copy_until_caught_up(setup)
    assert compare(east, west, plain) == 10
    assert topic_config(west, plain)["retention.bytes"] == "-1"


@pytest.mark.parametrize(
    "acl", [acl for acl in documented("destination") if acl[0] != "describe-configs"], ids="-".join
)
def test_each_documented_acl_is_needed(
    guarded: dict[str, KafkaSite], unique_topic: Name, acl: tuple[str, str, str]
) -> None:
    east, west = guarded["scram-tls"], guarded["mutual-tls"]
    stem = unique_topic("need")
    grant(east, west, stem, without=acl)
    topic = create_topic(east, f"{stem}.a", 2)
    grown = create_topic(east, f"{stem}.b", 2)
    create_topic(west, grown)
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [topic, grown])
    try:
        copy_until_caught_up(setup, timeout=10, faults_are_fine=True)
        found = set(faults(setup).values())
        assert found == {"DestinationRefused"}
    except Exception as error:
        assert type(error).__name__ == "AuthorisationFailed", repr(error)  # noqa: PT017
        assert "grant ALLOW" in str(error)  # noqa: PT017


def test_secrets_stay_secret(guarded: dict[str, KafkaSite], unique_topic: Name, tmp_path: Path) -> None:
    east, west = guarded["scram-tls"], guarded["plain"]
    topic = create_topic(east, unique_topic("secret"))
    grant(east, guarded["mutual-tls"], topic)
    produce(east, topic, numbered(100))
    spark = {"spark.authenticate": "true", "spark.authenticate.secret": SECRET}
    link = {"from": east.name, "to": west.name, "topics": [topic]}
    setup = configure({east.name: east, west.name: west}, {new_name(): link}, spark=spark)
    env = {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path), "ISTHMUS_DEBUG": "1"}
    with Run(setup, env=env) as started:
        wait_for_records(west, topic, 100)
        for pid in started.processes():
            for what in ("cmdline", "environ"):
                assert SECRET.encode() not in Path(f"/proc/{pid}/{what}").read_bytes()
        written = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(tmp_path.iterdir())  # Spark's own place; what a task is given never goes through a file
        assert not [path for path in written if SECRET.encode() in path.read_bytes()]
        started.interrupt()
        answer = started.finish()
    assert answer.code == 130
    assert SECRET not in answer.out + answer.err
    for arguments in (["config", "show"], ["config", "show", "--json"], ["status"], ["config", "check", "--live"]):
        said = isthmus(setup, *arguments)
        assert said.code == 0, said
        assert SECRET not in said.out + said.err
    assert SECRET not in repr(setup.config) + str(setup.config.model_dump())
    assert SECRET not in json.dumps(setup.config.model_dump(mode="json"))
