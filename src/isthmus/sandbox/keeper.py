"""Runs one command for an owner, and never lets it outlive that owner.

    owner ──pipe──> keeper ──parent-death signal──> command (its own session and process group)

Invariant: when the owner dies in any way, or lets go of the pipe, the keeper kills the command's whole
process group; when the keeper dies in any way, the kernel kills the command. So the command is gone
unless owner and keeper both live.

Started as a file, not as a module, so that it needs nothing but the standard library and is up in
milliseconds. Arguments: the owner's process id, the log file, then the command. The command's process id
is the first line on standard output; the keeper's exit status is the command's.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable

# The pipe tells of the owner's death at once, except when a fork of the owner still holds it open. Then our
# parent has changed all the same, which this often is looked at.
PARENT_CHECK_SECONDS = 0.5
PR_SET_PDEATHSIG = 1


def dying_with_us() -> Callable[[], None]:
    """What the command's process does between fork and exec; prepared here, since little is safe there."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    keeper = os.getpid()

    def ask_for_death_signal() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:  # the keeper died before the kernel knew about our wish
            os._exit(1)

    return ask_for_death_signal


def keep(owner: int, log: str, command: list[str]) -> int:
    """Run the command until it ends or the owner is gone; its exit status (negative: killed by a signal)."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler must exist for the wake-up byte to be written
    signal.set_wakeup_fd(wake_write)
    for polite in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(polite, lambda *_: sys.exit(1))

    with open(log, "ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=dying_with_us(),
        )
    try:
        os.write(1, f"{child.pid}\n".encode())
        while child.poll() is None and os.getppid() == owner:
            ready, _, _ = select.select([0, wake_read], [], [], PARENT_CHECK_SECONDS)
            if 0 in ready and not os.read(0, 1):
                break
            if wake_read in ready:
                os.read(wake_read, 64)
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)  # also what the command left behind in its group
        except ProcessLookupError:
            pass
        child.wait()
    return child.returncode


if __name__ == "__main__":
    status = keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    sys.exit(status if status >= 0 else 128 - status)
