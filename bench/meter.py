"""What a tree of processes costs: CPU seconds and memory, read from /proc.

Invariant: CPU of children that have ended and were waited for counts (it is in their parent's account), so nothing that
a replicator forks escapes.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def tree(root: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        stat = _stat(pid)
        if stat is not None:
            total += sum(int(stat[field]) for field in (11, 12, 13, 14))
    return total / TICKS


def resident_bytes(pids: list[int]) -> tuple[int, int]:
    """(sum of RSS, sum of PSS): shared pages count for each process in the first, once in the second."""
    rss = pss = 0
    for pid in pids:
        try:
            rss += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    pss += int(line.split()[1]) * 1024
        except (OSError, IndexError):
            continue
    return rss, pss


class Meter(threading.Thread):
    """Samples a process tree until stopped; the peak of memory and the CPU so far."""

    def __init__(self, root: int, every: float = 0.5) -> None:
        super().__init__(daemon=True)
        self._root, self._every = root, every
        self._over = threading.Event()
        self.peak_rss = self.peak_pss = self.pss = 0
        self.cpu = 0.0
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            pids = tree(self._root)
            self.cpu = max(self.cpu, cpu_seconds(pids))
            rss, self.pss = resident_bytes(pids)
            self.peak_rss, self.peak_pss = max(self.peak_rss, rss), max(self.peak_pss, self.pss)
            self._over.wait(self._every)

    def now(self) -> float:
        """CPU seconds up to this moment."""
        self.cpu = max(self.cpu, cpu_seconds(tree(self._root)))
        return self.cpu

    def stop(self) -> None:
        self._over.set()
        self.join()
