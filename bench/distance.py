"""Distance between sites: a proxy, in a process of its own, that holds every byte for half a round trip.

Why a proxy: it runs anywhere, without rights over the network. What it can't do is lose packets. Loss acts on TCP by
keeping the congestion window small, so a lossy path is imitated by what is left of a connection's rate under loss: by the
well-known rule of thumb, segment / round trip * 1.22 / sqrt(loss), for each connection and direction.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import socket
import threading
import time
from collections import deque
from typing import Any

from isthmus.sandbox import KafkaSite

SEGMENT_BYTES = 1460
CHUNK_BYTES = 128 << 10
# What one connection may have on its way, as a kernel with window scaling would grow to.
WINDOW_BYTES = 16 << 20


def rate_under_loss(round_trip: float, loss: float) -> float | None:
    """Bytes a second that a connection gets; None is unlimited."""
    return SEGMENT_BYTES / round_trip * 1.22 / math.sqrt(loss) if loss else None


class _Direction:
    """One way of one connection: a queue of (when it may be handed on, bytes)."""

    def __init__(self, source: socket.socket, drain: socket.socket, delay: float, rate: float | None) -> None:
        self._source, self._drain, self._delay, self._rate = source, drain, delay, rate
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._change = threading.Condition()
        for work in (self._take_in, self._hand_on):
            threading.Thread(target=work, daemon=True).start()

    def _take_in(self) -> None:
        free = time.monotonic()
        with contextlib.suppress(OSError):
            while data := self._source.recv(CHUNK_BYTES):
                now = time.monotonic()
                # A slow line is one that is free again only after this much was put on it.
                free = max(free, now) + (len(data) / self._rate if self._rate else 0)
                with self._change:
                    self._queue.append((max(now, free) + self._delay, data))
                    self._held += len(data)
                    self._change.notify_all()
                    while self._held > WINDOW_BYTES:
                        self._change.wait()
        with self._change:
            self._queue.append((time.monotonic() + self._delay, b""))
            self._change.notify_all()

    def _hand_on(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self._change:
                    while not self._queue:
                        self._change.wait()
                    due, data = self._queue.popleft()
                wait = due - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                if not data:
                    self._drain.shutdown(socket.SHUT_WR)
                    return
                self._drain.sendall(data)
                with self._change:
                    self._held -= len(data)
                    self._change.notify_all()


def _serve(listener: socket.socket, port: int, delay: float, rate: float | None) -> None:
    while True:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", port))
        except OSError:
            near.close()
            continue
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _Direction(near, far, delay, rate)
        _Direction(far, near, delay, rate)


class Distance:
    """A far way to a site of one broker; ``bootstrap`` is its address at the near end."""

    def __init__(self, site: KafkaSite, round_trip: float, loss: float) -> None:
        broker, ports = site.brokers[0], site.ports[0]
        broker.stop()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            inner = free.getsockname()[1]
        listener = socket.create_server(("127.0.0.1", 0))
        outer = listener.getsockname()[1]
        with broker.properties_path.open("a") as properties:
            properties.write(
                f"listeners=INNER://127.0.0.1:{ports.inner},CONTROLLER://127.0.0.1:{ports.controller},"
                f"OUTER://127.0.0.1:{inner}\n"
                f"advertised.listeners=INNER://127.0.0.1:{ports.inner},OUTER://127.0.0.1:{outer}\n"
                "listener.security.protocol.map=INNER:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTER:PLAINTEXT\n"
            )
        broker.start()
        self.bootstrap = f"127.0.0.1:{outer}"
        fork = multiprocessing.get_context("fork")
        self._process: Any = fork.Process(
            target=_serve, args=(listener, inner, round_trip / 2, rate_under_loss(round_trip, loss)), daemon=True
        )
        self._process.start()
        listener.close()

    def close(self) -> None:
        self._process.terminate()
        self._process.join()
