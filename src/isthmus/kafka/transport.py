"""kafka-python's connections with a receive path for bulk data.

Why: the stock transport reads 4 KiB a system call and its parser copies every response three times; its TLS variant also
copies the unsent rest of a request after each TLS record, which is quadratic in the size of a request. Measured on
16 MiB fetch responses, that was half of all the CPU a task spent.

Invariant: a response is received straight into the one buffer that its fields are then decoded from.
"""

from __future__ import annotations

import ssl
import struct
import time
from typing import Any

import numpy as np
from kafka.errors import (
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaProtocolError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.parser import KafkaProtocol

# Stop reading after this much so that one busy connection can't starve the others on the loop.
ROUND_BYTES = 8 << 20
MOST_FRAME_BYTES = (1 << 31) - 1
HUNG_UP = "closed by the broker"

_LENGTH = struct.Struct(">i")
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def _lost(why: object) -> Exception:
    error: Exception = KafkaConnectionError(why)
    return error


class PlainFailure(KafkaConnectionError):  # type: ignore[misc]
    """Why there is no connection, in the words of the one who has to mend it."""

    @classmethod
    def expected(cls, what: str, greeted: bool) -> PlainFailure:
        when = "right after the greeting" if greeted else "before it answers anything"
        return cls(
            f"the broker hangs up {when}: it probably expects {what.upper()}, and the site has no {what} configured"
        )

    def __str__(self) -> str:
        return str(self.args[0])


def refused(error: Exception) -> bool:
    """Whether nobody listens at an address."""
    return "ECONNREFUSED" in str(error)


def hung_up(error: Exception) -> bool:
    """Whether it was the other side that closed a connection."""
    return HUNG_UP in str(error) or "reset" in str(error).lower()


class Frame:
    """One whole response; reads like a file where the decoder wants one, without copying the bulk."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self, count: int | None = None) -> Any:
        start = self._at
        if count is None:
            self._at = len(self._data)
            return self._data[start:]
        self._at = min(len(self._data), start + count)
        return bytes(self._data[start : self._at])

    def seek(self, at: int) -> None:
        self._at = at

    def tell(self) -> int:
        return self._at


class FrameProtocol(KafkaProtocol):  # type: ignore[misc]
    """The parser for a transport that hands over whole frames."""

    def receive_bytes(self, data: Frame) -> list[tuple[int, Any]]:
        return [self._process_response(data)]


class FrameConnection(KafkaConnection):  # type: ignore[misc]
    """A connection over one of our transports.

    ``refusal`` is why the broker did not let us in: it answers and hangs up in one go, and kafka-python then only tells that
    the connection was lost. When a quota of the broker bids us wait, requests wait; kafka-python would refuse them.
    """

    refusal: Exception | None = None

    def send_request(self, request: Any, request_timeout_ms: int | None = None) -> Future:
        if not (self.connected and "throttle" in self.paused):
            return super().send_request(request, request_timeout_ms)
        future = Future()
        until = max(self._throttle_time, time.monotonic())
        self._request_buffer.append((request, future, self._timeout_at(until, request_timeout_ms)))
        return future

    def unpause(self, v: str) -> None:
        super().unpause(v)
        if v == "throttle" and self.connected:
            self.send_buffered()

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        try:
            await super()._sasl_authenticate(timeout_at)
        except (SaslAuthenticationFailedError, UnsupportedSaslMechanismError) as error:
            self.refusal = error
            raise

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.parser = FrameProtocol(client_id=self.config["client_id"])


class _Frames:
    """Reads frames from the socket as they come."""

    _sock: Any
    _net: Any
    _protocol: Any
    _read: bool
    _closed: bool
    last_read: float
    abort: Any

    _head: bytearray
    _headed = 0
    _body: memoryview | None = None
    _filled = 0

    async def _read_from_sock(self) -> None:
        self._head = bytearray(4)
        while self._read and not self._closed:
            await self._net.wait_read(self._sock)
            self.last_read = time.monotonic()
            try:
                problem = self._receive()
            except (KafkaProtocolError, InvalidReceiveError) as error:
                problem = error
            if problem is not None:
                self.abort(error=problem)
                return

    def _receive(self) -> Exception | None:
        """Read what is there; whole frames go to the connection. What made reading impossible is returned."""
        budget = ROUND_BYTES
        while budget > 0 and not self._closed:
            target = self._body[self._filled :] if self._body is not None else memoryview(self._head)[self._headed :]
            try:
                count = self._sock.recv_into(target) if len(target) else 0
            except _WOULD_BLOCK:
                return None
            except OSError as error:
                return _lost(error)
            if count == 0 and len(target):
                return _lost(HUNG_UP)
            budget -= count
            if self._body is None:
                self._headed += count
                if self._headed < 4:
                    continue
                (length,) = _LENGTH.unpack(self._head)
                if not 0 <= length <= MOST_FRAME_BYTES:
                    raise InvalidReceiveError(f"frame of {length} bytes")
                # Not zeroed: every byte is about to be received.
                self._body, self._filled, self._headed = np.empty(length, np.uint8).data, 0, 0
            else:
                self._filled += count
            if self._filled == len(self._body):
                frame, self._body = Frame(self._body.toreadonly()), None
                self._filled = 0
                self._protocol.data_received(frame)
        return None


class TcpTransport(_Frames, KafkaTCPTransport):  # type: ignore[misc]
    """Plain TCP."""


class TlsTransport(_Frames, KafkaSSLTransport):  # type: ignore[misc]
    """TLS. What is decrypted already does not wake the selector, so reading goes on until nothing is left."""

    def _receive(self) -> Exception | None:
        while True:
            problem = super()._receive()
            if problem is not None or self._closed or not self._sock.pending():
                return problem

    def write(self, data: Any) -> None:
        super().write(memoryview(data) if data else data)
