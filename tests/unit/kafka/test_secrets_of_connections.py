"""A password in a file is read for each connection."""

from __future__ import annotations

from pathlib import Path

from isthmus.config import loads
from isthmus.kafka.cluster import Cluster


def test_a_password_that_was_changed_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n")
    sasl = f"{{mechanism: SCRAM-SHA-512, username: u, password: {{file: {file}}}}}"
    site = loads(f"sites: {{a: {{bootstrap: '127.0.0.1:1', tls: true, sasl: {sasl}}}}}").sites["a"]
    with Cluster(site) as cluster:
        manager = cluster._manager
        (node,) = [broker.node_id for broker in manager.cluster.bootstrap_brokers()]
        first = manager.get_connection(node)
        file.write_text("new\n")
        assert manager.get_connection(node) is first
        assert first.config["sasl_plain_password"] == "old"
        manager._conns.clear()
        assert manager.get_connection(node).config["sasl_plain_password"] == "new"
