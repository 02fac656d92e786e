"""A small client for schema registries that speak the Confluent API.

Invariants:
- a request that fails in passing (no connection, no answer in time, 5xx, 429) is tried again until the registry's
  ``retry_for`` is over; every request here may be repeated without harm. After that the registry counts as down, and
  whoever asks next is told at once;
- an error names the site, the request and the registry's own words, and never a credential;
- each thread has a connection of its own, kept alive;
- an answer is bounded in size and, whole, in time; one that is no JSON, or of another shape than what was asked for has (answers.py), is an error that
  says so.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from isthmus.config import Registry, Site
from isthmus.control import answers
from isthmus.errors import (
    AuthenticationFailed,
    AuthorisationFailed,
    ConfigError,
    ConnectionFailed,
    IsthmusError,
    RegistryRefused,
)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
# More than any registry has to say at once.
MOST_BYTES = 64 << 20
# The API's word for a subject without a level of its own; a registry that never says it (Apicurio) shows NONE instead.
NO_LEVEL_OF_ITS_OWN = 40408
NO_SUBJECT = "isthmus-no-such-subject"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_PASSING = (OSError, http.client.HTTPException)

Item = TypeVar("Item")
Result = TypeVar("Result")


def path(*parts: str | int, **query: Any) -> str:
    """A path of the API; parts are quoted, and a query that is None or False is left out."""
    asked = {key: "true" if value is True else value for key, value in query.items() if value not in (None, False)}
    words = "/".join(quote(str(part), safe="") for part in parts)
    return f"/{words}?{urlencode(asked)}" if asked else f"/{words}"


class _Clocked(io.RawIOBase):
    """What a socket brings until a moment; one byte now and then does not keep it open."""

    def __init__(self, stream: BinaryIO, line: socket.socket, until: float) -> None:
        self._stream, self._line, self._until = stream, line, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self._line.settimeout(left)
        return int(self._stream.raw.readinto(buffer) or 0)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer that has to come, head and body, within the connection's time."""

    def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self._line, self._seconds = sock, sock.gettimeout() or 0.0
        self.fp = io.BufferedReader(_Clocked(self.fp, sock, time.monotonic() + self._seconds))

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError):  # the next request on this connection has its whole time again
            self._line.settimeout(self._seconds)


class RegistryClient:
    """The registry of one site. Blocking; ``map`` runs many requests at once."""

    def __init__(self, registry: Registry, site: str) -> None:
        self.site = site
        self._registry = registry
        parts = urlsplit(registry.url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path.rstrip("/")
        try:
            self._tls = _tls_context(registry) if parts.scheme == "https" else None
        except OSError as error:
            raise ConfigError(f"site {site}: registry: the certificates cannot be used: {_words(error)}") from None
        self._mine = threading.local()
        self._open: list[http.client.HTTPConnection] = []
        self._down: ConnectionFailed | None = None
        self._pool = ThreadPoolExecutor(registry.connections, thread_name_prefix=f"registry-{site}")
        self._lock = threading.Lock()
        self._asked_for_level = False
        self._tells = False
        self.requests = 0

    @classmethod
    def of(cls, site: Site) -> RegistryClient:
        assert site.registry is not None  # checked with the configuration
        return cls(site.registry, site.name)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for connection in self._open:
            connection.close()

    # -- many at once -------------------------------------------------------------------------------------

    def map(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[tuple[Item, Result | IsthmusError]]:
        """What became of each item, several at a time; an error of ours is a value."""
        given: list[tuple[Item, Future[Result]]] = [(item, self._pool.submit(call, item)) for item in items]
        return [(item, _value(future)) for item, future in given]

    # -- compatibility levels -----------------------------------------------------------------------------

    def level_of(self, subject: str) -> str | None:
        """The compatibility level that the registry shows on a subject, set or not; None if it shows none."""
        try:
            return self.get(path("config", subject), answers.level)
        except RegistryRefused as refusal:
            if refusal.status != 404:
                raise
            if refusal.code == NO_LEVEL_OF_ITS_OWN:
                self._tells = True
            return None

    def own_level(self, subject: str) -> str | None:
        """The level that is set on the subject itself, as far as the registry tells."""
        level = self.level_of(subject)
        return None if self.says_nothing(level) else level

    def says_nothing(self, level: str | None) -> bool:
        """Whether a level that is shown on a subject may be there without having been set."""
        return level is None or (level == "NONE" and not self._tells_unset())

    def _tells_unset(self) -> bool:
        with self._lock:
            if not self._asked_for_level:
                self.level_of(NO_SUBJECT)
                self._asked_for_level = True
        return self._tells

    # -- one request --------------------------------------------------------------------------------------

    def get(self, where: str, read: Callable[[Any], Result]) -> Result:
        """What stands there, as ``read`` reads it (answers.py)."""
        return self._ask("GET", where, read)

    def post(self, where: str, body: Mapping[str, Any], read: Callable[[Any], Result]) -> Result:
        return self._ask("POST", where, read, body)

    def put(self, where: str, body: Mapping[str, Any]) -> None:
        self._ask("PUT", where, answers.anything, body)

    def delete(self, where: str) -> None:
        self._ask("DELETE", where, answers.anything)

    def find(self, where: str, read: Callable[[Any], Result]) -> Result | None:
        """The same as ``get``; None where there is no such thing."""
        try:
            return self.get(where, read)
        except RegistryRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    def _ask(
        self, verb: str, where: str, read: Callable[[Any], Result], body: Mapping[str, Any] | None = None
    ) -> Result:
        if self._down is not None:
            raise self._down
        deadline, pause = time.monotonic() + self._registry.retry_for, FIRST_PAUSE
        while True:
            try:
                status, text = self._send(verb, where, body)
            except ssl.SSLCertVerificationError as error:  # that does not pass
                raise ConnectionFailed(f"{self._name(verb, where)}: {_words(error)}", self.site) from None
            except _PASSING as error:
                status, text = 0, _words(error)
            if 200 <= status < 300:
                return self._parsed(verb, where, status, text, read)
            if 0 < status < 500 and status != 429:
                raise self._refusal(verb, where, status, text)
            if time.monotonic() + pause > deadline:
                said = f"it answered {status} {_message(text)[1]}".rstrip() if status else text
                self._down = ConnectionFailed(
                    f"{self._name(verb, where)}: no use after {self._registry.retry_for:g} s: {said}", self.site
                )
                raise self._down
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE, pause * 2)

    def _parsed(self, verb: str, where: str, status: int, text: str, read: Callable[[Any], Result]) -> Result:
        why = "the answer is not JSON that a registry gives"
        try:
            answer = json.loads(text) if text else None
            why = "the answer is none that a registry gives"
            return read(answer)
        except (ValueError, RecursionError) as error:
            if "none that" in why:
                why += f" ({str(error)[:120]})"
            began = " ".join(text[:200].split())[:80]
            raise RegistryRefused(
                f"{self._name(verb, where)}: {why}; it begins {began!r}. Is registry.url right, or does a proxy answer?",
                self.site,
                status,
            ) from None

    def _send(self, verb: str, where: str, body: Mapping[str, Any] | None) -> tuple[int, str]:
        connection = self._connection()
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(verb, self._base + where, payload, self._headers())
            answer = connection.getresponse()
            self.requests += 1
            text = answer.read(MOST_BYTES + 1)
            if len(text) > MOST_BYTES:
                raise RegistryRefused(
                    f"{self._name(verb, where)}: the answer is larger than {MOST_BYTES >> 20} MiB",
                    self.site,
                    answer.status,
                )
            return answer.status, text.decode("utf-8", "replace")
        except BaseException:
            connection.close()  # it may be in the middle of an answer; http.client opens it anew by itself
            raise

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            timeout = self._registry.timeout
            if self._tls is None:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            else:
                connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
            connection.response_class = _Answer
            self._mine.connection = connection
            self._open.append(connection)
        return connection

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": CONTENT_TYPE, "Accept": f"{CONTENT_TYPE}, application/json"}
        registry = self._registry
        if registry.token is not None:
            headers["Authorization"] = f"Bearer {registry.token.reveal()}"
        elif registry.username is not None and registry.password is not None:
            pair = f"{registry.username}:{registry.password.reveal()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers

    def _name(self, verb: str, where: str) -> str:
        return f"site {self.site}: registry {self._registry.url}: {verb} {where}"

    def _refusal(self, verb: str, where: str, status: int, text: str) -> IsthmusError:
        code, words = _message(text)
        told = f"{self._name(verb, where)}: {words or 'no reason given'} ({code or status})"
        if status == 401:
            return AuthenticationFailed(told, self.site)
        if status == 403:
            return AuthorisationFailed(told, self.site, f"the right to {verb} {where} at the registry")
        return RegistryRefused(told, self.site, status, code)


def _value(future: Future[Any]) -> Any:
    try:
        return future.result()
    except IsthmusError as error:
        return error


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _message(text: str) -> tuple[int, str]:
    """The registry's own code and words; a proxy's page is only cited by its beginning."""
    try:
        answer = json.loads(text)
        return int(answer.get("error_code") or 0), str(answer.get("message") or "")
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return 0, " ".join(text.split())[:200]


def _tls_context(registry: Registry) -> ssl.SSLContext:
    tls = registry.tls
    context = ssl.create_default_context(cafile=str(tls.ca) if tls and tls.ca else None)
    if tls is not None:
        context.check_hostname = tls.verify_hostname
        if tls.certificate is not None:
            password = tls.key_password.reveal() if tls.key_password else None
            context.load_cert_chain(str(tls.certificate), str(tls.key) if tls.key else None, password)
    return context
