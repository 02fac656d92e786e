"""A standalone Spark cluster on this machine: a master and workers, from the pyspark package.

Invariant: from the moment ``start`` has returned, as many workers are registered with the master as were
asked for; the master keeps its address through a restart.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from isthmus.errors import SandboxError
from isthmus.sandbox.jars import pyspark_directory
from isthmus.sandbox.java import find_java
from isthmus.sandbox.ports import ReservedPort
from isthmus.sandbox.service import Service

START_SECONDS = 90.0
POLL_SECONDS = 0.1
# Spark's own choices for its daemons (a heap of 1 GiB above all) are meant for servers.
DAEMON_HEAP = "256m"
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkDaemon(Service):
    """The master or a worker."""

    def __init__(self, cluster: SparkCluster, name: str, main: str, *arguments: str) -> None:
        super().__init__(f"Spark {name} of the sandbox", cluster.directory / f"{name}.log")
        self._cluster = cluster
        self._main = main
        self._arguments = arguments

    def start(self) -> None:
        """Start it again, and wait until all workers that run are registered."""
        self.launch()
        self._cluster.wait()

    def command(self) -> list[str]:
        spark_class = pyspark_directory() / "bin" / "spark-class"
        return [str(spark_class), self._main, "--host", "127.0.0.1", *self._arguments]

    def environment(self) -> Mapping[str, str]:
        # Whatever the user has set for another Spark does not matter to this one.
        return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")} | {
            "SPARK_HOME": str(pyspark_directory()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": DAEMON_HEAP,
            "SPARK_DAEMON_JAVA_OPTS": FAST_START,
            "SPARK_LAUNCHER_OPTS": FAST_START,
            "SPARK_LOCAL_DIRS": str(self._cluster.directory / "scratch"),
            "SPARK_CONF_DIR": str(self._cluster.directory / "conf"),
        }


class SparkCluster:
    """A master and its workers. ``start`` it, and ``discard`` it at the end."""

    def __init__(self, directory: Path, workers: int, cores: int, memory: str) -> None:
        if workers < 1:
            raise SandboxError("A Spark cluster needs one worker at least.")
        self.directory = directory
        self._port = ReservedPort()
        self._page_port = ReservedPort()
        package = "org.apache.spark.deploy"
        self.master = SparkDaemon(
            self,
            "master",
            f"{package}.master.Master",
            *("--port", str(self._port.number), "--webui-port", str(self._page_port.number)),
        )
        self.workers = [
            SparkDaemon(
                self,
                f"worker-{number}",
                f"{package}.worker.Worker",
                *("--cores", str(cores), "--memory", memory, "--webui-port", "0"),
                *("--work-dir", str(directory / f"work-{number}"), self.master_url),
            )
            for number in range(1, workers + 1)
        ]

    @property
    def master_url(self) -> str:
        """What ``spark.master`` takes."""
        return f"spark://127.0.0.1:{self._port.number}"

    def session_config(self) -> dict[str, str]:
        """Settings for a session on this cluster: everything on 127.0.0.1, with the Python that runs us.

        pyspark takes the Python of its tasks from PYSPARK_PYTHON when the session is made, so that should be
        ``sys.executable`` too.
        """
        return {
            "spark.master": self.master_url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
        }

    def start(self) -> None:
        """Start master and workers, and wait until they know each other."""
        find_java()  # Spark looks in the same places, but does not say what is missing
        (self.directory / "conf").mkdir(parents=True, exist_ok=True)
        for daemon in (self.master, *self.workers):
            daemon.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until every worker that runs is registered."""
        deadline = time.monotonic() + START_SECONDS
        running = [worker for worker in self.workers if worker.alive]
        while self.registered_workers() < len(running):
            for daemon in (self.master, *running):
                daemon.raise_if_dead()
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"The Spark cluster was not complete within {START_SECONDS:.0f} s. "
                    f"Its logs are in {self.directory}."
                )
            time.sleep(POLL_SECONDS)

    def registered_workers(self) -> int:
        """How many workers the master holds for alive; it forgets a dead one at once, a silent one later."""
        # Not through a proxy, whatever the environment says.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self._page_port.number}/json/", timeout=5) as answer:
                state = json.load(answer)
        except (OSError, ValueError):
            return -1
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def stop(self) -> None:
        """Shut everything down; ``start`` brings it back at the same address."""
        for daemon in (*self.workers, self.master):
            daemon.ask_to_stop()
        for daemon in (*self.workers, self.master):
            daemon.stop()

    def discard(self) -> None:
        """Kill everything and let go of the ports; the end of this object."""
        for daemon in (*self.workers, self.master):
            daemon.kill()
        self._port.release()
        self._page_port.release()
