"""ACLs and SCRAM users of a site; each refusal is a value."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.admin import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)

from isthmus.kafka.admin import Refusal, chunks, refusal_of
from isthmus.kafka.cluster import Cluster

KINDS = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id", 6: "delegation-token", 7: "user"}
PATTERNS = {3: "literal", 4: "prefixed"}
OPERATIONS = {
    2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}  # fmt: skip
PERMISSIONS = {2: "DENY", 3: "ALLOW"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ANY = 1
ACLS_A_REQUEST = 500

_KIND_CODES = {name: code for code, name in KINDS.items()}
_PATTERN_CODES = {name: code for code, name in PATTERNS.items()}
_OPERATION_CODES = {name: code for code, name in OPERATIONS.items()}
_PERMISSION_CODES = {name: code for code, name in PERMISSIONS.items()}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One binding, in words."""

    kind: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str

    @classmethod
    def read(cls, value: Any) -> Acl:
        """An ACL that was written down; raises ``ValueError`` if Kafka has no such thing."""
        words = (_KIND_CODES, _PATTERN_CODES, None, None, None, _OPERATION_CODES, _PERMISSION_CODES)
        if not isinstance(value, list) or len(value) != len(words):
            raise ValueError("not an ACL")
        for part, known in zip(value, words, strict=True):
            if not isinstance(part, str) or not part or (known is not None and part not in known):
                raise ValueError(f"not an ACL: {str(part)[:40]!r}")
        return cls(*value)

    @property
    def key(self) -> str:
        """Under which it is written down; ``read`` takes what stands in it."""
        return json.dumps(astuple(self), separators=(",", ":"), ensure_ascii=False)

    def __str__(self) -> str:
        where = "" if self.host == "*" else f" from {self.host}"
        prefixed = " (prefixed)" if self.pattern == "prefixed" else ""
        return f"{self.permission} {self.operation} on {self.kind} {self.name}{prefixed} to {self.principal}{where}"


async def list_acls(cluster: Cluster, node: int | None = None) -> list[Acl] | Refusal:
    """All ACLs of the site that this version has words for, as one of its brokers (or just this one) knows them."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = await cluster.request(request, node, timeout=60)
    if (refusal := refusal_of(response)) is not None:
        return refusal
    found = []
    for resource in response.resources:
        kind, pattern = KINDS.get(resource.resource_type), PATTERNS.get(resource.pattern_type)
        for acl in resource.acls:
            operation, permission = OPERATIONS.get(acl.operation), PERMISSIONS.get(acl.permission_type)
            if kind and pattern and operation and permission:
                found.append(Acl(kind, pattern, resource.resource_name, acl.principal, acl.host, operation, permission))
    return found


async def create_acls(cluster: Cluster, acls: Iterable[Acl]) -> dict[Acl, Refusal | None]:
    """Create ACLs; one that exists already is a success."""
    outcome: dict[Acl, Refusal | None] = {}
    for some in chunks(acls, ACLS_A_REQUEST):
        request = partial(
            CreateAclsRequest,
            creations=[
                CreateAclsRequest.AclCreation(
                    resource_type=_KIND_CODES[acl.kind],
                    resource_name=acl.name,
                    resource_pattern_type=_PATTERN_CODES[acl.pattern],
                    principal=acl.principal,
                    host=acl.host,
                    operation=_OPERATION_CODES[acl.operation],
                    permission_type=_PERMISSION_CODES[acl.permission],
                )
                for acl in some
            ],
        )
        response = await cluster.ask_controller(request, lambda r: r.results)
        for acl, answer in zip(some, response.results, strict=True):
            outcome[acl] = refusal_of(answer)
    return outcome


async def delete_acls(cluster: Cluster, acls: Iterable[Acl]) -> dict[Acl, Refusal | None]:
    """Delete exactly these ACLs; one that is gone already is a success."""
    outcome: dict[Acl, Refusal | None] = {}
    for some in chunks(acls, ACLS_A_REQUEST):
        request = partial(
            DeleteAclsRequest,
            filters=[
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=_KIND_CODES[acl.kind],
                    resource_name_filter=acl.name,
                    pattern_type_filter=_PATTERN_CODES[acl.pattern],
                    principal_filter=acl.principal,
                    host_filter=acl.host,
                    operation=_OPERATION_CODES[acl.operation],
                    permission_type=_PERMISSION_CODES[acl.permission],
                )
                for acl in some
            ],
        )
        response = await cluster.ask_controller(request, lambda r: r.filter_results)
        for acl, answer in zip(some, response.filter_results, strict=True):
            refusals = [refusal_of(answer), *(refusal_of(match) for match in answer.matching_acls)]
            outcome[acl] = next((why for why in refusals if why is not None), None)
    return outcome


async def wait_for_acls(
    cluster: Cluster, present: Iterable[Acl] = (), absent: Iterable[Acl] = (), timeout: float = 30.0
) -> bool:
    """Wait until every broker has heard of these ACLs, and of the end of those: they hear of it after the controller has said yes. False
    if it takes too long, or if they do not tell: it is done all the same, and what is left is to be heard of."""
    gone, deadline = set(absent), time.monotonic() + timeout
    there = set(present) - gone
    waiting = set((await cluster.metadata([])).brokers) if there or gone else set()
    while waiting:
        for node in sorted(waiting):
            try:
                found = await list_acls(cluster, node)
            except (kerrors.KafkaError, OSError):
                continue  # it may be on its way down; when it comes back, it hears of everything first
            if isinstance(found, Refusal):
                return False
            if there <= set(found) and not gone & set(found):
                waiting.discard(node)
        if waiting:
            if time.monotonic() > deadline:
                return False
            await cluster.loop.sleep(0.05)
    return True


async def scram_users(cluster: Cluster) -> dict[str, list[str]] | Refusal:
    """Users that have SCRAM credentials, and of which mechanisms. The credentials themselves nobody can read."""
    if not cluster.supports(DescribeUserScramCredentialsRequest, 0):
        return {}
    response = await cluster.request(DescribeUserScramCredentialsRequest(users=None))
    if (refusal := refusal_of(response)) is not None:
        return refusal
    return {
        user.user: sorted(
            f"{MECHANISMS.get(c.mechanism, str(c.mechanism))} ({c.iterations} iterations)"
            for c in user.credential_infos
        )
        for user in response.results
        if not user.error_code
    }
