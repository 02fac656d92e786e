"""A registry, or whatever answers in its place, can neither fill our memory nor hold us up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from isthmus.config import Registry
from isthmus.control import answers, registry
from isthmus.control.registry import RegistryClient
from isthmus.errors import ConnectionFailed, RegistryRefused

Serve = Callable[[socket.socket, threading.Event], None]


@contextlib.contextmanager
def served(serve: Serve, timeout: float = 5.0) -> Iterator[RegistryClient]:
    """A client of a server that does this with each connection."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=answer, args=(connection,), daemon=True))
                threads[-1].start()

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while not over.is_set() and connection.recv(65536):
                serve(connection, over)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        port = listener.getsockname()[1]
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        client = RegistryClient(Registry(url=f"http://127.0.0.1:{port}", timeout=timeout, retry_for=0.01), "west")
        try:
            yield client
        finally:
            client.close()
            over.set()
            accepting.join()
            for thread in threads:
                thread.join(10)


def answering(body: bytes) -> Serve:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda connection, _: connection.sendall(head + body)


def test_connections_are_kept_and_each_request_has_its_whole_time() -> None:
    with served(answering(b'["a"]')) as client:
        assert [client.get("/subjects", answers.names) for _ in range(50)] == [["a"]] * 50
        assert len(client._open) == 1


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"[" * 200_000, b"\xff\xfe"])
def test_what_is_no_json_is_told_as_that(body: bytes) -> None:
    with (
        served(answering(body)) as client,
        pytest.raises(RegistryRefused, match="not JSON that a registry gives") as told,
    ):
        client.get("/subjects", answers.names)
    assert "site west: registry http://127.0.0.1" in told.value.message
    assert len(told.value.message) < 400


@pytest.mark.parametrize("sized", [True, False])
def test_an_answer_without_end_is_cut_off(sized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_BYTES", 1 << 20)

    def flood(connection: socket.socket, over: threading.Event) -> None:
        length = "Content-Length: 400000000\r\n" if sized else ""
        connection.sendall(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        while not over.is_set():
            connection.sendall(b"[" * 65536)

    with served(flood) as client, pytest.raises(RegistryRefused, match="larger than 1 MiB"):
        client.get("/subjects", answers.names)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_an_answer_that_drips_is_not_waited_for(head: bytes) -> None:
    def drip(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(0.05):
            connection.sendall(b"x")

    # Each byte comes in time: without a bound on the whole this would not end.
    with served(drip, timeout=0.5) as client, pytest.raises(ConnectionFailed):
        client.get("/subjects", answers.names)
