"""``config check --live`` asks all sites at once: none is waited for before the next one is asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from isthmus.config import loads
from isthmus.engine.check import check_live

CONFIG = """
sites:
  east: {{bootstrap: "127.0.0.1:{}", registry: {{url: "http://127.0.0.1:{}"}}}}
  west: {{bootstrap: "127.0.0.1:{}", registry: {{url: "http://127.0.0.1:{}"}}}}
"""


class Silent:
    """Listens, and never answers. ``others`` is how many of all were connected to when somebody first gave up waiting."""

    met: set[int]

    def __init__(self, met: set[int]) -> None:
        self.met, self.others = met, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.gave_up = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.met.add(self.port)
                threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while connection.recv(4096):
                pass
        if not self.gave_up.is_set():
            self.others = len(self.met)
            self.gave_up.set()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def silent() -> Iterator[list[Silent]]:
    met: set[int] = set()
    found = [Silent(met) for _ in range(4)]
    yield found
    for each in found:
        each.close()


def test_sites_and_registries_that_never_answer_are_all_asked_before_one_is_given_up(silent: list[Silent]) -> None:
    config = loads(CONFIG.format(*(each.port for each in silent)))
    problems = check_live(config, timeout=5.0)
    assert sorted(problem.loc for problem in problems) == [
        ("sites", site, key) for site in ("east", "west") for key in ("bootstrap", "registry")
    ]
    assert all(each.gave_up.wait(30) for each in silent)
    assert [each.others for each in silent] == [4] * 4
