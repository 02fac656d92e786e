"""A connection that plainly cannot be is told at once to whoever waits, in words that say what to mend."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from isthmus.config import Site
from isthmus.errors import ConnectionFailed
from isthmus.kafka.cluster import Cluster


def why_not(address: str) -> str:
    # A plain failure that was tried again until the time is over would take ten minutes.
    with Cluster(Site(name="east", bootstrap=[address])) as cluster:
        with pytest.raises(ConnectionFailed) as caught:
            cluster.call(cluster.connect, 600.0, 0.0)
        return caught.value.message


@pytest.fixture
def hangs_up() -> Iterator[str]:
    """A port that closes each connection when something was said."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.recv(1 << 16)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def test_nobody_listens() -> None:
    assert "connection refused: nothing listens there" in why_not("127.0.0.1:1")


def test_no_such_name() -> None:
    assert "the name no-such-host.invalid cannot be resolved (DNS)" in why_not("no-such-host.invalid:9092")


def test_a_port_that_hangs_up_before_the_greeting_expects_tls(hangs_up: str) -> None:
    assert "probably expects TLS" in why_not(hangs_up)


def test_an_address_that_is_slow_is_waited_for_beside_one_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = f"127.0.0.1:{silent.getsockname()[1]}"
        with Cluster(Site(name="east", bootstrap=["127.0.0.1:1", slow])) as cluster:
            with pytest.raises(ConnectionFailed):
                cluster.call(cluster.connect, 3.0, 0.0)
            client, _ = silent.accept()  # it was tried, though the other had failed plainly
            client.close()
