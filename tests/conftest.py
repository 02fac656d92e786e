"""Fixtures that every test may use: real Kafka sites, fresh names, a seed, and a check for leftovers.

Invariant: no process that a test run started is alive when the run ends; one that is fails the run. Each
process inherits a mark in its environment, so even one whose parents are gone is found.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:  # unit tests should not pay for the import
    from isthmus.sandbox import KafkaSite, Sandbox

MARK = "ISTHMUS_TEST_RUN"
LEFTOVER_SECONDS = 10.0  # what ends by itself when its parent does gets this long


def pytest_configure(config: pytest.Config) -> None:
    os.environ[MARK] = uuid.uuid4().hex
    # How long an example takes tells more of the machine than of the code.
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")
    _seed()  # before workers are made: all of them take the same
    # kafka-python reads its schemas in a way that Python 3.11 and 3.12 call deprecated and 3.13 does not.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_report_header() -> str:
    return f"ISTHMUS_TEST_SEED={_seed()} (set it to run with the same random choices)"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_pyspark_gateway()
    leftover = _leftover_processes()
    if leftover:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        for pid, command in leftover.items():
            reporter.write_line(f"left over: process {pid}: {command}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# -- sites -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    """A sandbox for the whole run."""
    from isthmus.sandbox import Sandbox

    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def east_and_west(box: Sandbox) -> tuple[KafkaSite, KafkaSite]:
    """Two open sites of one broker each, started side by side when the first test asks."""
    east, west = box.start_all(["east", "west"])
    return east, west


@pytest.fixture(scope="session")
def east(east_and_west: tuple[KafkaSite, KafkaSite]) -> KafkaSite:
    """An open site that all tests share: leave it running, and use ``unique_topic``."""
    return east_and_west[0]


@pytest.fixture(scope="session")
def west(east_and_west: tuple[KafkaSite, KafkaSite]) -> KafkaSite:
    """The other open site that all tests share."""
    return east_and_west[1]


@pytest.fixture
def make_site(box: Sandbox) -> Iterator[Callable[..., KafkaSite]]:
    """Starts a site of this test's own, with the options of ``Sandbox.kafka``; gone after the test."""
    yield from _site_maker(box)


@pytest.fixture(scope="module")
def make_module_site(box: Sandbox) -> Iterator[Callable[..., KafkaSite]]:
    """Like ``make_site``, for a site that the tests of one file share."""
    yield from _site_maker(box)


def _site_maker(box: Sandbox) -> Iterator[Callable[..., KafkaSite]]:
    made: list[str] = []

    def make(name: str | None = None, **options: Any) -> KafkaSite:
        site = box.kafka(name or f"site-{uuid.uuid4().hex[:8]}", **options)
        made.append(site.name)
        return site

    yield make
    for name in made:
        if name in box.sites:
            box.remove(name)


# -- names and chance -------------------------------------------------------------------------------

_counter = itertools.count(1)


@pytest.fixture
def unique_topic() -> Callable[..., str]:
    """Names a topic that no other test uses: ``unique_topic()`` or ``unique_topic("orders")``."""

    def name(stem: str = "topic") -> str:
        return f"{stem}-{os.getpid()}-{next(_counter)}"

    return name


@pytest.fixture
def seed() -> int:
    """The run's seed for random choices; printed, so a failing test shows how to repeat it."""
    chosen = _seed()
    print(f"ISTHMUS_TEST_SEED={chosen}")
    return chosen


def _seed() -> int:
    # Kept in the environment, so that the header, every test and every child process agree.
    return int(os.environ.setdefault("ISTHMUS_TEST_SEED", str(random.SystemRandom().randrange(2**32))))


# -- leftovers --------------------------------------------------------------------------------------


def _end_pyspark_gateway() -> None:
    """pyspark keeps its Java process until the interpreter exits, which is too late for the check."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(LEFTOVER_SECONDS)


def _leftover_processes() -> dict[int, str]:
    mark = f"{MARK}={os.environ[MARK]}".encode()
    deadline = time.monotonic() + LEFTOVER_SECONDS
    while found := _marked_processes(mark):
        if time.monotonic() > deadline:
            return found
        time.sleep(0.2)
    return {}


def _marked_processes(mark: bytes) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # gone, or not ours
        # multiprocessing's own helper lives, by design, exactly as long as the interpreter
        if marked and int(entry.name) != os.getpid() and "multiprocessing.resource_tracker" not in command:
            found[int(entry.name)] = command
    return found
