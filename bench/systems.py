"""The replicators under test, each started as its users would start it, each copying every record of one topic."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from isthmus.sandbox import KafkaSite
from isthmus.sandbox.jars import LOGGING_BACKEND, JarSet, fetch
from isthmus.sandbox.java import find_java

MIRROR = JarSet(
    "mirror-maker-4.3.1",
    (
        ("org.apache.kafka", "connect-mirror", "4.3.1"),
        ("org.apache.kafka", "connect-runtime", "4.3.1"),
        LOGGING_BACKEND,
    ),
)


@dataclass
class Task:
    """What to copy, and where scratch files go."""

    east: KafkaSite
    west: KafkaSite
    topic: str
    compression: str
    directory: Path
    run_id: str
    west_address: str = ""
    """Where the replicator finds the destination, when that is not where the measurement does."""

    @property
    def destination(self) -> str:
        return self.west_address or self.west.bootstrap


class System(Protocol):
    name: str
    delivery: str

    def start(self, task: Task) -> subprocess.Popen[bytes]: ...


def _spawn(command: list[str], log: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes], timeout: float = 30.0) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass
class Isthmus:
    """``isthmus run`` with its defaults; options are laid over the link."""

    delivery: str = "exactly-once"
    options: dict[str, object] | None = None
    spark: dict[str, str] | None = None
    python_path: Path | None = None
    label: str = "isthmus"

    @property
    def name(self) -> str:
        return self.label

    def write(self, task: Task) -> Path:
        """The configuration for a task."""
        document = {
            "sites": {"east": task.east.site_yaml(), "west": {"bootstrap": task.destination}},
            "links": {
                f"bench-{task.run_id}": {
                    "from": "east",
                    "to": "west",
                    "topics": [task.topic],
                    "delivery": self.delivery,
                    **(self.options or {}),
                }
            },
            "spark": self.spark or {},
        }
        path = task.directory / f"isthmus-{task.run_id}.yaml"
        path.write_text(json.dumps(document))
        return path

    def start(self, task: Task) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "isthmus.cli", "run", "--json", "--config", str(self.write(task))]
        environment = {**os.environ}
        if self.python_path is not None:
            environment["PYTHONPATH"] = os.pathsep.join(
                [str(self.python_path), *filter(None, [environment.get("PYTHONPATH")])]
            )
        return _spawn(command, task.directory / f"isthmus-{task.run_id}.log", environment)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# Several tasks, and nothing switched on that the comparison does not need; tuned: large fetches and batches.
MIRROR_PROPERTIES = """
clusters = east, west
east.bootstrap.servers = {east}
west.bootstrap.servers = {west}
east->west.enabled = true
east->west.topics = {topic}
west->east.enabled = false
tasks.max = {tasks}
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.configs.enabled = false
sync.topic.acls.enabled = false
sync.group.offsets.enabled = false
refresh.topics.interval.seconds = 30
offset.flush.interval.ms = 5000
west.producer.compression.type = {compression}
"""
MIRROR_TUNED = """
east.consumer.max.poll.records = 5000
east.consumer.fetch.max.bytes = 52428800
east.consumer.max.partition.fetch.bytes = 4194304
east.consumer.receive.buffer.bytes = 1048576
west.producer.batch.size = 524288
west.producer.linger.ms = 5
west.producer.buffer.memory = 134217728
west.producer.max.request.size = 4194304
west.producer.send.buffer.bytes = 1048576
"""
MIRROR_EXACTLY_ONCE = """
west.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
east.consumer.isolation.level = read_committed
"""


@dataclass
class MirrorMaker:
    """MirrorMaker 2 in dedicated mode from its published jars."""

    delivery: str = "at-least-once"
    tasks: int = 2
    tuned: bool = True
    name: str = "mirrormaker2"

    def start(self, task: Task) -> subprocess.Popen[bytes]:
        jars = fetch(MIRROR)
        text = MIRROR_PROPERTIES.format(
            east=task.east.bootstrap,
            west=task.destination,
            topic=task.topic,
            tasks=self.tasks,
            compression=task.compression,
        )
        if self.tuned:
            text += MIRROR_TUNED
        if self.delivery == "exactly-once":
            text += MIRROR_EXACTLY_ONCE.format(port=_free_port())
        path = task.directory / f"mm2-{task.run_id}.properties"
        path.write_text(text)
        # The heap and collector that Kafka's own start script gives to Connect.
        command = [
            str(find_java()), "-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp", jars.class_path, "org.apache.kafka.connect.mirror.MirrorMaker", str(path),
        ]  # fmt: skip
        return _spawn(command, task.directory / f"mm2-{task.run_id}.log")


CONNECT = """
input:
  redpanda_migrator:
    seed_brokers: ["{east}"]
    topics: ["{topic}"]
    consumer_group: "bench-{run_id}"
    start_from_oldest: true
output:
  redpanda_migrator:
    seed_brokers: ["{west}"]
    topic: "${{! @kafka_topic }}"
"""


@dataclass
class RedpandaConnect:
    """The migrator of Redpanda Connect, when its binary is on the PATH."""

    delivery: str = "at-least-once"
    name: str = "redpanda-connect"

    @staticmethod
    def available() -> bool:
        return shutil.which("redpanda-connect") is not None

    def start(self, task: Task) -> subprocess.Popen[bytes]:
        path = task.directory / f"connect-{task.run_id}.yaml"
        path.write_text(
            CONNECT.format(east=task.east.bootstrap, west=task.west.bootstrap, topic=task.topic, run_id=task.run_id)
        )
        return _spawn(["redpanda-connect", "run", str(path)], task.directory / f"connect-{task.run_id}.log")
