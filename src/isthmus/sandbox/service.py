"""One long-running process of a sandbox, that can be killed, frozen and started again.

Invariant: a service has at most one process at a time, and every run of it appends to the same log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from isthmus.errors import SandboxError
from isthmus.sandbox.process import KeptProcess

STOP_SECONDS = 15.0  # a clean shutdown needs 1 to 6 s


class ServiceDiedError(SandboxError):
    """A process ended while it should have come up."""

    def __init__(self, message: str, port_taken: bool = False) -> None:
        super().__init__(message)
        self.fields["port_taken"] = port_taken
        self.port_taken = port_taken


class Service(ABC):
    """A broker, a Spark master, a Spark worker; ``label`` names it in messages."""

    def __init__(self, label: str, log_path: Path) -> None:
        self.label = label
        self.log_path = log_path
        self._process: KeptProcess | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What to run."""

    def environment(self) -> Mapping[str, str] | None:
        """The process's environment; None for ours."""
        return None

    @property
    def alive(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """The Java process, or None if there is none."""
        return self._process.pid if self._process is not None and self._process.alive else None

    def launch(self) -> None:
        """Start the process, if it does not run, without waiting until it is of use."""
        if not self.alive:
            self._process = KeptProcess(self.label, self.command(), self.log_path, self.environment())

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """A clean shutdown, or a kill if that takes too long."""
        if self._process is not None:
            self._process.stop(timeout)

    def ask_to_stop(self) -> None:
        """The first half of ``stop``, for who stops many at once."""
        if self._process is not None:
            self._process.ask_to_stop()

    def kill(self) -> None:
        """kill -9, also to what the process has started."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Freeze the process: its connections stay open and nothing is answered."""
        self._running().pause()

    def resume(self) -> None:
        """Undo ``pause``."""
        self._running().resume()

    def raise_if_dead(self) -> None:
        """Say why, if the process has ended."""
        if self.alive:
            return
        if self._process is None:
            raise SandboxError(f"{self.label} was never started.")
        raise ServiceDiedError(
            f"{self.label} died. Its log, {self.log_path}, says:\n{self._process.log_excerpt()}",
            port_taken="Address already in use" in self._process.log(),
        )

    def _running(self) -> KeptProcess:
        if self._process is None or not self._process.alive:
            raise SandboxError(f"{self.label} is not running; start it first.")
        return self._process
