"""What Isthmus keeps at a site, looked at record by record: whose it is, signing it, taking a record away.

Invariants:
- signing does not change what a record says, nor which of two is the newer one: whoever writes at the same time wins;
- a table says that it is signed after all of it is;
- in a table that is signed, what is not signed by us is signed only on demand: it is what somebody else wrote, unless the secret was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from isthmus.engine.signature import Place, Signed, claimed, proved, sign
from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import RETIRED, SIGNED, ensure_table, table_rows, write_records, write_table
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


@dataclass(frozen=True, slots=True)
class Look:
    """A table, looked at: whether it says that it is signed, and by its how manieth word of that; its records."""

    signed: bool
    number: int
    records: list[Kept]

    def to_sign(self, everything: bool = False) -> list[Kept]:
        """What signing it would sign."""
        strange = everything or not self.signed
        return [each for each in self.records if each.signature == BEFORE or (each.signature != OURS and strange)]


async def kept(cluster: Cluster, topic: str) -> Look:
    """The records of a table that matter: of each key the one that counts, or would once it is signed; and all that somebody else wrote since the
    table is signed."""
    secrets = cluster.site.signing.keys() if cluster.site.signing else ()
    found = [_judged(cluster, topic, row, secrets) for row in await table_rows(cluster, topic)]
    since = max((each.offset for each in found if each.key == SIGNED and each.signature in (OURS, BEFORE)), default=-1)
    others = [each for each in found if each.signature in (UNSIGNED, FOREIGN) and each.offset > since]
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
    number = counting[SIGNED].record.number if SIGNED in counting else 0
    return Look(SIGNED in counting, number, sorted(alive, key=lambda each: each.offset))


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
    """Sign a table with the present secret; what was signed. A table that is not there yet is made, signed, so that nobody else can begin it. In a table that is signed, ``everything`` signs what somebody else wrote too."""
    if cluster.site.signing is None:
        raise ConfigError("there is no secret to sign with: set state.secret")
    secret, *older = cluster.site.signing.keys()
    await ensure_table(cluster, topic)
    found = await kept(cluster, topic)
    wanted = {each.key: each for each in found.to_sign(everything)}
    await write_records(
        cluster, topic, [_record(cluster, secret, topic, each.key, each.record) for each in wanted.values()]
    )
    # In this order: who has only an older secret learns that it is not believed any more; then the table is signed.
    numbers = count(found.number + 1)
    marks = [_record(cluster, old, topic, SIGNED, Signed(next(numbers), RETIRED)) for old in older]
    await write_records(cluster, topic, [*marks, _record(cluster, secret, topic, SIGNED, Signed(next(numbers), "{}"))])
    return list(wanted.values())


def _record(cluster: Cluster, secret: bytes, topic: str, key: str, record: Signed) -> tuple[bytes, bytes]:
    return key.encode(), sign(secret, Place(cluster.cluster_id or "", topic, key), record)


async def forget(cluster: Cluster, topic: str, key: str) -> None:
    """Take a record away, whatever it is."""
    known = await tables(cluster)
    if topic not in known:
        raise UsageError(f"site {cluster.site.name} keeps no table {topic}; it keeps: {', '.join(known) or 'none'}")
    if not any(each.key == key for each in (await kept(cluster, topic)).records):
        raise UsageError(f"{topic} at site {cluster.site.name} has no record of key {key!r}")
    await write_table(cluster, topic, {key: None})
