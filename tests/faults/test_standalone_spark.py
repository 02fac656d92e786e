"""The core cases on a Spark cluster of several processes: a master, two workers, their executors."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ledger import Judge, Load
from replicator import DAEMON, Process, Replicator, descendants, wait_until_gone

from isthmus.sandbox import KafkaSite, Sandbox
from isthmus.sandbox.spark import SparkCluster

# Executors that start fast and fit on one machine beside brokers.
SMALL = {
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def cluster(box: Sandbox) -> Iterator[SparkCluster]:
    spark = box.spark(workers=2)
    yield spark
    spark.stop()


def started_by(cluster: SparkCluster, words: str) -> list[Process]:
    """Processes of the cluster's workers, by what is in their command line."""
    return [p for w in cluster.workers if w.pid is not None for p in descendants(w.pid) if words in p.command]


def python_workers(cluster: SparkCluster) -> list[int]:
    """Workers that a daemon has forked: their parent has the same command line."""
    found = started_by(cluster, f"-m {DAEMON}")
    daemons = {p.pid for p in found}
    return [p.pid for p in found if p.parent in daemons]


def check(run: Replicator, judge: Judge, load: Load, what: str) -> None:
    moment = time.monotonic()
    judge.follow(load)
    print(f"{what}; caught up after {time.monotonic() - moment:.1f} s")
    assert not run.ended, run.output


def test_killed_workers_and_drivers_then_until_caught_up(
    east: KafkaSite,
    west: KafkaSite,
    cluster: SparkCluster,
    make_scene: Callable[..., Any],
    replicate: Callable[..., Replicator],
    rng: random.Random,
) -> None:
    scene = make_scene(east, west, spark={**cluster.session_config(), **SMALL})
    with scene.judge() as judge:
        with scene.load() as load:
            run = replicate(scene)
            check(run, judge, load, "started")

            os.kill(rng.choice(python_workers(cluster)), signal.SIGKILL)
            check(run, judge, load, "a Python worker killed")

            lost = rng.choice(cluster.workers)
            orphans = [p.pid for p in descendants(lost.pid or 0)]
            lost.kill()
            wait_until_gone(orphans)
            lost.start()
            check(run, judge, load, "a Spark worker killed, with its executor")

            run.kill_driver()
        run = replicate(scene, "--until-caught-up")
        assert run.wait() == 0, run.output
        judge.finish(load.delivered)
    judge.check_map(scene.link)
