"""``isthmus run`` as a process of its own, as a user would start it.

Invariant: it never outlives the drill, however that ends: its keeper sees to that. A configuration that holds secrets travels to it through a
pipe and is never written down.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from isthmus.config import Config, Link
from isthmus.engine.snapshot import Observer
from isthmus.errors import DataError
from isthmus.sandbox.process import KeptProcess

START_SECONDS = 120.0
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.3


class Replicator:
    """All links of a configuration file, being run."""

    def __init__(self, config: Path, log: Path) -> None:
        # Rules of the operator are found where the operator's own runs find them.
        paths = [os.environ.get("PYTHONPATH", ""), *sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "isthmus.cli", "run", "--json", "--config", str(config)]
        self._process = KeptProcess("isthmus run", command, log, environment)

    @property
    def alive(self) -> bool:
        return self._process.alive

    def said(self) -> str:
        """The last of what it logged."""
        return self._process.log()[-2000:]

    def reason(self) -> str:
        """Why it has ended, in its own words."""
        for line in reversed(self._process.log().splitlines()):
            with suppress(ValueError, TypeError, KeyError):
                return str(json.loads(line)["message"])
        return "it does not say why"

    def ask_to_stop(self) -> None:
        self._process.ask_to_stop()

    def stop(self) -> None:
        self._process.stop(STOP_SECONDS)

    def kill(self) -> None:
        self._process.kill()


class PipedReplicator:
    """The same for a configuration that is in memory: it goes through a pipe, secrets and all."""

    def __init__(self, config: Config, log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "isthmus.recovery.drill_process"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._log = log
        assert self._process.stdin is not None
        pickle.dump(config, self._process.stdin)
        self._process.stdin.flush()  # it stays open: when it closes, the run ends

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def reason(self) -> str:
        """Why it has ended: its last line."""
        return (self.said().splitlines() or ["it does not say why"])[-1]

    def ask_to_stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self) -> None:
        self.ask_to_stop()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        from signal import SIGKILL

        try:
            os.killpg(self._process.pid, SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def until(config: Config, links: Iterable[Link], state: str, run: Replicator | PipedReplicator) -> None:
    """Wait until each link runs (``running``), or has copied all that there is (``caught up``)."""
    deadline = time.monotonic() + START_SECONDS
    with ExitStack() as stack:
        for link in links:
            observer = stack.enter_context(Observer(link, config.sites[link.source], config.sites[link.target]))
            observer.connect()
            while True:
                now = observer.look()
                if now.state == "running" and (state == "running" or (now.partitions and now.lag == 0)):
                    break
                if now.faults:
                    first = now.faults[0]
                    raise DataError(f"link {link.name}: {first.topic}[{first.partition}] stands still: {first.message}")
                if not run.alive:
                    raise DataError(f"isthmus run has ended by itself: {run.said()}")
                if time.monotonic() > deadline:
                    raise DataError(
                        f"link {link.name}: not {state} within {START_SECONDS:.0f} s; it is {now.state}, {now.lag} behind"
                        + "".join(f"; {words}" for words in now.trouble)
                    )
                time.sleep(LOOK_SECONDS)


def _main() -> int:
    """Run what comes through the pipe, until the pipe is closed."""
    from isthmus.engine.runner import Runner
    from isthmus.errors import IsthmusError

    config: Config = pickle.load(sys.stdin.buffer)

    def say(words: str) -> None:
        sys.stderr.write(words + "\n")

    runner = Runner(config, [], lambda event: say(f"{event.level}: link {event.link}: {event.text}"))

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        runner.stop()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    try:
        runner.run(False, None)
    except IsthmusError as error:
        say(error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
