"""A sandbox that outlives the command which started it: one a user, owned by a supervisor process.

Invariant: the supervisor holds a lock as long as it lives, and the kernel drops it when it dies in any way.
So what the lock file and the state file say is believed while the lock is held, and is a stale leftover
otherwise.

    up ──starts──> supervisor (supervisor.py) ──owns──> keepers ──> brokers
    down ──SIGTERM──> supervisor
    kill, start, stop, wipe ──an order, as a file──> supervisor ──its answer, as a file
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.errors import SandboxError
from isthmus.sandbox.cache import cache_directory, usable
from isthmus.sandbox.spec import KafkaSpec

DOWN_SECONDS = 60.0  # kept sites shut down cleanly, which takes seconds
LOG_LINES = 20
LOOK_SECONDS = 0.1
ORDER_SECONDS = 120.0
ACTS = ("kill", "stop", "start", "wipe")
STARTING = "The sandbox is still starting, or just ending; ask again in a moment."


def state_path() -> Path:
    return cache_directory() / "run" / "sandbox.json"


def lock_path() -> Path:
    return cache_directory() / "run" / "sandbox.lock"


def orders_path() -> Path:
    return cache_directory() / "run" / "orders"


def log_path() -> Path:
    return cache_directory() / "run" / "supervisor.log"


def kept_directory() -> Path:
    """Where data is kept if the user names no place."""
    return cache_directory() / "data"


def up(
    names: Sequence[str], options: Mapping[str, Any], directory: Path | None, registries: bool = False
) -> dict[str, Any]:
    """Start the sites of these names, alike, and return the state once all answer.

    With ``registries`` each has a schema registry, in memory. ``options`` are those of ``Sandbox.kafka``. Data stays in ``directory``; without one it goes at the end.
    """
    if not names:
        raise SandboxError("Name one site at least.")
    for name in names:
        KafkaSpec(name, **options)  # a mistake should show before a process starts
    if running():
        raise SandboxError("A sandbox is up already. See `isthmus sandbox status`; end it with `down`.")
    request = {
        "names": list(names),
        "options": dict(options),
        "registries": registries,
        "directory": None if directory is None else str(directory.absolute()),
    }
    usable(log_path().parent)
    with log_path().open("w") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "isthmus.sandbox.supervisor", json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        assert supervisor.stdout is not None
        with supervisor.stdout as report:
            line = report.readline()
    except BaseException:  # Ctrl-C above all: nothing may be left half up
        supervisor.terminate()
        supervisor.wait()
        raise
    answer = json.loads(line) if line else {"error": _log_tail()}
    if "error" in answer:
        supervisor.wait()
        raise SandboxError(answer["error"])
    supervisor.returncode = 0  # it runs on without us: no warning about that when this object goes
    return _with_life(answer)


def down() -> dict[str, Any] | None:
    """End the sandbox, also one that is still starting; what was kept where, or None if there was none."""
    if not running():
        return None
    try:
        told = json.loads(lock_path().read_text())
    except ValueError:
        raise SandboxError(STARTING) from None
    os.kill(told["supervisor"], signal.SIGTERM)
    deadline = time.monotonic() + DOWN_SECONDS
    while running():
        if time.monotonic() > deadline:
            raise SandboxError(
                f"The sandbox did not end within {DOWN_SECONDS:.0f} s; kill process {told['supervisor']}."
            )
        time.sleep(0.05)
    return dict(told)


def status() -> dict[str, Any] | None:
    """The state of the sandbox, with each broker's ``alive`` as of now; None if no sandbox is up."""
    if not running():
        return None
    try:
        return _with_life(json.loads(state_path().read_text()))
    except FileNotFoundError:
        raise SandboxError(STARTING) from None


def order(act: str, site: str) -> dict[str, Any]:
    """Have the supervisor do something to a site (one of ``ACTS``); the state afterwards."""
    state = status()
    if state is None:
        raise SandboxError("No sandbox is up. Start one with `isthmus sandbox up`.")
    names = [each["name"] for each in state["sites"]]
    if site not in names:
        raise SandboxError(f"The sandbox has no site {site!r}; it has {', '.join(names)}.")
    given = orders_path() / f"{time.time_ns()}-{os.getpid()}.order"
    scratch = given.with_suffix(".draft")
    scratch.write_text(json.dumps({"act": act, "site": site}))
    scratch.rename(given)
    answer, deadline = given.with_suffix(".answer"), time.monotonic() + ORDER_SECONDS
    while not answer.exists():
        if not running():
            raise SandboxError(f"The sandbox ended before it could {act} {site}.")
        if time.monotonic() > deadline:
            raise SandboxError(f"The sandbox did not {act} {site} within {ORDER_SECONDS:.0f} s; see {log_path()}.")
        time.sleep(LOOK_SECONDS / 2)
    told = json.loads(answer.read_text())
    answer.unlink()
    if "error" in told:
        raise SandboxError(told["error"])
    return _with_life(told["state"])


def running() -> bool:
    """Whether a supervisor lives."""
    try:
        with lock_path().open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False


def _with_life(state: dict[str, Any]) -> dict[str, Any]:
    for site in state["sites"]:
        for broker in site["brokers"]:
            broker["alive"] = broker["pid"] is not None and _lives(broker["pid"])
    return state


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _log_tail() -> str:
    lines = log_path().read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join(["The sandbox could not be started.", *lines])
