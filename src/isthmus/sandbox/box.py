"""The sandbox: sites, registries and Spark clusters that live as long as a ``with`` block.

Invariant: when the block is left, or its process dies in any way, every process started here ends; the
directory goes too, unless it was to be kept. A directory that a killed process left behind is removed by
the next sandbox.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from isthmus.errors import SandboxError
from isthmus.sandbox.cache import locked, usable
from isthmus.sandbox.kafka import KafkaSite
from isthmus.sandbox.registry import Registry
from isthmus.sandbox.spark import SparkCluster
from isthmus.sandbox.spec import DEFAULT_KAFKA, KafkaSpec

OWNER_LOCK = "owner.lock"

Member = KafkaSite | SparkCluster | Registry


class Sandbox:
    """Real Kafka and Spark on this machine, for tests, demos and benchmarks."""

    def __init__(self, directory: str | Path | None = None, keep: bool = False) -> None:
        """``directory`` None: a new one under the system's temporary directory.

        With ``keep`` a later sandbox with the same directory finds its sites' data again. Without, what the
        sandbox has put there is removed, and nothing else.
        """
        self._keep = keep
        if directory is None:
            home = Path(tempfile.gettempdir(), f"isthmus-sandbox-{os.getuid()}")
            usable(home, "Take it away, or set TMPDIR.")
            # In turns, or one would sweep the directory that another has made and not locked yet.
            with locked(home / "sweep.lock"):
                _sweep(home)
                self.directory = Path(tempfile.mkdtemp(dir=home))
                self._lock = _take_ownership(self.directory)
        else:
            self.directory = Path(directory).absolute()
            usable(self.directory, "Name another directory for the data.")
            self._lock = _take_ownership(self.directory)
        self.sites: dict[str, KafkaSite] = {}
        self.spark_clusters: list[SparkCluster] = []
        self.registries: dict[str, Registry] = {}

    def kafka(
        self,
        name: str,
        *,
        brokers: int = 1,
        version: str = DEFAULT_KAFKA,
        tls: bool = False,
        mutual_tls: bool = False,
        sasl: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: bool = False,
        super_users: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        fast_start: bool = True,
        heap: str | None = None,
        wait: bool = True,
    ) -> KafkaSite:
        """Start a Kafka site that answers; without ``wait``, one that ``site.wait()`` waits for.

        ``fast_start`` False trades a slower start for a broker at full speed. ``heap`` is Java's spelling,
        e.g. "1g". ``config`` are broker settings that win over the sandbox's own.
        """
        spec = KafkaSpec(
            name=name,
            brokers=brokers,
            version=version,
            tls=tls,
            mutual_tls=mutual_tls,
            sasl=sasl,
            users=dict(users or {}),
            acls=acls,
            super_users=tuple(super_users),
            config=dict(config or {}),
            fast_start=fast_start,
            heap=heap or ("384m" if fast_start else "1g"),
        )
        if name in self.sites:
            raise SandboxError(f"This sandbox has a site {name!r} already.")
        site = KafkaSite(spec, self.directory / name)
        self.sites[name] = site
        try:
            site.start(wait)
        except BaseException:
            self.remove(name)
            raise
        return site

    def start_all(self, names: Sequence[str], **options: Any) -> list[KafkaSite]:
        """Several like sites, started side by side; ``options`` as for ``kafka``."""
        sites = [self.kafka(name, wait=False, **options) for name in names]
        for site in sites:
            site.wait()
        return sites

    def registry(self, name: str, *, heap: str = "512m", wait: bool = True) -> Registry:
        """Start a schema registry that answers; without ``wait``, one that ``registry.wait()`` waits for."""
        if name in self.registries:
            raise SandboxError(f"This sandbox has a registry {name!r} already.")
        KafkaSpec(name)  # a name becomes a directory, here too
        registry = Registry(name, Path(tempfile.mkdtemp(prefix=f"registry-{name}-", dir=self.directory)), heap=heap)
        self.registries[name] = registry
        registry.start(wait)
        return registry

    def spark(self, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> SparkCluster:
        """Start a standalone Spark cluster; ``cores`` and ``memory`` are what each worker offers."""
        directory = Path(tempfile.mkdtemp(prefix="spark-", dir=self.directory))
        cluster = SparkCluster(directory, workers, cores, memory)
        self.spark_clusters.append(cluster)
        cluster.start()
        return cluster

    def remove(self, name: str) -> None:
        """End a site and, unless the directory is to be kept, remove its data; the name is free again."""
        self._end(self.sites.pop(name))

    def close(self) -> None:
        """End every process and throw the directory away. Safe to call twice."""
        members: list[Member] = [*self.sites.values(), *self.spark_clusters, *self.registries.values()]
        self.sites, self.spark_clusters, self.registries = {}, [], {}
        if members:
            with ThreadPoolExecutor(len(members)) as pool:
                list(pool.map(self._end, members))
        if not self._keep:
            (self.directory / OWNER_LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # not ours alone
                self.directory.rmdir()
        self._lock.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, member: Member) -> None:
        kept = self._keep and isinstance(member, KafkaSite)
        if kept:
            member.stop()  # a kept log should not need recovery
        member.discard()
        if not kept:
            shutil.rmtree(member.directory, ignore_errors=True)


def _take_ownership(directory: Path) -> TextIO:
    lock = (directory / OWNER_LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise SandboxError(f"Another sandbox uses {directory}; take another directory.") from None
    return lock


def _sweep(home: Path) -> None:
    """Remove the directories of owners that were killed: those whose lock the kernel has dropped."""
    for directory in home.iterdir():
        try:
            with (directory / OWNER_LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # in use, or no sandbox
