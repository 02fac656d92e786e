"""What an emergency declares as lost, against what is: per partition, and without slack.

Invariant: every record that was lost was either seen and counted, or acknowledged after the time until which its partition is said to be known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from disaster import within_declared
from links import (
    Message,
    Replicator,
    Setup,
    configure,
    copy_until_caught_up,
    create_topic,
    delete_topic,
    ends,
    numbered,
    producer_of,
    read,
    status,
    wait_for,
    wait_for_records,
)
from readers import commit, read_on, sync

from isthmus.kafka.cluster import Cluster
from isthmus.recovery.failover import failover
from isthmus.recovery.standing import Known, standing
from isthmus.sandbox import KafkaSite

Acked = dict[tuple[str, int], dict[bytes, float]]


def write(site: KafkaSite, topic: str, messages: list[Message], acked: Acked) -> None:
    """Produce, and note when each acknowledgement was heard."""
    producer = producer_of(site, linger_ms=0, message_max_bytes=2_000_000)

    def told(error: Any, message: Any) -> None:
        assert error is None, error
        acked.setdefault((topic, message.partition()), {})[message.value()] = time.time()

    for message in messages:
        producer.produce(topic, message.value, message.key, partition=message.partition, on_delivery=told)
        producer.poll(0)
    assert producer.flush(60) == 0


def known(setup: Setup, link: str) -> Known:
    """What the link's reports say of its source."""
    with Cluster(setup.config.sites[setup.config.links[link].target]) as cluster:
        cluster.call(cluster.connect)
        found: Known = cluster.call(standing, cluster, setup.config.links[link]).known()
        return found


def test_what_died_with_a_site(make_site: Callable[..., KafkaSite], unique_topic: Callable[..., str]) -> None:
    """Partitions that stood still, a topic that was made again, one that nobody had discovered, a link that is throttled, and one that did not run."""
    east, west = make_site(wait=False), make_site(wait=False)
    east.wait()
    west.wait()
    stem = unique_topic("lost")
    fine, large, anew, slow, idle = (create_topic(east, f"{stem}-{name}") for name in ("a", "b", "c", "slow", "idle"))
    create_topic(west, large, max_message_bytes="20000")
    ways = {"from": east.name, "to": west.name}
    setup = configure(
        {east.name: east, west.name: west},
        {
            f"{stem}-plain": {**ways, "topics": [f"/{stem}-[a-z]/"]},
            f"{stem}-throttled": {**ways, "topics": [slow], "rate_limit": "1 kB/s"},
            f"{stem}-idle": {**ways, "topics": [idle]},
        },
    )
    plain, throttled, stopped = setup.config.links
    acked: Acked = {}
    for topic in (fine, large, anew, slow, idle):
        write(east, topic, numbered(5), acked)
    copy_until_caught_up(setup, stopped, slots=1)
    write(east, idle, numbered(7, 5), acked)
    with ExitStack() as stack:
        stack.enter_context(Replicator(setup, plain, slots=2))
        stack.enter_context(Replicator(setup, throttled, slots=1))
        for topic in (fine, large, anew, slow):
            wait_for_records(west, topic, 5)
        # A group: the last look at it is this one, and it reads on.
        group = f"{stem}-readers"
        commit(east, group, {(fine, 0): 2})
        sync(setup, "--link", plain, group)
        commit(east, group, {(fine, 0): 4})
        write(east, large, [Message(b"x" * 100_000)], acked)
        delete_topic(east, anew)
        del acked[anew, 0]
        create_topic(east, anew)
        write(east, anew, numbered(1000), acked)
        new = create_topic(east, f"{stem}-n")
        write(east, new, numbered(1000), acked)

        def standing_still() -> bool:
            return {p["topic"] for p in status(setup, plain)["partitions"] if p["fault"]} == {large, anew}

        wait_for(standing_still, "both faults")
        write(east, large, numbered(1000, 5), acked)
        # Enough to be in debt for minutes; what comes then is seen and not fetched.
        write(east, slow, numbered(1000, 5, size=300), acked)
        wait_for(lambda: sum(ends(west, slow).values()) > 10, "the throttled link")
        write(east, slow, numbered(100, 1005), acked)
        # Tasks go on to ask where those end that they do not fetch.
        wait_for(lambda: known(setup, plain).ends.get((large, 0)) == 1006, "word of the one that stands still")
        wait_for(lambda: known(setup, plain).ends.get((anew, 0)) == 1000, "word of the one that was made again")
        wait_for(lambda: known(setup, throttled).ends.get((slow, 0)) == 1105, "word of the one that is throttled")
        write(east, fine, numbered(200, 5), acked)
        for broker in east.brokers:
            broker.kill()
        words: list[str] = []
        report = failover(setup.config, east.name, west.name, "emergency", lambda told: words.append(told.words))
    here = {topic: {r.value for r in read(west, topic)[0]} for topic in (fine, large, slow, idle)}
    here[anew] = {r.value for r in read(west, anew)[0][5:]}
    lost = {key: {v: at for v, at in sent.items() if v not in here.get(key[0], ())} for key, sent in acked.items()}
    (links,) = (step["found"]["links"] for step in report["steps"] if step["step"] == "declare")
    by_name = {link["link"]: link for link in links}
    # Nobody had discovered it: what it holds came after the last look for topics.
    assert min(lost.pop((new, 0)).values()) > by_name[plain]["topics_known_until"]
    within_declared(setup, report, {key: list(sent.values()) for key, sent in lost.items()})
    declared = {each["topic"]: each["most"] for link in links for each in link["partitions"]}
    assert (len(lost[large, 0]), declared[large]) == (1001, 1001)
    assert (len(lost[anew, 0]), declared[anew]) == (1000, 1000)
    assert declared[slow] >= len(lost[slow, 0]) > 0
    # Nobody asked for the end of that one since: what is lost of it was not seen, and is said to be unknown.
    assert len(lost[idle, 0]) == 7
    assert idle not in declared
    assert by_name[stopped]["known_until"] < min(lost[idle, 0].values())
    assert not report["at_most"]
    assert report["known_until"] == min(link["known_until"] for link in links)
    said = " ".join(words)
    assert f"Seen at {east.name} and not copied: " in said
    assert "at most" not in said
    # Read again is what the group committed since the last look, and no more; and nothing is skipped.
    numbers = [int(value.split()[1]) for value in read_on(west, group, fine)[0]]
    assert numbers == list(range(2, 2 + len(numbers)))
    assert len(numbers) == len(here[fine]) - 2
