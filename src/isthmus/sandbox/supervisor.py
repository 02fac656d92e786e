"""The process behind ``isthmus sandbox up``: owns a sandbox until it is told to end.

Invariant: standard output gets exactly one line of JSON, the state once every site answers or the error, and
then nothing more. The lock is taken before anything starts and is held until everything has ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from isthmus.errors import IsthmusError
from isthmus.sandbox.box import Sandbox
from isthmus.sandbox.cache import usable
from isthmus.sandbox.detached import LOOK_SECONDS, lock_path, orders_path, state_path
from isthmus.sandbox.kafka import KafkaSite
from isthmus.sandbox.registry import Registry

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(request: dict[str, Any]) -> int:
    """Run what was asked for; the exit code."""
    usable(lock_path().parent)
    with lock_path().open("a") as lock:
        if not take(lock):
            report({"error": "Another sandbox is just being started."})
            return 1
        directory = request["directory"]
        lock.truncate(0)
        lock.write(json.dumps({"supervisor": os.getpid(), "kept": directory}))
        lock.flush()
        state_path().unlink(missing_ok=True)
        orders_path().mkdir(mode=0o700, exist_ok=True)
        for left in orders_path().iterdir():
            left.unlink()
        try:
            with Sandbox(directory, keep=directory is not None) as box:
                own(box, request)
        except IsthmusError as error:
            report({"error": error.message})
            return error.exit_code
        finally:
            state_path().unlink(missing_ok=True)
    return 0


def take(lock: TextIO) -> bool:
    """Take the lock, unless another supervisor has it."""
    for _ in range(20):  # who only looks whether it is held, holds it for an instant
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
    return False


def own(box: Sandbox, request: dict[str, Any]) -> None:
    """Start the sites, tell that they are up, and hold them until a signal ends us."""
    sites = [box.kafka(name, wait=False, **request["options"]) for name in request["names"]]
    registries = [box.registry(name, wait=False) for name in request["names"] if request["registries"]]
    for site in sites:
        site.wait()
    for registry in registries:
        registry.wait()
    report(write_state(box, request))
    while True:
        for order in sorted(orders_path().glob("*.order")):
            obey(box, request, order)
        time.sleep(LOOK_SECONDS)


def write_state(box: Sandbox, request: dict[str, Any]) -> dict[str, Any]:
    """Tell everybody what is up, as it is now."""
    state = {
        "supervisor": os.getpid(),
        "directory": str(box.directory),
        "kept": request["directory"],
        "sites": [describe(site, box.registries.get(site.name)) for site in box.sites.values()],
    }
    put(state_path(), state)
    return state


def obey(box: Sandbox, request: dict[str, Any], order: Path) -> None:
    """Do what an order says to a site, and leave word of how it went in its place."""
    wanted = json.loads(order.read_text())
    answer: dict[str, Any] = {}
    try:
        site = box.sites[wanted["site"]]
        if wanted["act"] == "kill":
            for broker in site.brokers:
                broker.kill()
        else:
            getattr(site, wanted["act"])()
        answer["state"] = write_state(box, request)
    except IsthmusError as error:
        answer["error"] = error.message
    put(order.with_suffix(".answer"), answer)
    order.unlink()


def put(path: Path, content: dict[str, Any]) -> None:
    """A file that is there whole or not at all."""
    scratch = path.with_suffix(".partial")
    scratch.touch(mode=0o600)
    scratch.write_text(json.dumps(content))
    scratch.rename(path)


def describe(site: KafkaSite, registry: Registry | None) -> dict[str, Any]:
    """A site as the state shows it."""
    beside = {"registry": {"url": registry.url}} if registry else {}
    return {
        "name": site.name,
        "version": site.spec.version,
        "protocol": site.spec.client_protocol,
        "cluster_id": site.cluster_id,
        "bootstrap": site.bootstrap,
        "admin_bootstrap": site.admin_bootstrap,
        "brokers": [
            {"node": broker.node_id, "pid": broker.pid, "port": broker.port, "log": str(broker.log_path)}
            for broker in site.brokers
        ],
        **beside,
        "yaml": site.site_yaml() | beside,
    }


def report(answer: dict[str, Any]) -> None:
    """The one line that ``up`` waits for. If nobody waits any more, the sandbox is not wanted."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Nothing may ever write into the pipe after its reader has gone.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def end(*_: Any) -> None:
    """A signal ends us wherever we are, by an exception that unwinds; a second one must not disturb that."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


if __name__ == "__main__":
    for ending in ENDING_SIGNALS:
        signal.signal(ending, end)
    sys.exit(supervise(json.loads(sys.argv[1])))
