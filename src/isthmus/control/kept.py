"""What Isthmus keeps at a site, looked at record by record: whose it is, signing it, taking a record away.

Invariants:
- signing does not change what a record says, nor which of two is the newer one: whoever writes at the same time wins;
- a table says that signing it has begun before anything of it is signed, and that it is signed after all of it is. Whoever is killed in between, nobody
  believes the half of it, and signing again does the rest;
- in a table that is signed, what is not signed by us is signed only on demand: it is what somebody else wrote, unless the secret was lost.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from isthmus.engine.judged import BEFORE, BEGUN, FOREIGN, OF_ITSELF, OURS, RETIRED, SIGNED, Judged, Look
from isthmus.engine.signature import Signed
from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import ensure_table, look_at, refuse_retired, signed_record, write_records, write_table
from isthmus.errors import BadState, ConfigError, UsageError
from isthmus.kafka.cluster import STATE_PREFIX, Cluster


async def tables(cluster: Cluster) -> list[str]:
    """The tables that a site keeps."""
    names = (await cluster.metadata(None)).topics
    links = [name for name in names if name.startswith(STATE_PREFIX) and name.endswith(".control")]
    return sorted(links) + [name for name in (SITES_TOPIC,) if name in names]


async def kept(cluster: Cluster, topic: str) -> Look:
    """A table with all that its records say."""
    return await look_at(cluster, topic, every=True)


def shown(topic: str, look: Look) -> list[dict[str, Any]]:
    """The records of a table that matter: of each key the one that counts, or would once it is signed; and the first of those that somebody else wrote since
    the table is signed."""
    whole = look.signed or not look.secrets
    alive = [each for each in look.things() if each.record.body is not None]
    if not whole:
        alive += [each for key, each in look.newest.items() if key not in look.counting]
    rows = [(each, whole) for each in alive] + [(each, False) for each in look.strangers if whole]
    return [
        {
            "topic": topic,
            "key": each.key,
            "offset": each.offset,
            "signature": each.signature,
            "counts": counts,
            "value": each.record.body,
        }
        for each, counts in sorted(rows, key=lambda row: row[0].offset)
    ]


def to_sign(look: Look, everything: bool = False) -> list[Judged]:
    """What signing a table would sign; that something was forgotten too, so that nothing is left that only an older secret proves."""
    found = {each.key: each for each in look.things() if each.signature == BEFORE}
    if everything:
        found |= look.newest
    elif not look.signed:
        found |= {key: each for key, each in look.newest.items() if key not in look.counting}
    return [each for key, each in found.items() if key not in OF_ITSELF]


def check(cluster: Cluster, topic: str, look: Look, everything: bool = False) -> None:
    """What is signed with a secret that we do not have is not for us to sign, unless somebody says so; and it would not be believed any more if the rest were."""
    refuse_retired(cluster.site.name, topic, look)
    foreign = [each for each in to_sign(look, everything) if each.signature == FOREIGN]
    if foreign and not everything:
        site, first = cluster.site.name, foreign[0]
        raise BadState(
            f"{topic}[0] at site {site}: {len(foreign)} records are signed with another secret than state.secret, the first one of key {first.key!r} (offset "
            f"{first.offset}). If it was in use before, add it to state.previous; if it is lost, `isthmus state sign {site} --all` signs them anew; if somebody "
            f"else wrote them, `isthmus state forget {site} {topic} KEY` takes them away",
            site,
            topic,
            first.key,
            first.offset,
        )


async def sign_all(cluster: Cluster, topic: str, everything: bool = False) -> list[Judged]:
    """Sign a table with the present secret; what was signed. A table that is not there yet is made, signed, so that nobody else can begin it. In a table that is signed, ``everything`` signs what somebody else wrote too."""
    if cluster.site.signing is None:
        raise ConfigError("there is no secret to sign with: set state.secret")
    await ensure_table(cluster, topic)
    look = await kept(cluster, topic)
    check(cluster, topic, look, everything)
    wanted, (secret, *older) = to_sign(look, everything), look.secrets

    async def write(*things: tuple[str, Signed, bytes]) -> None:
        await write_records(cluster, topic, [signed_record(cluster, topic, *each) for each in things])

    numbers, begun = count(look.number(SIGNED) + 1), count(look.number(BEGUN) + 1)
    if wanted or SIGNED not in look.counting or look.counting[SIGNED].signature != OURS:
        await write((BEGUN, Signed(next(begun), "{}"), secret))
    # Who has only an older secret learns that it is not used any more. If he believes the table now, before anything is signed that he would take for a
    # stranger's; if nobody does, not before all of it is signed.
    retired = [(SIGNED, Signed(next(numbers), RETIRED), old) for old in older]
    if look.signed:
        await write(*retired)
    await write(
        *(
            # What nobody believed gets the next number: it is to count from now on.
            (each.key, each.record if each.by >= 0 else Signed(look.number(each.key) + 1, each.record.body), secret)
            for each in wanted
        )
    )
    await write(
        *(retired if not look.signed else ()),
        (SIGNED, Signed(next(numbers), "{}"), secret),
        (BEGUN, Signed(next(begun), None), secret),
    )
    return wanted


async def forget(cluster: Cluster, topic: str, key: str) -> None:
    """Take a record away, whatever it is."""
    known = await tables(cluster)
    if topic not in known:
        raise UsageError(f"site {cluster.site.name} keeps no table {topic}; it keeps: {', '.join(known) or 'none'}")
    if key in OF_ITSELF:
        raise UsageError(
            f"by {key} the table says that it is signed; `isthmus state sign {cluster.site.name}` writes it anew"
        )
    look = await kept(cluster, topic)
    if key not in {row["key"] for row in shown(topic, look)} and key not in look.newest:
        raise UsageError(f"{topic} at site {cluster.site.name} has no record of key {key!r}")
    if look.secrets and not look.signed and key not in look.counting:
        # Nobody believes it yet, so nobody need believe that it is gone: it is not there any more when the table is signed.
        await write_records(cluster, topic, [(key.encode(), None)])
    else:
        await write_table(cluster, topic, {key: None})
