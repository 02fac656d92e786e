"""A command that runs as long as we want it and never longer than we live.

Invariant: ``pid`` is the command itself, not its keeper (see keeper.py), so a signal sent here hits the
Java process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from isthmus.errors import SandboxError

KEEPER = Path(__file__).with_name("keeper.py")
EXCERPT_LINES = 20
MOST_LOG_BYTES = 1 << 20
FAULT = re.compile(r"\b(ERROR|FATAL)\b|Exception\b|Error:")


class KeptProcess:
    """One run of a command; start another for the next run."""

    def __init__(self, name: str, command: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        # -I: neither the user's site nor the environment can slow the keeper down or break it.
        keeper = [sys.executable, "-I", str(KEEPER), str(os.getpid()), str(log_path)]
        self._keeper = subprocess.Popen(
            [*keeper, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=log_path.parent,
            env=None if env is None else dict(env),
            start_new_session=True,  # the owner's Ctrl-C is the owner's to handle
        )
        assert self._keeper.stdout is not None
        first_line = self._keeper.stdout.readline()
        if not first_line:
            self._reap()
            raise SandboxError(f"{name} could not be started:\n{self.log_excerpt()}")
        self.pid = int(first_line)

    @property
    def alive(self) -> bool:
        """Running, or at least not ended (a paused process is alive)."""
        if self._keeper.poll() is None:
            return True
        self._reap()
        return False

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the command to end by itself; its exit status."""
        status = self._keeper.wait(timeout)
        self._reap()
        return status

    def kill(self) -> None:
        """SIGKILL to the command and to what it started."""
        if self.alive:
            self.signal_group(signal.SIGKILL)
        self._reap()

    def stop(self, timeout: float) -> bool:
        """SIGTERM, then SIGKILL if that is not answered in time; whether the end was a clean one."""
        self.ask_to_stop()
        return self.await_stop(timeout)

    def ask_to_stop(self) -> None:
        """SIGTERM to the command; one that is paused wakes up to hear it."""
        if self.alive:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    def await_stop(self, timeout: float) -> bool:
        """The second half of ``stop``, for who stops many at once."""
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def pause(self) -> None:
        """SIGSTOP: alive, holding its connections, answering nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def log_excerpt(self, lines: int = EXCERPT_LINES) -> str:
        """What this run logged last, or from its first error on; for error messages."""
        log = [line for line in self.log().splitlines() if line.strip()]
        # A shutdown in good order can follow the reason by hundreds of lines.
        fault = next((index for index, line in enumerate(log) if FAULT.search(line)), len(log))
        start = max(0, min(fault, len(log) - lines))
        return "\n".join(log[start : start + lines])

    def log(self) -> str:
        """What this run logged; its end, if that is much."""
        try:
            with self.log_path.open("rb") as handle:
                handle.seek(max(self._log_start, self.log_path.stat().st_size - MOST_LOG_BYTES))
                return handle.read().decode(errors="replace")
        except OSError:
            return ""

    def signal_group(self, number: signal.Signals) -> None:
        """A signal to the command and to what it started."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _reap(self) -> None:
        # Letting go of the pipe is what tells the keeper to end.
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None:
                stream.close()
        self._keeper.wait()
