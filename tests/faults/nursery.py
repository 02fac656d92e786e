"""Processes that plan and copy without Spark, made by forking one that has everything loaded.

Run as a script this file is the nursery itself: it takes an order a line on its input, answers with the pid of the
process that carries it out, and writes that process's exit status to a file when it has ended. A process of its own
a task makes it a fair victim: it can be killed or stopped anywhere, as a Spark worker can.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCED, FAILED = 98, 99


@dataclass
class Child:
    """One order under way."""

    pid: int
    stem: Path
    what: str

    @property
    def status(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it lives."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(self.stem.with_suffix(".status").read_text())
        return None

    def wait(self, timeout: float = 60.0) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.status) is None:
            assert time.monotonic() < deadline, f"{self.what} did not end in {timeout} s:\n{self.where()}"
            time.sleep(0.01)
        return status

    def where(self) -> str:
        """What its coroutines wait for, to be read by whoever mends a hang."""
        self.signal(signal.SIGUSR1)
        time.sleep(0.5)
        return self.log

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    @property
    def stopped(self) -> bool:
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def wait_until_stopped(self, timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while not self.stopped:
            assert self.status is None, f"{self.what} ended with {self.status} and did not stop:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.what} did not reach its point:\n{self.where()}"
            time.sleep(0.01)

    @property
    def result(self) -> Any:
        return pickle.loads(self.stem.with_suffix(".result").read_bytes())

    @property
    def log(self) -> str:
        path = self.stem.with_suffix(".log")
        return path.read_text() if path.exists() else ""


class NurseryProcess:
    """The process that forks the others; one is enough for all tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the nursery died"
        return int(line)

    def order(self, order: dict[str, Any]) -> int:
        """The pid of the process that carries this order out."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class Nursery:
    """Takes the orders of one test; every process that it made is gone when it is closed."""

    def __init__(self, process: NurseryProcess, directory: Path) -> None:
        self._process, self._directory = process, directory
        self._count = 0
        self._children: list[Child] = []

    def order(self, kind: str, **order: Any) -> Child:
        self._count += 1
        stem = self._directory / f"{self._count:04}-{kind}"
        pid = self._process.order({"kind": kind, "stem": str(stem), **order})
        child = Child(pid, stem, f"{stem.name} {order.get('point') or ''}".strip())
        self._children.append(child)
        return child

    def plan(self, scene: Any, slots: int = 1, **more: Any) -> Child:
        """Deal a lease; the child's ``result`` is the list of its parts."""
        return self.order("plan", config=str(scene.config), link=scene.link, slots=slots, **more)

    def copy(self, planned: Child, slot: int = 0, **more: Any) -> Child:
        """Carry out one slot of a lease, until SIGTERM or the lease's end."""
        return self.order("copy", lease=str(planned.stem.with_suffix(".result")), slot=slot, **more)

    def close(self, failed: bool = False) -> None:
        for child in self._children:
            status = child.status
            if failed and status is not None:
                print(f"{child.what} has ended with {status}:\n{child.log}")
            if status is None:
                if failed:
                    print(f"{child.what} is still there:\n{child.where()}")
                child.signal(signal.SIGKILL)
        for child in self._children:
            child.wait()


# -- the nursery's own process ------------------------------------------------------------------------------


def main() -> None:
    from isthmus.engine.copy import Copier  # noqa: F401
    from isthmus.engine.plan import Planner  # noqa: F401
    from isthmus.records.warm import warm

    warm()
    living: dict[int, Path] = {}
    print(os.getpid(), flush=True)
    buffered = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.005 if living else 1.0)
        if ready:
            more = os.read(0, 1 << 16)
            if not more:
                break
            *lines, buffered = (buffered + more).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    carry_out(order)
                living[pid] = Path(order["stem"])
                print(pid, flush=True)
        for pid, stem in list(living.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del living[pid]
                part = stem.with_suffix(".part")
                part.write_text(str(os.waitstatus_to_exitcode(status)))
                part.rename(stem.with_suffix(".status"))
    for pid in living:
        os.kill(pid, signal.SIGKILL)


def carry_out(order: dict[str, Any]) -> None:
    """The child: never returns."""
    from isthmus.errors import IsthmusError
    from isthmus.kafka.produce import Fenced

    stem = Path(order["stem"])
    log = os.open(stem.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = FAILED
    signal.signal(signal.SIGUSR1, tell_where)
    try:
        import points

        if order.get("point"):
            number = signal.SIGSTOP if order.get("act") == "stop" else signal.SIGKILL
            points.install(order["point"], order.get("nth", 1), lambda: os.kill(os.getpid(), number))
        if order.get("interrupt"):
            points.interrupt(order["seed"], order["interrupt"])
        for site in order.get("forgetful", ()):
            points.forget_topics(site, order["times"])
        result = {"plan": plan, "copy": copy}[order["kind"]](order)
        part = stem.with_suffix(".half")
        part.write_bytes(pickle.dumps(result))
        part.rename(stem.with_suffix(".result"))
        status = 0
    except IsthmusError as error:
        traceback.print_exc()
        status = error.exit_code
    except Fenced:
        traceback.print_exc()
        status = FENCED
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def tell_where(*_: Any) -> None:
    """Print the stack of each coroutine that waits, and the faults that partitions were left out for."""
    import gc

    from kafka.net.selector import NetworkSelector

    from isthmus.engine.copy import Copier

    for copier in [o for o in gc.get_objects() if isinstance(o, Copier)]:
        for copying in copier._by_source.values():
            print(f"-- {copying.assignment.source} at {copying.position}: {copying.fault!r}")
        print(f"-- trouble: {copier._trouble!r}, retries: {copier._totals.retries}, control: {copier._control}")
    for loop in [o for o in gc.get_objects() if isinstance(o, NetworkSelector)]:
        for task in loop._pending_tasks:
            stack = task._stack
            print(f"-- {task.state.value}")
            while stack:
                waiting = stack[0]
                while hasattr(waiting, "cr_frame") and waiting.cr_frame is not None:
                    print(f"   {waiting.cr_frame.f_code.co_qualname} line {waiting.cr_frame.f_lineno}")
                    waiting = waiting.cr_await
                stack = stack[1]
    sys.stdout.flush()


def plan(order: dict[str, Any]) -> Any:
    from isthmus.config import load
    from isthmus.engine.plan import Job, Planner

    config = load(order["config"])
    link = config.links[order["link"]]
    run = {"run": order["run"]} if "run" in order else {}
    planner = Planner(Job(link, config.sites[link.source], config.sites[link.target], order["slots"], **run))
    try:
        return planner.plan()
    finally:
        planner.close()


def copy(order: dict[str, Any]) -> Any:
    from isthmus.engine.copy import Copier

    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    lease = pickle.loads(Path(order["lease"]).read_bytes())[order["slot"]]
    return Copier(lease, lambda: bool(stopping)).run()


if __name__ == "__main__":
    main()
