"""A Kafka site: real brokers in KRaft mode, each one broker and controller, on this machine.

Invariant: from the moment ``wait`` has returned, a site keeps its ports through every stop, kill, pause and
wipe, and keeps its data and its cluster id through all of them but ``wipe``.

    made ──start──> starting ──wait──> answering <──start── stopped
                                          └────stop, kill────┘
"""

from __future__ import annotations

import base64
import json
import shutil
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.errors import SandboxError
from isthmus.sandbox import access
from isthmus.sandbox.certificates import make_certificates
from isthmus.sandbox.class_archive import class_archive
from isthmus.sandbox.jars import fetch, kafka_jars
from isthmus.sandbox.java import find_java
from isthmus.sandbox.ports import ReservedPort, answers
from isthmus.sandbox.process import KeptProcess
from isthmus.sandbox.properties import NodeFiles, NodePorts, scram_arguments, server_properties, written
from isthmus.sandbox.readiness import site_answers
from isthmus.sandbox.service import STOP_SECONDS, Service, ServiceDiedError
from isthmus.sandbox.spec import KafkaSpec

START_SECONDS = 90.0  # a cold start takes 2 s alone; a machine with every core busy elsewhere needs far more
FORMAT_SECONDS = 60.0
ARCHIVE_SECONDS = 60.0
PORT_ATTEMPTS = 5
MEMORY = "site.json"  # in a site's directory: what a later owner of the directory needs to know
POLL_SECONDS = 0.1

# Short starts for tests that start many brokers, against full speed later for who measures.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
FULL_SPEED = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    # Hundreds of lines that repeat the properties file.
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)


@dataclass(frozen=True)
class KafkaRuntime:
    """How to call Java for a version of Kafka."""

    class_path: str
    archive: Path | None

    def command(self, main: str, *arguments: str, options: Sequence[str] = FAST_START) -> list[str]:
        archive = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive else []
        flags = [
            "-XX:+IgnoreUnrecognizedVMOptions",
            "-XX:+PerfDisableSharedMem",
            *archive,
            *options,
            *LOGGING,
        ]
        return [str(find_java()), *flags, "-cp", self.class_path, main, *arguments]


def kafka_runtime(version: str) -> KafkaRuntime:
    """Fetch what is not there yet, and make the class archive the first time."""
    jars = fetch(kafka_jars(version))

    def train(directory: Path, archive: Path) -> None:
        # Guarded in every way, so that a guarded broker's classes are in the archive too.
        spec = KafkaSpec("training", version=version, tls=True, sasl="SCRAM-SHA-256", acls=True)
        plain = KafkaRuntime(jars.class_path, None)
        site = KafkaSite(spec, directory, plain, (f"-XX:ArchiveClassesAtExit={archive}",))
        try:
            site.start()
            site.stop(timeout=ARCHIVE_SECONDS)
        finally:
            site.discard()

    return KafkaRuntime(jars.class_path, class_archive(jars, train))


class Broker(Service):
    """One node of a site."""

    def __init__(self, site: KafkaSite, node_id: int) -> None:
        super().__init__(f"Broker {node_id} of sandbox site {site.name!r}", site.directory / f"broker-{node_id}.log")
        self.site = site
        self.node_id = node_id
        self.data_directory = site.directory / f"data-{node_id}"
        self.properties_path = site.directory / f"server-{node_id}.properties"

    @property
    def port(self) -> int:
        """Where clients reach this broker."""
        return self.site.ports[self.node_id - 1].client

    def start(self, wait: bool = True) -> None:
        """Start it on its old port and data; ``wait`` until it takes part again."""
        self.launch()
        if wait:
            self.site.wait_for([self])

    def format(self) -> None:
        """Make the data directory a part of the site's cluster."""
        log_path = self.log_path.with_suffix(".format.log")
        tool = KeptProcess(f"The storage tool of {self.label}", self.site.format_command(self), log_path)
        if not tool.await_stop(FORMAT_SECONDS) or tool.wait() != 0:
            raise SandboxError(f"{self.label} could not be formatted:\n{tool.log_excerpt()}")

    def command(self) -> list[str]:
        return self.site.broker_command(self)


class KafkaSite:
    """A cluster under a name. ``start`` it, and ``discard`` it at the end."""

    def __init__(
        self,
        spec: KafkaSpec,
        directory: Path,
        runtime: KafkaRuntime | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.directory = directory
        self.cluster_id = ""
        self.ports: list[NodePorts] = []
        self.brokers = [Broker(self, number) for number in range(1, spec.brokers + 1)]
        self._runtime = runtime
        self._java_options = tuple(java_options)
        self._reserved: list[ReservedPort] = []
        self._promised = False
        self._starting: Future[None] | None = None
        self._discarded = threading.Event()
        self._remembered = self._recall()

    # -- addresses and access ----------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as a comma-separated list."""
        return ",".join(f"127.0.0.1:{node.client}" for node in self.ports)

    @property
    def admin_bootstrap(self) -> str:
        """Where everybody is a super user; no TLS, no SASL. Equals ``bootstrap`` at an open site."""
        return ",".join(f"127.0.0.1:{node.inner}" for node in self.ports)

    def client_config(self, user: str | None = None) -> dict[str, Any]:
        """Settings for a librdkafka client (confluent-kafka) that connects as a user."""
        return access.client_config(self.spec, self.bootstrap, self.directory, user)

    def site_yaml(self, user: str | None = None) -> dict[str, Any]:
        """The site as it stands under ``sites:`` in isthmus.yaml."""
        return access.site_yaml(self.spec, self.bootstrap, self.directory, user)

    # -- life ---------------------------------------------------------------------------------------

    def start(self, wait: bool = True) -> None:
        """Start every broker that does not run; the first time, make the site.

        Without ``wait`` this returns at once and ``wait()`` must follow.
        """
        if self._starting is not None:
            self.wait()
        self._ready_runtime()  # may fetch for a minute; not in the thread, because here Ctrl-C ends it
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"sandbox-{self.name}")
        self._starting = pool.submit(self._bring_up)
        pool.shutdown(wait=False)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the site answers; the reason if it never will."""
        if self._starting is not None:
            starting, self._starting = self._starting, None
            starting.result()
        else:
            self.wait_for(self.brokers)

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Shut every broker down at once; data, ports and cluster id stay."""
        for broker in self.brokers:
            broker.ask_to_stop()
        deadline = time.monotonic() + timeout
        for broker in self.brokers:
            broker.stop(max(0.1, deadline - time.monotonic()))

    def wipe(self) -> None:
        """Rebuild the site: same name and ports, no data, a new cluster id."""
        for broker in self.brokers:
            broker.kill()
        self._format()
        self.start()

    def discard(self) -> None:
        """Kill every broker and let go of the ports; the end of this object."""
        self._discarded.set()
        if self._starting is not None:
            self._starting.exception()  # whether it came up does not matter any more
            self._starting = None
        for broker in self.brokers:
            broker.kill()
        self._release_ports()

    def wait_for(self, brokers: Sequence[Broker]) -> None:
        """Wait until these brokers take part in the site."""
        deadline = time.monotonic() + START_SECONDS
        client_ports = [broker.port for broker in brokers]
        inner_ports = [self.ports[broker.node_id - 1].inner for broker in brokers]
        node_ids = [broker.node_id for broker in brokers]
        while not (all(answers(port) for port in client_ports) and site_answers(inner_ports, node_ids)):
            for broker in brokers:
                broker.raise_if_dead()
            if self._discarded.is_set():
                raise SandboxError(f"Sandbox site {self.name!r} was discarded while it started.")
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"Sandbox site {self.name!r} did not answer within {START_SECONDS:.0f} s. "
                    f"See {' and '.join(str(broker.log_path) for broker in brokers)}."
                )
            time.sleep(POLL_SECONDS)

    # -- commands -----------------------------------------------------------------------------------

    def broker_command(self, broker: Broker) -> list[str]:
        """What runs a broker."""
        tuned = FAST_START if self.spec.fast_start else FULL_SPEED
        options = (f"-Xmx{self.spec.heap}", *tuned, *self._java_options)
        return self._ready_runtime().command("kafka.Kafka", str(broker.properties_path), options=options)

    def format_command(self, broker: Broker) -> list[str]:
        """What formats a broker's data directory."""
        arguments = ["format", "-t", self.cluster_id, "-c", str(broker.properties_path)]
        return self._ready_runtime().command("kafka.tools.StorageTool", *arguments, *scram_arguments(self.spec))

    # -- making -------------------------------------------------------------------------------------

    def _bring_up(self) -> None:
        self._make()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            for broker in self.brokers:
                broker.launch()
            try:
                self.wait_for(self.brokers)
            except ServiceDiedError as death:
                # Between our choice and the broker's start somebody may have taken a port. As long as
                # nobody was told the ports, others do as well.
                if not death.port_taken or self._promised or attempt == PORT_ATTEMPTS:
                    raise
                for broker in self.brokers:
                    broker.kill()
                self._choose_ports()
                self._write_properties()
            else:
                break
        self._promised = True

    def _make(self) -> None:
        if self._promised:
            return
        self.cluster_id = self._remembered.get("cluster_id", "")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._choose_ports(self._remembered.get("ports", []))
        if self.spec.tls:
            make_certificates(access.certificates(self.directory).directory, self.spec.users)
        access.write_secrets(self.spec, self.directory)
        self._write_properties()
        if not self.cluster_id:
            self._format()

    def _recall(self) -> dict[str, Any]:
        """What an earlier owner of a kept directory wrote down; nothing, if the directory is new."""
        if not self.directory.exists() or not any(self.directory.iterdir()):
            return {}
        try:
            found: dict[str, Any] = json.loads((self.directory / MEMORY).read_text())
        except FileNotFoundError:
            raise SandboxError(
                f"{self.directory} holds something that is no sandbox site; take another directory."
            ) from None
        if found["shape"] != self._shape():
            raise SandboxError(
                f"{self.directory} holds a site of another shape: {found['shape']}, not {self._shape()}. "
                "Ask for the same, or take another directory."
            )
        return found

    def _remember(self) -> None:
        facts = {
            "shape": self._shape(),
            "cluster_id": self.cluster_id,
            "ports": [[node.client, node.inner, node.controller] for node in self.ports],
        }
        (self.directory / MEMORY).write_text(json.dumps(facts))

    def _shape(self) -> dict[str, Any]:
        """What cannot change between two lives of a site's directory."""
        return {
            "brokers": self.spec.brokers,
            "version": self.spec.version,
            "protocol": self.spec.client_protocol,
            "mutual_tls": self.spec.mutual_tls,
            "sasl": self.spec.sasl,
            "users": sorted(self.spec.users),
        }

    def _choose_ports(self, wanted: Sequence[Sequence[int]] = ()) -> None:
        self._release_ports()
        try:
            for number in {number for three in wanted for number in three}:
                self._reserve(number)
            self.ports = [NodePorts(*three) for three in wanted] or self._free_ports()
        except OSError:  # taken meanwhile
            self._release_ports()
            self.ports = self._free_ports()
        self._remember()

    def _free_ports(self) -> list[NodePorts]:
        chosen = []
        for _ in self.brokers:
            inner = self._reserve()
            client = self._reserve() if self.spec.guarded else inner
            chosen.append(NodePorts(client, inner, self._reserve()))
        return chosen

    def _reserve(self, number: int = 0) -> int:
        port = ReservedPort(number)
        self._reserved.append(port)
        return port.number

    def _release_ports(self) -> None:
        for port in self._reserved:
            port.release()
        self._reserved = []

    def _write_properties(self) -> None:
        for broker in self.brokers:
            files = access.certificates(self.directory)
            node_files = NodeFiles(broker.data_directory, files.broker, files.authority)
            settings = server_properties(self.spec, broker.node_id, self.ports, node_files)
            broker.properties_path.write_text(written(settings))

    def _format(self) -> None:
        self.cluster_id = ""
        self._remember()  # who finds the directory after a crash in the middle must format it again
        for broker in self.brokers:
            shutil.rmtree(broker.data_directory, ignore_errors=True)
        # Random bits in Kafka's spelling. A leading dash would read as an option of the storage tool.
        while not self.cluster_id or self.cluster_id.startswith("-"):
            self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(Broker.format, self.brokers))
        self._remember()

    def _ready_runtime(self) -> KafkaRuntime:
        if self._runtime is None:
            self._runtime = kafka_runtime(self.spec.version)
        return self._runtime
