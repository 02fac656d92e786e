"""A partition that nobody leads is not caught up: its end is not known, and status and run name it."""

from __future__ import annotations

from collections.abc import Callable

from links import Run, admin, compare, copy_until_caught_up, create_topic, numbered, one_link, produce, status, wait_for

from isthmus.sandbox import KafkaSite

Name = Callable[..., str]


def test_a_partition_without_leader_is_named(
    make_site: Callable[..., KafkaSite], west: KafkaSite, unique_topic: Name
) -> None:
    east = make_site(brokers=3)
    topic = create_topic(east, unique_topic("led"), 3)
    for partition in range(3):
        produce(east, topic, numbered(50, partition=partition))
    setup = one_link(east, west, [topic])
    copy_until_caught_up(setup)
    for partition in range(3):
        produce(east, topic, numbered(50, 50, partition=partition))
    client = admin(east)

    def leaders() -> dict[int, int]:
        return {p: found.leader for p, found in client.list_topics(topic, timeout=10).topics[topic].partitions.items()}

    victim = next(broker for broker in east.brokers if broker.node_id == max(leaders().values()))
    victim.kill()
    wait_for(lambda: -1 in leaders().values(), "a partition without leader")
    # Nobody who comes now hears of it before it returns.
    wait_for(lambda: victim.node_id not in client.list_topics(timeout=10).brokers, "the site to leave the broker out")
    lost = next(p for p, leader in leaders().items() if leader < 0)
    found = status(setup)
    assert [p["end"] is None for p in found["partitions"]] == [p == lost for p in range(3)]
    assert f"{topic}[{lost}]" in " ".join(found["trouble"])
    with Run(setup, "--until-caught-up") as started:
        wait_for(lambda: f"{topic}[{lost}]" in started.so_far().out, "the partition to be named", 120)
        assert started.process.poll() is None
        # It is waited for: with its broker it is copied, and all is done.
        victim.start()
        ended = started.finish()
    assert ended.code == 0, ended
    assert compare(east, west, topic) == 300
