"""A small table kept in a compacted topic of ours: keys are text, values are JSON.

Invariants:
- what ``write_table`` was given is readable by everybody when it returns: also where somebody's transaction stands open before it. Writers of
  different keys do not disturb each other; of two writers of one key, the later one wins;
- a record that nobody can read, or that says what nobody could have written, is an error of its key and of nothing else, raised when that key is
  asked for: ``BadState`` names it, and the command that takes it away. What was there before it in the log does not matter;
- where a secret is configured (``state``), only what it has signed is believed (judged.py). In a table that is signed, what is not was written by
  somebody else: it is named, counted and ignored. Before that it may be of an older version: it is an error until somebody has looked at it and
  signs it (``isthmus state sign``);
- what somebody else has written over is written again, as it was, by the next of us who writes: compaction would destroy it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

import kafka.errors as kerrors

from isthmus.control.meter import METER
from isthmus.control.rights import right
from isthmus.engine import state
from isthmus.engine.judged import BEGUN, FOREIGN, SIGNED, Judge, Judged, Look
from isthmus.engine.signature import Place, Signed, sign
from isthmus.errors import AuthorisationFailed, BadState
from isthmus.kafka.admin import NewTopic, create_topics, wait_for_topics
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import LATEST, list_offsets
from isthmus.kafka.produce import Interrupted, Producer, Refused, small_batches
from isthmus.kafka.read import each_row

AGAIN_SECONDS, FIRST_PAUSE = 15.0, 0.05
# Whoever left a transaction open is known to be dead by then.
READABLE_SECONDS = 90.0

Record = tuple[bytes, bytes | None]
_Value = TypeVar("_Value")
# What reading a value of another shape raises.
_MISREAD = (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)


class Table(dict[str, Any]):
    """What stands in a table: the values that are good. Asking for one that is not raises ``BadState``; so does asking for a kind of which one is not."""

    def __init__(self, site: str = "", topic: str = "") -> None:
        super().__init__()
        self.site, self.topic = site, topic
        self.offsets: dict[str, int] = {}
        self.bad: dict[str, str] = {}
        self.look = Look()

    def __contains__(self, key: object) -> bool:
        if key in self.bad:
            self.refuse(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        if key in self.bad:
            self.refuse(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        if key in self.bad:
            self.refuse(key)
        return super().get(key, default)

    def refuse(self, key: str, why: str = "") -> NoReturn:
        """Say that a record is not as we write them."""
        why = why or self.bad.get(key, "")
        raise BadState(
            f"{self.topic}[0] at site {self.site}: the record of key {key!r} (offset {self.offsets.get(key, -1)}) {why}. "
            f"`isthmus state show {self.site}` shows it, `isthmus state forget {self.site} {self.topic} KEY` takes it away",
            self.site,
            self.topic,
            key,
            self.offsets.get(key, -1),
        )

    def forged(self) -> str:
        """What there is to say of records that somebody else wrote; nothing if there are none."""
        if not self.look.forged:
            return ""
        first = self.look.strangers[0]
        return (
            f"site {self.site}: {self.look.forged} records of {self.topic} are not signed by us, and are ignored (the first: key {first.key!r}, offset "
            f"{first.offset}, {first.signature}). `isthmus state show {self.site}` shows them"
        )

    def read(self, key: str, how: Callable[[str, Any], _Value], name: str | None = None) -> _Value:
        """One value, made of its name and what stands there."""
        value = self[key]
        try:
            return how(key if name is None else name, value)
        except _MISREAD as error:
            self.refuse(key, f"is none of ours ({type(error).__name__}: {str(error)[:80]})")

    def kind(
        self,
        prefix: str,
        how: Callable[[str, Any], _Value] = lambda _, value: value,
        only: Collection[str] | None = None,
    ) -> dict[str, _Value]:
        """The values whose keys begin so (or these of them), by what follows in the key."""
        found, bad = self.sorted_out(prefix, how, only)
        for error in bad.values():
            raise error
        return found

    def sorted_out(
        self, prefix: str, how: Callable[[str, Any], _Value], only: Collection[str] | None = None
    ) -> tuple[dict[str, _Value], dict[str, BadState]]:
        """The same, and apart from them those that cannot be read, for whoever can do without one."""
        found: dict[str, _Value] = {}
        bad: dict[str, BadState] = {}
        for key in (*self, *self.bad):
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and (only is None or name in only):
                try:
                    found[name] = self.read(key, how, name)
                except BadState as error:
                    bad[name] = error
        return found, bad


async def read_table(cluster: Cluster, topic: str) -> Table:
    """What stands in the table now; nothing if there is none."""
    table = table_of(cluster.site.name, topic, await look_at(cluster, topic))
    METER.saw(table.site, topic, table.look.forged, len(table.bad))
    return table


async def look_at(cluster: Cluster, topic: str, every: bool = False) -> Look:
    """A table, judged record by record (judged.py); empty if there is no such topic."""
    secrets = cluster.site.signing.keys() if cluster.site.signing else ()
    judge = Judge(cluster.cluster_id or "", topic, secrets, every)
    error = (await cluster.metadata([topic])).topics[topic].error
    if error is kerrors.UnknownTopicOrPartitionError:
        return judge.look
    if error is not None:
        raise explained(cluster, error(topic), "READ")
    await each_row(cluster, (topic, 0), judge.take)
    return judge.look


def table_of(site: str, topic: str, look: Look) -> Table:
    """What counts in a table; raises ``BadState`` if nothing in it can be believed."""
    table = Table(site, topic)
    table.look = look
    refuse_retired(site, topic, look)
    if look.unfinished:
        raise BadState(
            f"{topic}[0] at site {site}: not all of it is signed with state.secret yet. `isthmus state sign` finishes that; if another secret was in use "
            "before, it has to stand in state.previous until then",
            site,
            topic,
            BEGUN,
            look.counting[BEGUN].offset,
        )
    if look.forged and not look.signed:
        _refuse_unsigned(table, look.strangers[0])
    for judged in look.things():
        key, body = judged.key, judged.record.body
        table.offsets[key] = judged.offset
        if judged.signature == FOREIGN:
            table.bad[key] = "is signed, and this configuration has no state.secret"
        elif body is not None:
            _put(table, key, body)
    return table


def refuse_retired(site: str, topic: str, look: Look) -> None:
    """Whoever has a secret that is not used any more neither believes the table nor signs it: he would not see what the newer one has signed."""
    if look.retired:
        raise BadState(
            f"{topic}[0] at site {site} is signed with a newer secret than state.secret: set the new one, as everybody else has",
            site,
            topic,
            SIGNED,
            look.counting[SIGNED].offset,
        )


def _put(table: Table, key: str, raw: str) -> None:
    try:
        table[key] = parsed(raw)
    except (ValueError, RecursionError) as error:
        table.bad[key] = f"cannot be read: {error}"[:200]


def parsed(raw: str) -> Any:
    """A value as we write them: JSON, with text that can be written again and numbers that can be compared."""
    value = json.loads(raw, parse_constant=_no_number)
    if "\\u" in raw:
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair raises
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _refuse_unsigned(table: Table, first: Judged) -> NoReturn:
    mend = (
        "They may be signed with another secret: set the one that everybody else has. If it is lost, look at them with "
        f"`isthmus state show {table.site}`; `isthmus state sign {table.site} --all` signs them anew"
        if first.signature == FOREIGN
        else f"Look at them with `isthmus state show {table.site}`; if they are yours, `isthmus state sign` signs them"
    )
    raise BadState(
        f"{table.topic}[0] at site {table.site}: {table.look.forged} records are not signed with state.secret, the first one of key {first.key!r} (offset "
        f"{first.offset}). {mend}",
        table.site,
        table.topic,
        first.key,
        first.offset,
    )


async def write_table(cluster: Cluster, topic: str, things: Mapping[str, Any]) -> None:
    """Write these (``None`` forgets)."""
    if things:
        await ensure_table(cluster, topic)
        await write_records(cluster, topic, await table_records(cluster, topic, things))


async def table_records(cluster: Cluster, topic: str, things: Mapping[str, Any]) -> list[Record]:
    """The records that put these into a table (``None`` forgets), for whoever writes them with more in one transaction."""
    bodies = {key: None if value is None else json.dumps(value, separators=(",", ":")) for key, value in things.items()}
    if not cluster.site.signing:
        return [(key.encode(), None if body is None else body.encode()) for key, body in bodies.items()]
    look = (await read_table(cluster, topic)).look
    # As it was, with its number: of those who write the key at this moment the newer record counts, wherever it stands.
    again = [each for key, each in look.counting.items() if key in look.overwritten and key not in bodies]
    return [
        *_of_itself(cluster, topic, look),
        *(signed_record(cluster, topic, each.key, each.record, look.secrets[each.by]) for each in again),
        *(
            signed_record(cluster, topic, key, Signed(look.number(key) + 1, body), look.secrets[0])
            for key, body in bodies.items()
        ),
    ]


def _of_itself(cluster: Cluster, topic: str, look: Look) -> list[Record]:
    """What the table has to say of itself before this secret signs something in it, and does not say yet."""
    marker, records = look.counting.get(SIGNED), list[Record]()
    if marker is None:
        # It is new, or somebody destroyed it. Not more than is true is said: some of it may be signed with an older secret.
        by = max((each.by for each in look.things()), default=0)
        records.append(signed_record(cluster, topic, SIGNED, Signed(1, "{}"), look.secrets[by]))
    else:
        by = marker.by
    if by and (BEGUN not in look.counting or look.counting[BEGUN].record.body is None):
        # Who has only this secret must not take what an older one has signed for a stranger's.
        begun = Signed(look.number(BEGUN) + 1, "{}")
        records.insert(0, signed_record(cluster, topic, BEGUN, begun, look.secrets[0]))
    return records


def signed_record(cluster: Cluster, topic: str, key: str, record: Signed, secret: bytes) -> Record:
    """A record of a table, signed for its place."""
    return key.encode(), sign(secret, Place(cluster.cluster_id or "", topic, key), record)


async def write_records(cluster: Cluster, topic: str, records: list[Record]) -> None:
    """Write these. Again if need be: a leader that has moved, or of a topic just made, is met anew, and what is written twice is the same as written
    once."""
    deadline, pause = time.monotonic() + AGAIN_SECONDS, FIRST_PAUSE
    while records:
        try:
            await _write(cluster, topic, records)
            return
        except Interrupted as error:
            if time.monotonic() > deadline:
                cause = error.cause or kerrors.KafkaConnectionError(str(error))
                raise cluster.explain(cause, f"writing to {topic}") from error
            await cluster.loop.sleep(pause)
            pause *= 2


async def _write(cluster: Cluster, topic: str, records: list[Record]) -> None:
    leaders = Leaders(cluster, [topic])
    await leaders.refresh()
    producer = Producer(cluster, leaders, Signal(cluster.loop))
    for batch in small_batches(records):
        producer.produce({(topic, 0): batch})
    try:
        await producer.drain()
    except Refused as refused:
        raise explained(cluster, refused.error(refused.words), "WRITE") from None
    await _readable(cluster, topic, max(sent.base_offset + sent.count for sent in producer.sent))


async def _readable(cluster: Cluster, topic: str, end: int) -> None:
    deadline, pause = time.monotonic() + READABLE_SECONDS, FIRST_PAUSE
    while True:
        stable = (await list_offsets(cluster, {(topic, 0): LATEST}))[topic, 0]
        if isinstance(stable, int) and stable >= end:
            return
        if time.monotonic() > deadline:
            words = (
                f"{topic}[0] is readable up to offset {stable} and not to {end}: a transaction before that does not end"
            )
            raise cluster.explain(kerrors.KafkaTimeoutError(words), f"writing to {topic}")
        await cluster.loop.sleep(pause)
        pause = min(1.0, pause * 2)


async def ensure_table(cluster: Cluster, topic: str) -> None:
    """The table's topic is there when this returns; signed from its first record on, if there is a secret."""
    metadata = await cluster.metadata([topic])
    error = metadata.topics[topic].error
    if error is not None and issubclass(error, kerrors.AuthorizationError):
        raise explained(cluster, error(topic), "WRITE")
    if error is not kerrors.UnknownTopicOrPartitionError:
        return
    factor = min(3, max(1, len(metadata.brokers)))
    outcome = await create_topics(cluster, [NewTopic(topic, 1, factor, state.STATE_TOPIC_CONFIG)])
    for why in outcome.values():
        if why is not None:
            raise explained(cluster, why.error(why.words), "CREATE")
    await wait_for_topics(cluster, [topic])
    if cluster.site.signing:
        marker = signed_record(cluster, topic, SIGNED, Signed(1, "{}"), cluster.site.signing.keys()[0])
        await write_records(cluster, topic, [marker])


def explained(cluster: Cluster, error: Exception, operation: str) -> Exception:
    """The error of whoever did this and was refused: it names that right, and no other."""
    if not isinstance(error, kerrors.AuthorizationError):
        return error
    need = right(cluster.site, operation, "topic", STATE_PREFIX, prefixed=True)
    words = f"site {need.site}: not authorised to {operation.lower()} the link's own topics; grant {need}"
    return AuthorisationFailed(words, need.site, str(need))
