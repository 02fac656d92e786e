"""Brokers that only speak the protocol: sockets with Kafka's frames, and answers that a test gives.

For sites that cannot be started here: several brokers with ZooKeeper, and software that speaks Kafka's protocol in part. What a test does not answer
for is not offered in ApiVersions.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

Answer = Callable[[int, Any], Any]
"""From the number of the broker and the request to the response."""


class FakeSite:
    """``answers`` are by class of request; the newest version of each that is offered is in ``versions``."""

    def __init__(
        self, answers: Mapping[Any, Answer], brokers: int = 1, versions: Mapping[Any, int] | None = None
    ) -> None:
        self.controller = 0
        self.cluster_id = "fake"
        self.asked: list[tuple[int, str]] = []
        self._answers = {ApiVersionsRequest: self._api_versions, MetadataRequest: self._metadata, **answers}
        self._by_key = {kind.API_KEY: kind for kind in self._answers}
        self._versions = {MetadataRequest: 7, **(versions or {})}
        self._listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
        self._open: list[socket.socket] = []
        self._closed = False
        for number, listening in enumerate(self._listening):
            threading.Thread(target=self._accept, args=(number, listening), daemon=True).start()

    @property
    def bootstrap(self) -> list[str]:
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in self._listening]

    def close(self) -> None:
        self._closed = True
        for each in (*self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> FakeSite:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def requests(self, kind: Any) -> list[int]:
        """Which brokers were asked this, in order."""
        return [number for number, name in self.asked if name == kind.__name__]

    # -- the protocol -------------------------------------------------------------------------------------

    def _accept(self, number: int, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listening.accept()
                self._open.append(line)
                threading.Thread(target=self._serve, args=(number, line), daemon=True).start()

    def _serve(self, number: int, line: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            for frame in _frames(line):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                kind = self._by_key[key]
                self.asked.append((number, kind.__name__))
                response = self._answers[kind](number, kind.decode(frame, version=version, header=True))
                response.API_VERSION = version
                response.with_header(correlation)
                line.sendall(response.encode(header=True, framed=True))

    def _api_versions(self, number: int, request: Any) -> Any:
        offered = [
            ApiVersionsResponse.ApiVersion(
                api_key=kind.API_KEY, min_version=0, max_version=self._versions.get(kind, kind.max_version)
            )
            for kind in self._answers
        ]
        return ApiVersionsResponse(error_code=0, api_keys=offered, throttle_time_ms=0)

    def _metadata(self, number: int, request: Any) -> Any:
        brokers = [
            MetadataResponse.MetadataResponseBroker(
                node_id=n, host="127.0.0.1", port=int(where.split(":")[1]), rack=None
            )
            for n, where in enumerate(self.bootstrap)
        ]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=brokers,
            cluster_id=self.cluster_id,
            controller_id=self.controller,
            topics=[],
        )


def _frames(line: socket.socket) -> Iterator[bytes]:
    while True:
        (size,) = struct.unpack(">i", _exactly(line, 4))
        yield _exactly(line, size)


def _exactly(line: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = line.recv(size - len(read))
        if not more:
            raise EOFError
        read += more
    return read
