"""Fixtures of the fault tests: chance from the run's seed, a link between two sites, processes to be hit."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ledger import Judge, Load, create_topic
from nursery import Nursery, NurseryProcess
from proxy import Proxy, advertise
from replicator import Replicator

if TYPE_CHECKING:
    from isthmus.sandbox import KafkaSite

FAILED = pytest.StashKey[bool]()
_counter = itertools.count(1)


@dataclass
class Scene:
    """A topic at a source, and a link that copies it; both names are no other test's."""

    source: KafkaSite
    target: KafkaSite
    topic: str
    partitions: int
    link: str
    config: Path
    rng: random.Random

    def load(self, rate: int = 1000, aborts: bool = False) -> Load:
        return Load(self.source, self.topic, self.partitions, self.rng, rate, aborts)

    def judge(self) -> Judge:
        return Judge(self.source, self.target, self.topic, self.partitions)


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """Chance for one test: the same for the same seed, whichever other tests run."""
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.fixture
def make_scene(tmp_path: Path, rng: random.Random) -> Callable[..., Scene]:
    """Creates a topic and writes an isthmus.yaml that links it."""

    def make(
        source: KafkaSite,
        target: KafkaSite,
        partitions: int = 4,
        site: dict[str, Any] | None = None,
        spark: dict[str, Any] | None = None,
        **link: Any,
    ) -> Scene:
        number = f"{os.getpid()}-{next(_counter)}"
        scene = Scene(
            source, target, f"scene-{number}", partitions, f"scene-link-{number}", tmp_path / "isthmus.yaml", rng
        )
        create_topic(source, scene.topic, partitions, min(3, len(source.brokers)))
        body = {
            "sites": {
                source.name: {**source.site_yaml(), **(site or {})},
                target.name: {**target.site_yaml(), **(site or {})},
            },
            "links": {
                scene.link: {
                    "from": source.name,
                    "to": target.name,
                    "topics": [scene.topic],
                    "commit_interval": "200ms",
                    **link,
                }
            },
            "spark": spark or {},
        }
        scene.config.write_text(json.dumps(body))  # JSON is YAML
        return scene

    return make


@pytest.fixture
def proxies(rng: random.Random) -> Iterator[list[Proxy]]:
    """One in front of each site of ``make_far_scene``."""
    made = [Proxy(rng), Proxy(rng)]
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture
def make_far_scene(
    make_site: Callable[..., KafkaSite], make_scene: Callable[..., Scene], proxies: list[Proxy]
) -> Callable[..., Scene]:
    """A scene whose link goes through the proxies; the load and the judge do not."""

    def make(**options: Any) -> Scene:
        sites = [make_site(wait=False) for _ in proxies]
        for site in sites:
            site.wait()
        addresses = [advertise(site, proxy) for site, proxy in zip(sites, proxies, strict=True)]
        scene = make_scene(*sites, **options)
        body = json.loads(scene.config.read_text())
        for name, address in zip(body["sites"], addresses, strict=True):
            body["sites"][name]["bootstrap"] = [address]
        scene.config.write_text(json.dumps(body))
        return scene

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leaves word for fixtures whether the test has failed."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def nursery_process() -> Iterator[NurseryProcess]:
    process = NurseryProcess()
    yield process
    process.close()


@pytest.fixture
def nursery(nursery_process: NurseryProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nursery]:
    """Makes processes that plan and copy without Spark."""
    directory = tmp_path / "nursery"
    directory.mkdir()
    made = Nursery(nursery_process, directory)
    try:
        yield made
    finally:
        made.close(request.node.stash.get(FAILED, False))


@pytest.fixture
def replicate(tmp_path: Path) -> Iterator[Callable[..., Replicator]]:
    """Starts ``isthmus run`` for a scene's link; all of it is gone after the test."""
    made: list[Replicator] = []

    def start(scene: Scene, *arguments: str, patch: str = "") -> Replicator:
        made.append(Replicator(scene, tmp_path, *arguments, patch=patch))
        return made[-1]

    yield start
    for replicator in made:
        replicator.close()
