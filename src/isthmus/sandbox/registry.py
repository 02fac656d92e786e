"""A schema registry of the sandbox: a real Apicurio, in memory, that speaks the Confluent API.

Invariant: from the moment ``wait`` has returned, a registry keeps its address through every stop, kill and pause. What
it holds is gone with its process.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from isthmus.errors import SandboxError
from isthmus.sandbox.class_archive import class_archive
from isthmus.sandbox.jars import Jars, fetch, registry_jars
from isthmus.sandbox.java import find_java
from isthmus.sandbox.ports import ReservedPort
from isthmus.sandbox.service import Service

START_SECONDS = 120.0  # some seconds alone; a machine with every core busy elsewhere needs far more
ARCHIVE_SECONDS = 60.0
POLL_SECONDS = 0.1
API = "/apis/ccompat/v7"
MAIN = "io.quarkus.runner.GeneratedMain"
# The same trade as for brokers (kafka.py): a short start for full speed later.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Registry(Service):
    """One registry. ``start`` it, and ``discard`` it at the end."""

    def __init__(
        self, name: str, directory: Path, *, heap: str = "512m", java_options: Sequence[str] | None = None
    ) -> None:
        super().__init__(f"Registry {name!r} of the sandbox", directory / "registry.log")
        self.name = name
        self.directory = directory
        self._heap = heap
        self._java_options = java_options
        self._jars: Jars | None = None
        self._port = ReservedPort()

    @property
    def url(self) -> str:
        """Where clients find the Confluent API."""
        return f"http://127.0.0.1:{self._port.number}{API}"

    def start(self, wait: bool = True) -> None:
        """Start it, empty; without ``wait``, ``wait()`` must follow."""
        if self._jars is None:
            self._jars = fetch(registry_jars())
        if self._java_options is None:
            archive = _archive(self._jars)
            self._java_options = (f"-XX:SharedArchiveFile={archive}",) if archive else ()
        self.launch()
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers; the reason if it never will."""
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            self.raise_if_dead()
            if time.monotonic() > deadline:
                raise SandboxError(f"{self.label} did not answer within {START_SECONDS:.0f} s. See {self.log_path}.")
            time.sleep(POLL_SECONDS)

    def answers(self) -> bool:
        # Not through a proxy, whatever the environment says.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def command(self) -> list[str]:
        assert self._jars is not None
        return [
            str(find_java()),
            f"-Xmx{self._heap}",
            "-XX:+PerfDisableSharedMem",
            *FAST_START,
            *(self._java_options or ()),
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port.number}",
            "-Dquarkus.log.level=WARN",
            "-cp",
            self._jars.class_path,
            MAIN,
        ]

    def discard(self) -> None:
        """Kill it and let go of the port; the end of this object."""
        self.kill()
        self._port.release()


def _archive(jars: Jars) -> Path | None:
    def train(directory: Path, archive: Path) -> None:
        registry = Registry("training", directory, java_options=(f"-XX:ArchiveClassesAtExit={archive}",))
        try:
            registry.start()
            registry.stop(timeout=ARCHIVE_SECONDS)
        finally:
            registry.discard()

    return class_archive(jars, train)
