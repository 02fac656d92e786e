"""Ports on 127.0.0.1 that stay ours, also while the broker behind them is down.

Invariant: a port handed out is bound by us, but not listened on, until it is released. The kernel gives
such a port to nobody who asks for any port, nor to an outgoing connection; a server that sets SO_REUSEADDR,
as every Java server does, may still listen on it. So a killed broker comes back on its old port.
"""

from __future__ import annotations

import socket


class ReservedPort:
    """One port; ``number`` 0 takes a free one, another number that very one (OSError if it is taken)."""

    def __init__(self, number: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if number:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", number))
            # For a free port only now: with the option set before, the kernel could pick a port that another
            # reservation holds.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def answers(port: int, timeout: float = 1.0) -> bool:
    """Whether something accepts connections on a port of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout):
            return True
    except OSError:
        return False
