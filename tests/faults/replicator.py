"""``isthmus run`` as a process tree, and the ways to hit a part of it.

python -m isthmus.cli run          the driver
  java ... SparkSubmit             its JVM: the local executor, or only the scheduler on a cluster
    python -m isthmus.engine.daemon    forks workers
      (the same name)                  a worker: copies under a lease
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DAEMON = "isthmus.engine.daemon"
END_SECONDS = 60.0
START_SECONDS = 120.0


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    command: str


def processes() -> list[Process]:
    """Every process of this machine."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(Process(int(entry.name), int(parent), int(session), command))
    return found


def descendants(of: int) -> list[Process]:
    """What a process has started, and what that has started."""
    every = processes()
    inside = {of}
    while more := {p.pid for p in every if p.parent in inside} - inside:
        inside |= more
    return [p for p in every if p.pid in inside - {of}]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: Iterable[int], timeout: float = END_SECONDS) -> None:
    deadline = time.monotonic() + timeout
    while left := [pid for pid in pids if alive(pid)]:
        if time.monotonic() > deadline:
            raise AssertionError(f"still there after {timeout} s: {[p for p in processes() if p.pid in left]}")
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
                start_new_session=True,  # by which its parts are known
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

    def parts(self) -> list[Process]:
        """All that it has started, orphans included: they share its session."""
        return [p for p in processes() if p.session == self.pid and p.pid != self.pid]

    def jvm(self) -> int:
        found = [p.pid for p in self.parts() if p.parent == self.pid]
        assert found, f"isthmus run has no JVM:\n{self.output}"
        return found[0]

    def daemons(self) -> list[int]:
        return [p.pid for p in self._named(f"-m {DAEMON}") if p.parent == self.jvm()]

    def workers(self) -> list[int]:
        return [p.pid for p in self._named(f"-m {DAEMON}") if p.parent != self.jvm()]

    def _named(self, words: str) -> list[Process]:
        return [p for p in self.parts() if words in p.command]

    # -- ends ---------------------------------------------------------------------------------------------

    def kill_driver(self) -> None:
        """kill -9 of the driver alone; everything it had started must end by itself."""
        started = [p.pid for p in self.parts()]
        self._process.kill()
        self._process.wait()
        wait_until_gone(started)

    def kill_jvm(self) -> int:
        """kill -9 of the JVM: the driver and the workers must end by themselves; the driver's exit code."""
        started = [p.pid for p in self.parts()]
        os.kill(self.jvm(), signal.SIGKILL)
        code = self.wait()
        wait_until_gone(started)
        return code

    def stop(self) -> int:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        return self.wait(90)

    def close(self) -> None:
        """For the end of a test that may have failed: nothing is left."""
        if not self.ended:
            started = [p.pid for p in self.parts()]
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
