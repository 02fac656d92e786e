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

EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def cluster(box: Sandbox) -> Iterator[SparkCluster]:
    spark = box.spark(workers=2)
    yield spark
    spark.stop()


@pytest.fixture
def scene(east: KafkaSite, west: KafkaSite, cluster: SparkCluster, make_scene: Callable[..., Any]) -> Any:
    options = {**cluster.session_config(), "spark.cores.max": "2", "spark.executor.memory": "512m"}
    return make_scene(east, west, spark=options)


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


def test_until_caught_up(scene: Any, replicate: Callable[..., Replicator]) -> None:
    with scene.load() as load:
        while sum(load.delivered) < 2000:
            time.sleep(0.01)
    with scene.judge() as judge:
        run = replicate(scene, "--until-caught-up")
        assert run.wait() == 0, run.output
        judge.finish(load.delivered)
    judge.check_map(scene.link)


def test_killed_workers_executors_and_drivers(
    scene: Any, replicate: Callable[..., Replicator], cluster: SparkCluster, rng: random.Random
) -> None:
    with scene.judge() as judge, scene.load() as load:
        run = replicate(scene)
        check(run, judge, load, "started")

        os.kill(rng.choice(python_workers(cluster)), signal.SIGKILL)
        check(run, judge, load, "python worker killed")

        executor = rng.choice(started_by(cluster, EXECUTOR))
        orphans = [p.pid for p in descendants(executor.pid)]
        os.kill(executor.pid, signal.SIGKILL)
        wait_until_gone(orphans)
        check(run, judge, load, "executor killed")

        lost = rng.choice(cluster.workers)
        orphans = [p.pid for p in descendants(lost.pid or 0)]
        lost.kill()
        wait_until_gone(orphans)
        lost.start()
        check(run, judge, load, "Spark worker killed")

        run.kill_driver()
        run = replicate(scene)
        check(run, judge, load, "driver killed")
        judge.finish(load.stop())
        assert run.stop() == 130, run.output
    judge.check_map(scene.link)
