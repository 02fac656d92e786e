"""Which rights we lack at a site, as the exact ACLs to grant.

Invariant: a site that does not tell (old, or without an authoriser) is believed to allow everything; what it then
refuses is told when it refuses it. Nothing is tried out to find out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import kafka.errors as kerrors
from kafka.protocol.admin import DescribeClusterRequest, DescribeTransactionsRequest
from kafka.protocol.metadata import MetadataRequest

from isthmus.config import Site
from isthmus.config.beginnings import beginnings
from isthmus.kafka.acls import list_acls
from isthmus.kafka.admin import Refusal
from isthmus.kafka.cluster import Cluster

OPERATIONS = {
    3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE",
}  # fmt: skip
# The sign bit, which stands for "not asked, or nobody to ask".
_NOT_TOLD = 31
TOPICS_A_REQUEST = 1000


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """An ACL that is missing; or, where one is ``denied``, one that must go: a DENY wins over every ALLOW."""

    site: str
    operation: str
    kind: str
    name: str
    principal: str = ""
    prefixed: bool = False
    denied: str = ""

    @property
    def words(self) -> str:
        """What to allow, without saying where and to whom."""
        what = (
            "the cluster"
            if self.kind == "cluster"
            else f"{self.kind} {self.name}{' (prefixed)' if self.prefixed else ''}"
        )
        return f"ALLOW {self.operation} on {what}"

    def __str__(self) -> str:
        whom = f" for {self.principal}" if self.principal else ""
        first = f"remove {self.denied}{_WINS}" if self.denied else ""
        return f"site {self.site}: {first}{self.words}{whom}"


_WINS = ": it wins over "
_ACL = re.compile(
    r"site (?P<site>\S+): (?:remove DENY (?P<denied>\w+) on (?P<there>.*?) to (?P<whom>\S+?)(?: from (?P<host>\S+))?: it wins over )?"
    r"ALLOW (?P<operation>\w+) on (?P<what>.*?)(?: for (?P<principal>.+))?"
)


def without_overruled(needs: Iterable[str]) -> list[str]:
    """The same without each ALLOW of which another line says that a DENY stands in its way: granting it would not help."""
    told = set(needs)
    for need in list(told):
        first, wins, plain = need.partition(_WINS)
        if wins:
            told.discard(f"{first.partition(': ')[0]}: {plain}")
    return sorted(told)


def command_of(need: str, address: str = "") -> str:
    """The line of Kafka's own tool that does what a right asks for; empty if it asks for something else. Names are other people's words: a shell
    takes each for one word, whatever stands in it."""
    found = _ACL.fullmatch(need)
    if found is None:
        return ""
    tool = f"kafka-acls.sh --bootstrap-server {address or 'ADDRESS_OF_' + found['site']}"
    if found["denied"]:
        host = f" --deny-host {found['host']}" if found["host"] else ""
        who = f"--remove --force --deny-principal {shlex.quote(found['whom'])}{host}"
        return f"{tool} {who} --operation {_camel(found['denied'])} {_resource(found['there'])}"
    who = f"--add --allow-principal {shlex.quote(found['principal'] or 'User:NAME')}"
    return f"{tool} {who} --operation {_camel(found['operation'])} {_resource(found['what'])}"


def _camel(operation: str) -> str:
    return "".join(word.title() for word in operation.split("_"))


def _resource(words: str) -> str:
    kind, _, name = words.partition(" ")
    if kind in ("the", "cluster"):
        return "--cluster"
    prefixed = " --resource-pattern-type prefixed" if name.endswith(" (prefixed)") else ""
    name = name.removesuffix(" (prefixed)")
    return f"--{kind} {shlex.quote(name)}{prefixed}"


def right(site: Site, operation: str, kind: str, name: str = "", prefixed: bool = False) -> Right:
    return Right(site.name, operation, kind, name, principal_of(site), prefixed)


def principal_of(site: Site) -> str:
    """Who we are there, as far as the configuration tells."""
    return f"User:{site.sasl.username}" if site.sasl is not None and site.sasl.username else ""


def acl_places(entries: Iterable[str]) -> list[tuple[str, bool]]:
    """Where ACLs for these entries (names, or expressions between slashes) have to be: names, and whether each is a prefix."""
    found = {each for entry in entries for each in beginnings(entry)}
    if any(not each.text for each in found):
        return [("*", False)]
    return sorted((each.text, not each.whole) for each in found)


async def is_restricted(cluster: Cluster) -> bool:
    """Whether the site may hide things from us: it has an authoriser, and we are not one who may do everything."""
    if "CLUSTER_ACTION" in (await cluster_rights(cluster) or ()):
        return False  # which only brokers and administrators have, and everybody where there is no authoriser
    answer = await list_acls(cluster)
    return not (isinstance(answer, Refusal) and answer.error is kerrors.SecurityDisabledError)


async def topic_rights(cluster: Cluster, topics: Iterable[str]) -> dict[str, set[str] | None]:
    """The operations that we may do on each topic that exists; ``None`` where the site does not tell."""
    names, found = sorted(topics), dict[str, set[str] | None]()
    if not cluster.supports(MetadataRequest, 8):
        return dict.fromkeys(names)
    for start in range(0, len(names), TOPICS_A_REQUEST):
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=n) for n in names[start : start + TOPICS_A_REQUEST]],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )
        for topic in (await cluster.request(request)).topics:
            if not topic.error_code:
                found[topic.name] = _read(topic.authorized_operations)
    return found


async def cluster_rights(cluster: Cluster) -> set[str] | None:
    """The operations that we may do on the cluster; ``None`` where the site does not tell."""
    if not cluster.supports(DescribeClusterRequest, 0):
        return None
    response: Any = await cluster.request(
        DescribeClusterRequest(include_cluster_authorized_operations=True, max_version=0)
    )
    return None if response.error_code else _read(response.authorized_operations)


async def may_use_transactions(cluster: Cluster, transactional_id: str) -> bool:
    """Whether we may see transactions of this id, which who may write them may; true where the site does not tell. Only asks: whoever
    would look for the id's coordinator makes the site create the topic that it is kept in."""
    if not cluster.supports(DescribeTransactionsRequest, 0):
        return True
    response: Any = await cluster.request(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
    refusals = [kerrors.for_code(each.error_code) for each in response.transaction_states]
    return kerrors.TransactionalIdAuthorizationFailedError not in refusals


def _read(codes: Iterable[int] | None) -> set[str] | None:
    told = set(codes or ())
    return None if not told or _NOT_TOLD in told else {OPERATIONS[code] for code in told & set(OPERATIONS)}
