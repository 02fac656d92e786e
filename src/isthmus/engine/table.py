"""A small table kept in a compacted topic of ours: keys are text, values are JSON.

Invariants:
- what ``write_table`` was given is readable by everybody when it returns: also where somebody's transaction stands open before it. Writers of
  different keys do not disturb each other; of two writers of one key, the later one wins;
- a record that nobody can read, or that says what nobody could have written, is an error of its key and of nothing else, raised when that key is
  asked for: ``BadState`` names it, and the command that takes it away. What was there before it in the log does not matter;
- where a secret is configured (``state``), only what it has signed is believed (signature.py). A table says by a signed record that it is signed. From
  then on, what is not signed was written by somebody else: it is named, counted and ignored. Before that it may be of an older version: it is
  an error until somebody has looked at it and signs it (``isthmus state sign``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import kafka.errors as kerrors

from isthmus.control.rights import right
from isthmus.engine import state
from isthmus.engine.signature import Place, Signed, claimed, proved, sign
from isthmus.errors import AuthorisationFailed, BadState
from isthmus.kafka.admin import NewTopic, create_topics, wait_for_topics
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.offsets import LATEST, list_offsets
from isthmus.kafka.produce import Interrupted, Producer, Refused, small_batches
from isthmus.kafka.read import Row, read_rows

# The key under which a table says that it is signed.
SIGNED = "table/signed"
# What it says of that to those who have only a secret that is not used any more.
RETIRED = '{"retired":true}'
AGAIN_SECONDS, FIRST_PAUSE = 15.0, 0.05
# Whoever left a transaction open is known to be dead by then.
READABLE_SECONDS = 90.0

Record = tuple[bytes, bytes | None]
_Value = TypeVar("_Value")
# What reading a value of another shape raises.
_MISREAD = (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True, slots=True)
class Forged:
    """A record that was not written by us."""

    key: str
    offset: int
    why: str


class Table(dict[str, Any]):
    """What stands in a table: the values that are good. Asking for one that is not raises ``BadState``; so does asking for a kind of which one is not."""

    def __init__(self, site: str = "", topic: str = "") -> None:
        super().__init__()
        self.site, self.topic = site, topic
        self.offsets: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.bad: dict[str, str] = {}
        self.forged: list[Forged] = []

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
    return _table(cluster, topic, await table_rows(cluster, topic))


async def table_rows(cluster: Cluster, topic: str) -> list[Row]:
    """All records of a table that can be read; none if there is no such topic."""
    error = (await cluster.metadata([topic])).topics[topic].error
    if error is kerrors.UnknownTopicOrPartitionError:
        return []
    if error is not None:
        raise explained(cluster, error(topic), "READ")
    rows, _ = await read_rows(cluster, (topic, 0))
    return rows


def _table(cluster: Cluster, topic: str, rows: Iterable[Row]) -> Table:
    table = Table(cluster.site.name, topic)
    keys = cluster.site.signing.keys() if cluster.site.signing else ()
    strangers = _signed_rows(cluster, table, rows, keys) if keys else _plain_rows(table, rows)
    if strangers and SIGNED not in table:
        _refuse_unsigned(table, strangers)
    if keys and SIGNED in table and table[SIGNED] != {}:
        raise BadState(
            f"{topic}[0] at site {table.site} is signed with a newer secret than state.secret: set the new one, as everybody else has",
            table.site,
            topic,
            SIGNED,
            table.offsets[SIGNED],
        )
    # What stood there before all was signed is history, of which the log is not rid yet.
    table.forged = [each for each in strangers if each.offset > table.offsets.get(SIGNED, -1)]
    table.pop(SIGNED, None)
    return table


def _plain_rows(table: Table, rows: Iterable[Row]) -> list[Forged]:
    """Nothing proves who has written what: the last record of each key counts."""
    last: dict[bytes, Row] = {row.key or b"": row for row in rows}
    for row in last.values():
        try:
            key = (row.key or b"").decode()
        except UnicodeDecodeError:
            continue  # not one of ours, and nobody asks for it
        if row.value is None:
            continue
        table.offsets[key] = row.offset
        if claimed(row.value):
            table.bad[key] = "is signed, and this configuration has no state.secret"
        else:
            _put(table, key, row.value)
    return []


def _signed_rows(cluster: Cluster, table: Table, rows: Iterable[Row], keys: tuple[bytes, ...]) -> list[Forged]:
    """Of each key the highest number that is proved counts; what is not proved is returned."""
    newest: dict[str, Signed] = {}
    strangers: list[Forged] = []
    for row in rows:
        key = (row.key or b"").decode("utf-8", "replace")
        found = proved(keys, Place(cluster.cluster_id or "", table.topic, key), row.value)
        if found is None:
            why = "its signature is not ours" if claimed(row.value) else "it is not signed"
            strangers.append(Forged(key, row.offset, why))
        elif key not in newest or found.number >= newest[key].number:
            newest[key] = found
            table.offsets[key] = row.offset
    for key, record in newest.items():
        table.numbers[key] = record.number
        if record.body is not None:
            _put(table, key, record.body)
    return strangers


def _put(table: Table, key: str, raw: bytes | str) -> None:
    try:
        table[key] = parsed(raw)
    except (ValueError, RecursionError) as error:
        table.bad[key] = f"cannot be read: {error}"[:200]


def parsed(raw: bytes | str) -> Any:
    """A value as we write them: JSON, with text that can be written again and numbers that can be compared."""
    value = json.loads(raw, parse_constant=_no_number)
    if "\\u" in (raw if isinstance(raw, str) else raw.decode("utf-8", "replace")):
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair raises
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _refuse_unsigned(table: Table, strangers: list[Forged]) -> NoReturn:
    first = strangers[0]
    raise BadState(
        f"{table.topic}[0] at site {table.site}: {len(strangers)} records are not signed with state.secret, the first one of key {first.key!r} (offset "
        f"{first.offset}). Look at them with `isthmus state show {table.site}`; if they are yours, `isthmus state sign` signs them",
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
    known, secret = await read_table(cluster, topic), cluster.site.signing.keys()[0]
    if SIGNED not in known.numbers:
        bodies = {SIGNED: "{}", **bodies}
    return [
        (
            key.encode(),
            sign(secret, Place(cluster.cluster_id or "", topic, key), Signed(known.numbers.get(key, 0) + 1, body)),
        )
        for key, body in bodies.items()
    ]


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
        place = Place(cluster.cluster_id or "", topic, SIGNED)
        mark = sign(cluster.site.signing.keys()[0], place, Signed(1, "{}"))
        await write_records(cluster, topic, [(SIGNED.encode(), mark)])


def explained(cluster: Cluster, error: Exception, operation: str) -> Exception:
    """The error of whoever did this and was refused: it names that right, and no other."""
    if not isinstance(error, kerrors.AuthorizationError):
        return error
    need = right(cluster.site, operation, "topic", STATE_PREFIX, prefixed=True)
    words = f"site {need.site}: not authorised to {operation.lower()} the link's own topics; grant {need}"
    return AuthorisationFailed(words, need.site, str(need))
