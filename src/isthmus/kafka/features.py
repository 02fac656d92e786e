"""What a link needs its sites to speak, asked once, of what each site says of itself (ApiVersions).

Invariant: nothing here is a guess from a version number or a product's name. A request that a broker offers and then refuses is a matter of whoever
sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from isthmus.kafka.cluster import Cluster

Needs = Mapping[Any, int]
# The versions: of record batches (format v2), of the last stable offset, of commits with metadata.
SOURCE: Needs = {FetchRequest: 4, ListOffsetsRequest: 2}
DESTINATION: Needs = {
    ProduceRequest: 3,
    FetchRequest: 4,
    ListOffsetsRequest: 2,
    CreateTopicsRequest: 0,
    FindCoordinatorRequest: 1,
    OffsetCommitRequest: 2,
    OffsetFetchRequest: 2,
}
# A position that waits for undecided commits (require_stable) is OffsetFetch 7, of Apache Kafka 2.5.
EXACTLY_ONCE: Needs = {
    InitProducerIdRequest: 0,
    AddPartitionsToTxnRequest: 0,
    AddOffsetsToTxnRequest: 0,
    TxnOffsetCommitRequest: 0,
    EndTxnRequest: 0,
    OffsetFetchRequest: 7,
}


def lacking(cluster: Cluster, needs: Needs) -> list[str]:
    """The requests that the site does not speak, or not in this version."""
    missing = []
    for kind, version in needs.items():
        if not cluster.supports(kind, version):
            missing.append(kind.__name__.removesuffix("Request") + (f" {version}" if version else ""))
    return missing


def unfit(source: Cluster | None, target: Cluster | None, exactly_once: bool) -> tuple[str, str, str] | None:
    """Why the sites cannot be linked: which of ``from``, ``to`` and ``delivery`` to change, what is missing, and what would work."""
    for key, cluster, needs in (("from", source, SOURCE), ("to", target, DESTINATION)):
        if cluster is not None and (missing := lacking(cluster, needs)):
            words = f"site {cluster.site.name} does not speak {', '.join(missing)}, which every link needs"
            return key, words, "a broker of Kafka 2.5 or newer does"
    if exactly_once and target is not None and (missing := lacking(target, EXACTLY_ONCE)):
        words = f"site {target.site.name} does not speak {', '.join(missing)}, which exactly-once needs"
        return "delivery", words, "delivery: at-least-once works without"
    return None
