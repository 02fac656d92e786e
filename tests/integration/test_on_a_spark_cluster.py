"""The core cases on a real Spark standalone cluster: a master and two workers as processes of their own.

What differs from ``local[*]``: planner and tasks are in other processes than the driver, leases travel over the network
with their secrets, and a lost executor takes its tasks with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import links
import pytest

from isthmus.sandbox import KafkaSite, Sandbox


@pytest.fixture(scope="module")
def cluster(box: Sandbox) -> Iterator[dict[str, str]]:
    spark = box.spark(workers=2)
    yield {**spark.session_config(), "spark.cores.max": "2", "spark.executor.memory": "512m"}
    spark.stop()


def setup_for(east: KafkaSite, west: KafkaSite, topic: str, spark: dict[str, str]) -> links.Setup:
    name = links.new_name()
    link = {"from": east.name, "to": west.name, "topics": [topic], "tasks": 2}
    return links.configure({east.name: east, west.name: west}, {name: link}, spark=spark)


def executors_python() -> list[int]:
    """Python workers that copy: children of the executors' daemons."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            above = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"isthmus.engine.daemon" in words and b"isthmus.engine.daemon" in above:
            found.append(int(entry.name))
    return found


def test_copies_survives_a_killed_worker_and_goes_on(
    east: KafkaSite, west: KafkaSite, unique_topic, cluster: dict[str, str]
) -> None:
    topic = links.create_topic(east, unique_topic(), partitions=4)
    for partition in range(4):
        links.produce(east, topic, links.numbered(5000, partition=partition))
    setup = setup_for(east, west, topic, cluster)
    with links.Run(setup) as running:
        links.wait_for_records(west, topic, 20_000)
        workers = links.wait_for(executors_python, "Python workers on the executors")
        os.kill(workers[0], signal.SIGKILL)
        for partition in range(4):
            links.produce(east, topic, links.numbered(5000, 5000, partition=partition))
        links.wait_for_records(west, topic, 40_000)
        running.interrupt()
        assert running.finish().code == 130
    links.compare(east, west, topic)
    # Another run, on the same cluster, goes on from what is committed.
    links.produce(east, topic, links.numbered(1000, 10_000))
    answer = links.run(setup, "--until-caught-up")
    assert answer.code == 0, answer
    links.compare(east, west, topic)
