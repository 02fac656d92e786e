"""kafka-python's transports with reads and writes sized for bulk data.

Why: the stock transport reads 4 KiB a system call, and its TLS variant copies the unsent rest of a request
after each TLS record (16 KiB), which is quadratic in the size of a request.
"""

from __future__ import annotations

import ssl
from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

# One read takes what the kernel usually holds for a busy connection on a fast network.
READ_BYTES = 1 << 20
# Stop reading after this much so that one busy connection can't starve the others on the loop.
READ_ROUND_BYTES = 8 << 20

_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Bulk:
    _sock: Any

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        pieces: list[bytes] = []
        total = 0
        problem: Exception | None = None
        while total < READ_ROUND_BYTES:
            try:
                piece = self._sock.recv(READ_BYTES)
            except _WOULD_BLOCK:
                break
            except OSError as error:
                problem = KafkaConnectionError(error)
                break
            if not piece:
                problem = KafkaConnectionError("closed by the broker")
                break
            pieces.append(piece)
            total += len(piece)
        # What came before the end is still handed on: a broker may answer and then close.
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), problem


class TcpTransport(_Bulk, KafkaTCPTransport):  # type: ignore[misc]
    """Plain TCP."""


class TlsTransport(_Bulk, KafkaSSLTransport):  # type: ignore[misc]
    """TLS."""

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        pieces: list[bytes] = []
        problem: Exception | None = None
        # A TLS read returns one record at most, and data already decrypted does not wake the selector:
        # read until nothing is left.
        while True:
            try:
                piece = self._sock.recv(READ_BYTES)
            except _WOULD_BLOCK:
                break
            except OSError as error:
                problem = KafkaConnectionError(error)
                break
            if not piece:
                problem = KafkaConnectionError("closed by the broker")
                break
            pieces.append(piece)
        return b"".join(pieces), problem

    def write(self, data: Any) -> None:
        super().write(memoryview(data) if data else data)
