"""The live table of ``isthmus run`` on a real terminal: made narrower while it runs, its lines fit."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

from links import wait_for

# What ``isthmus run`` shows, by its own view, again and again until it is told to stop.
PROGRAM = """
import os, select, sys
from isthmus.cli.run import View
from isthmus.engine.snapshot import LinkState, PartitionState
partitions = [
    PartitionState("orders.of.the.whole.world.eu-central-1", n, "copy.of.orders.of.the.whole.world", 10**9 - n, 10**9, n, n)
    for n in range(5)
]
state = LinkState("orders-from-east-to-west", "east", "west", "running", 7, partitions=partitions, trouble=["slow " * 20])
number = 0
with View(json=False) as view:
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        number += 1
        partitions[0].records_per_second = number
        view.show([state])
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A program on a terminal of its own, and all that it has drawn."""

    def __init__(self, columns: int) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, slave)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self._text = ""

    def resize(self, columns: int, at: int | None = None) -> None:
        fcntl.ioctl(self._master if at is None else at, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        if at is None:
            os.killpg(self.process.pid, signal.SIGWINCH)

    def frames(self) -> list[list[str]]:
        """The tables drawn so far, but for the last one, of which some may not have come yet."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                self._text += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                break
        drawn = ESCAPES.sub("", self._text).split("orders-from-east-to-west: ")[1:-1]
        return [["orders-from-east-to-west: " + lines[0], *lines[1:]] for lines in (text.split("\n") for text in drawn)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[Terminal]:
    opened = Terminal(columns)
    try:
        yield opened
    finally:
        opened.close()


def widest(frame: list[str]) -> int:
    return max(len(line.rstrip()) for line in frame)


def test_a_terminal_that_is_made_narrower() -> None:
    with terminal(160) as screen:
        wait_for(lambda: len(screen.frames()) > 2, "a table")
        assert 60 < widest(screen.frames()[-1]) <= 160
        screen.resize(60)
        before = len(screen.frames())
        wait_for(lambda: any(widest(frame) <= 60 for frame in screen.frames()[before:]), "a table that fits")
        # From the first one on that fits, all do.
        fits = len(screen.frames())
        wait_for(lambda: len(screen.frames()) > fits + 3, "more of them")
        assert {widest(frame) <= 60 for frame in screen.frames()[fits:]} == {True}
        assert any("orders" in line and "9" in line for line in screen.frames()[-1][1:]), "partitions are still told"
        # Wider again, it takes the room that there is.
        screen.resize(160)
        wait_for(lambda: widest(screen.frames()[-1]) > 60, "a wide table")
