"""What Isthmus keeps at a site, looked at record by record: whose it is, signing it, taking a record away.

Invariants:
- signing does not change what a record says, nor which of two is the newer one: whoever writes at the same time wins;
- a table says that it is signed after all of it is;
- in a table that is signed, what is not signed by us is signed only on demand: it is what somebody else wrote, unless the secret was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from isthmus.engine.signature import Place, Signed, claimed, proved, sign
from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import SIGNED, table_rows, write_records, write_table
from isthmus.errors import ConfigError, UsageError
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.read import Row

OURS, BEFORE, UNSIGNED, FOREIGN = "signed", "signed with a previous secret", "not signed", "not signed by us"


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of a table: who signed it, and whether it counts."""

    topic: str
    key: str
    offset: int
    signature: str
    counts: bool
    record: Signed

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "key": self.key,
            "offset": self.offset,
            "signature": self.signature,
            "counts": self.counts,
            "value": self.record.body,
        }


async def tables(cluster: Cluster) -> list[str]:
    """The tables that a site keeps."""
    names = (await cluster.metadata(None)).topics
    links = [name for name in names if name.startswith(STATE_PREFIX) and name.endswith(".control")]
    return sorted(links) + [name for name in (SITES_TOPIC,) if name in names]


async def kept(cluster: Cluster, topic: str) -> list[Kept]:
    """The records of a table that matter: of each key the one that counts, or would once it is signed; and all that somebody else wrote."""
    secrets = cluster.site.signing.keys() if cluster.site.signing else ()
    found = [_judged(cluster, topic, row, secrets) for row in await table_rows(cluster, topic)]
    others = [each for each in found if each.signature in (UNSIGNED, FOREIGN)]
    newest = {each.key: each for each in others}
    counting: dict[str, Kept] = {} if secrets else newest
    for each in found:
        if each.signature in (OURS, BEFORE) and each.record.number >= counting.get(each.key, each).record.number:
            counting[each.key] = each
    if secrets and SIGNED not in counting:
        shown = [replace(each, counts=False) for each in (newest | counting).values()]
    else:
        shown = [*counting.values(), *(replace(each, counts=False) for each in others if secrets)]
    alive = [each for each in shown if each.key != SIGNED and (each.record.body is not None or not each.counts)]
    return sorted(alive, key=lambda each: each.offset)


def _judged(cluster: Cluster, topic: str, row: Row, secrets: tuple[bytes, ...]) -> Kept:
    key = (row.key or b"").decode("utf-8", "replace")
    place = Place(cluster.cluster_id or "", topic, key)
    for number, secret in enumerate(secrets):
        record = proved((secret,), place, row.value)
        if record is not None:
            return Kept(topic, key, row.offset, BEFORE if number else OURS, True, record)
    foreign = claimed(row.value)
    if foreign is not None:
        return Kept(topic, key, row.offset, FOREIGN, True, foreign)
    body = None if row.value is None else row.value.decode("utf-8", "replace")
    return Kept(topic, key, row.offset, UNSIGNED, True, Signed(1, body))


async def sign_all(cluster: Cluster, topic: str, everything: bool = False) -> list[Kept]:
    """Sign a table with the present secret; what was signed. In a table that is signed, ``everything`` signs what somebody else wrote too."""
    if cluster.site.signing is None:
        raise ConfigError("there is no secret to sign with: set state.secret")
    secret = cluster.site.signing.keys()[0]
    found = await kept(cluster, topic)
    wanted = {each.key: each for each in to_sign(found, everything)}
    marker = Kept(topic, SIGNED, -1, OURS, True, Signed(1, "{}"))
    for some in (list(wanted.values()), [marker]):
        places = [(each, Place(cluster.cluster_id or "", topic, each.key)) for each in some]
        await write_records(cluster, topic, [(p.key.encode(), sign(secret, p, each.record)) for each, p in places])
    return list(wanted.values())


def to_sign(found: list[Kept], everything: bool = False) -> list[Kept]:
    """What signing a table would sign."""
    is_signed = any(each.counts for each in found)
    return [
        each for each in found if each.signature == BEFORE or (each.signature != OURS and (everything or not is_signed))
    ]


async def forget(cluster: Cluster, topic: str, key: str) -> None:
    """Take a record away, whatever it is."""
    known = await tables(cluster)
    if topic not in known:
        raise UsageError(f"site {cluster.site.name} keeps no table {topic}; it keeps: {', '.join(known) or 'none'}")
    if not any(each.key == key for each in await kept(cluster, topic)):
        raise UsageError(f"{topic} at site {cluster.site.name} has no record of key {key!r}")
    await write_table(cluster, topic, {key: None})
