"""What keeps strangers out, pinned: each of these would be easy to lose without anybody noticing."""

from __future__ import annotations

import ast
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from isthmus.config import Registry, loads
from isthmus.control import answers
from isthmus.control.registry import RegistryClient
from isthmus.errors import ConnectionFailed, RegistryRefused
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.transport import TlsTransport
from isthmus.recovery.fencing import run_hook
from isthmus.web.server import MetricsServer

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@contextlib.contextmanager
def answering(serve: object) -> Iterator[int]:
    """A listener on this machine that hands each connection on; its port."""
    over = threading.Event()

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(30)
                    serve(connection)  # type: ignore[operator]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("another.example").configure_cert(context)
    greeted: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as line:
            greeted.append(line.recv(1))

    with answering(serve) as port:
        tls = f"{{ca: {tmp_path / 'ca.pem'}}}"
        site = loads(f"sites: {{a: {{bootstrap: 'localhost:{port}', tls: {tls}}}}}").sites["a"]
        with Cluster(site) as cluster, pytest.raises(ConnectionFailed, match=r"(?i)certificate"):
            cluster.call(cluster.connect, 10.0, 0.5)
    assert not any(greeted), "nothing is said to whoever is not who we meant"


def test_old_tls_is_not_spoken() -> None:
    context = TlsTransport._build_ssl_context(dict(TlsTransport.DEFAULT_CONFIG))
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_a_registry_sends_us_nowhere_else() -> None:
    def serve(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

    asked: list[bytes] = []
    with answering(serve) as port:
        client = RegistryClient(
            Registry(url=f"http://127.0.0.1:{port}", token="t", retry_for=1.0, timeout=10.0), "west"
        )  # type: ignore[arg-type]
        try:
            with pytest.raises(RegistryRefused, match="302"):
                client.get("/subjects", answers.names)
        finally:
            client.close()
    assert len(asked) == 1


def test_hooks_are_not_run_by_a_shell(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hooks = f'{{fence: ["echo", "$HOME; touch {ran}"]}}'
    site = loads(f"sites: {{a: {{bootstrap: 'a:1', hooks: {hooks}}}}}").sites["a"]
    assert run_hook(site, "fence", "failover") == f"$HOME; touch {ran}"
    assert not ran.exists()


def test_what_is_served_is_served_to_this_machine_alone() -> None:
    assert (
        loads("sites: {a: {bootstrap: 'a:1'}}\nmetrics: {listen: 9464, open: true}").metrics.address[0] == "127.0.0.1"
    )  # type: ignore[union-attr]
    with MetricsServer(("127.0.0.1", 0), None, str) as server:
        assert server._server.server_address[0] == "127.0.0.1"
    for source in SOURCES:
        assert "0.0.0.0" not in source.read_text(), source


def test_tokens_and_proofs_are_compared_in_constant_time() -> None:
    for name in ("web/server.py", "engine/signature.py"):
        assert "hmac.compare_digest(" in (ROOT / "src" / "isthmus" / name).read_text()


def test_nothing_that_others_can_write_is_unpickled_evaluated_or_given_to_a_shell() -> None:
    """The one pickle goes through a pipe to a process of our own; Spark's are Spark's."""
    allowed = {"recovery/drill_process.py"}
    for source in SOURCES:
        tree = ast.parse(source.read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        where = str(source.relative_to(ROOT / "src" / "isthmus"))
        assert where in allowed or not names & {"pickle", "cloudpickle", "marshal", "shelve", "dill"}, where
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                assert called not in ("eval", "exec", "system", "popen"), where
                assert not [k for k in node.keywords if k.arg == "shell"], where


def test_every_locked_package_has_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert len(blocks) > 20
    for block in blocks:
        assert re.match(r"[A-Za-z0-9_.-]+==", block), block[:60]
        assert "--hash=sha256:" in block, block[:60]
    assert "http" not in text
