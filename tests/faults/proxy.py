"""A TCP proxy that breaks connections after a random number of bytes, in the middle of a request or of an answer, or that
carries only so many bytes a second, each way of each connection."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.sandbox import KafkaSite

RELAY_BYTES = 16384
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing throws away what is unsent and sends RST
# Bytes that a connection may carry, as powers of two: few hit a handshake, many a large answer.
LEAST, MOST = 8, 20


class _Connection:
    """A client's connection and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, near: socket.socket, far: socket.socket, allowed: int) -> None:
        self._proxy, self._ends, self._allowed = proxy, (near, far), allowed
        self._threads = [
            threading.Thread(target=self._relay, args=ends, daemon=True) for ends in ((near, far), (far, near))
        ]
        for thread in self._threads:
            thread.start()

    def _relay(self, source: socket.socket, drain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(RELAY_BYTES):
                if self._proxy.breaking:
                    self._allowed -= len(data)
                    if self._allowed <= 0:
                        drain.sendall(data[: self._allowed - 1])  # somewhere within
                        self._proxy.broken += 1
                        self._reset()
                        break
                drain.sendall(data)
                if self._proxy.bytes_per_second:
                    time.sleep(len(data) / self._proxy.bytes_per_second)
        self.close()

    def _reset(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def close(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
            end.close()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


class Proxy:
    """Listens on a port of its own and passes on to another; ``broken`` counts connections that it broke."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = random.Random(rng.random())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self.breaking = False
        self.broken = 0
        self.bytes_per_second = 0
        self._connections: list[_Connection] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                allowed = int(2 ** self._rng.uniform(LEAST, MOST))
                self._connections.append(_Connection(self, near, far, allowed))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()
            connection.join()


def advertise(site: KafkaSite, proxy: Proxy) -> str:
    """Give a site of one broker another listener, that clients reach through the proxy; its bootstrap address."""
    broker, ports = site.brokers[0], site.ports[0]
    broker.stop()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        proxy.target = free.getsockname()[1]
    with broker.properties_path.open("a") as properties:
        properties.write(
            f"listeners=INNER://127.0.0.1:{ports.inner},CONTROLLER://127.0.0.1:{ports.controller},"
            f"OUTER://127.0.0.1:{proxy.target}\n"
            f"advertised.listeners=INNER://127.0.0.1:{ports.inner},OUTER://127.0.0.1:{proxy.port}\n"
            "listener.security.protocol.map=INNER:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTER:PLAINTEXT\n"
        )
    broker.start()
    return f"127.0.0.1:{proxy.port}"
