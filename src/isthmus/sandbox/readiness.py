"""Tells when a site answers.

Invariant: a site that answers has a controller, shows every broker that was asked for, and would create a
topic with a copy on each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from isthmus.sandbox.ports import answers

PROBE_MILLISECONDS = 5_000
PROBE_TOPIC = "isthmus-sandbox-probe"  # never created: the request only validates


def site_answers(inner_ports: Sequence[int], node_ids: Sequence[int]) -> bool:
    """Whether these nodes are one working site; False as long as they are not yet."""
    # Asking the ports first spares the client's log a complaint a try.
    if not all(answers(port) for port in inner_ports):
        return False
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=[f"127.0.0.1:{port}" for port in inner_ports],
            bootstrap_timeout_ms=PROBE_MILLISECONDS,
            request_timeout_ms=PROBE_MILLISECONDS,
        )
    except KafkaError:
        return False
    try:
        cluster = admin.describe_cluster()
        present = {broker["broker_id"] for broker in cluster["brokers"]}
        if not present.issuperset(node_ids):
            return False
        probe = NewTopic(PROBE_TOPIC, num_partitions=1, replication_factor=len(node_ids))
        admin.create_topics([probe], timeout_ms=PROBE_MILLISECONDS, validate_only=True)
        return True
    except KafkaError:
        return False
    finally:
        admin.close()
