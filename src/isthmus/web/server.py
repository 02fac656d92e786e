"""Serves one text to those who may read it.

Invariants: bound to the loopback unless told otherwise; without the token nothing is told but that one is missing; tokens
are compared in constant time and never logged, and an empty one lets nobody in; a request that is wrong, slow or broken off harms nobody else: there
are only so many at a time, and each is cut off when its time is up, however busy it looks.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from isthmus.errors import ConfigError, UsageError
from isthmus.web.openmetrics import CONTENT_TYPE

# From being let in to the last byte of the answer.
REQUEST_SECONDS = 10.0
MOST_REQUESTS = 32


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_REQUESTS

    def __init__(self, *given: Any) -> None:
        self._let_in: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*given)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._let_in) >= MOST_REQUESTS:
                return False
            self._let_in[request] = time.monotonic()
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._let_in.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second: whoever has had his time is cut off."""
        now = time.monotonic()
        with self._lock:
            for request, since in self._let_in.items():
                if now - since > REQUEST_SECONDS:
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that hangs up is no news."""


class MetricsServer:
    """``GET /metrics`` from a thread of its own, until closed."""

    def __init__(self, address: tuple[str, int], token: Callable[[], str] | None, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS
            server_version, sys_version = "isthmus", ""

            def do_GET(self) -> None:
                try:
                    wanted = token() if token is not None else None
                except ConfigError:
                    self._answer(503, "the token cannot be read\n", "text/plain")
                    return
                if wanted is not None and not _may(self.headers.get("Authorization", ""), wanted):
                    self._answer(401, "a bearer token is needed\n", "text/plain", {"WWW-Authenticate": "Bearer"})
                elif self.path.partition("?")[0] != "/metrics":
                    self._answer(404, "metrics are at /metrics\n", "text/plain")
                else:
                    self._answer(200, text(), CONTENT_TYPE)

            def _answer(self, code: int, body: str, kind: str, headers: dict[str, str] | None = None) -> None:
                data = body.encode()
                self.send_response(code)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Scrapes are many, and nobody reads of them."""

        try:
            self._server = _Server(address, Handler)
        except OSError as error:
            raise UsageError(f"metrics cannot be served on {address[0]}:{address[1]}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="isthmus-metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _may(header: str, token: str) -> bool:
    kind, _, given = header.partition(" ")
    # A file that is being replaced may be empty for a moment.
    return (
        bool(token.strip()) and kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
    )
