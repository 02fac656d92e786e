"""``isthmus run`` as a process tree, and the ways to hit a part of it.

python -m isthmus.cli run          the driver
  java ... SparkSubmit             its JVM: the local executor, or only the scheduler on a cluster
    python -m isthmus.engine.daemon    forks workers
      (the same name)                  a worker: copies under a lease
    python ... streaming_source_runner the planner
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DAEMON = "isthmus.engine.daemon"
PLANNER = "python_streaming_source_runner"
END_SECONDS = 60.0
START_SECONDS = 120.0


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[int(entry.name)] = (parent, command)
    return found


def descendants(of: int) -> dict[int, tuple[int, str]]:
    """What a process has started, and what that has started."""
    every = processes()
    inside, grown = {of}, True
    while grown:
        more = {pid for pid, (parent, _) in every.items() if parent in inside} - inside
        inside |= more
        grown = bool(more)
    return {pid: every[pid] for pid in inside - {of} if pid in every}


def workers_among(tree: dict[int, tuple[int, str]]) -> list[int]:
    """Forked workers: a daemon's children carry its command line."""
    daemons = {pid for pid, (_, command) in tree.items() if f"-m {DAEMON}" in command}
    return sorted(pid for pid in daemons if tree[pid][0] in daemons)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: Iterable[int], timeout: float = END_SECONDS) -> None:
    deadline = time.monotonic() + timeout
    while left := [pid for pid in pids if alive(pid)]:
        if time.monotonic() > deadline:
            every = processes()
            raise AssertionError(f"still there after {timeout} s: {[(pid, every.get(pid)) for pid in left]}")
        time.sleep(0.02)


class Replicator:
    """One ``isthmus run``. ``patch`` is Python that its driver executes first (to shorten a time, never to help)."""

    def __init__(self, scene: Any, directory: Path, *arguments: str, patch: str = "") -> None:
        code = f"import sys\n{patch}\nfrom isthmus.cli import main\nsys.exit(main())"
        number = len(list(directory.glob("run-*.out")))
        self._output = directory / f"run-{number}.out"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "run", scene.link, "--json", "--config", str(scene.config), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # what we kill is what we name, not what hangs on our terminal
            )
        self.pid = self._process.pid

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait(self, timeout: float = START_SECONDS) -> int:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"isthmus run did not end in {timeout} s:\n{self.output}") from None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    # -- its parts ----------------------------------------------------------------------------------------

    def tree(self) -> dict[int, tuple[int, str]]:
        return descendants(self.pid)

    def workers(self) -> list[int]:
        return workers_among(self.tree())

    def jvm(self) -> int:
        found = [pid for pid, (parent, _) in self.tree().items() if parent == self.pid]
        assert found, f"isthmus run has no JVM:\n{self.output}"
        return found[0]

    def wait_for_workers(self, count: int = 1) -> list[int]:
        deadline = time.monotonic() + START_SECONDS
        while len(found := self.workers()) < count:
            assert not self.ended, self.output
            assert time.monotonic() < deadline, f"no {count} workers:\n{self.output}"
            time.sleep(0.05)
        return found

    # -- ends ---------------------------------------------------------------------------------------------

    def kill_driver(self) -> None:
        """kill -9 of the driver alone; everything it had started must end by itself."""
        started = list(self.tree())
        self._process.kill()
        self._process.wait()
        wait_until_gone(started)

    def stop(self) -> int:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        return self.wait(90)

    def close(self) -> None:
        """For the end of a test that may have failed: nothing is left."""
        if not self.ended:
            started = list(self.tree())
            self._process.kill()
            self._process.wait()
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until_gone(started)

    def __enter__(self) -> Replicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
