"""What an operation has done so far, kept where it survives: at the site that takes over.

Invariants:
- a step's outcome is written before the next step begins; an operation that was killed goes on after the last step that is written;
- an operation that has only looked around is not written: it would take the place of one that was done, and of what that one remembers. One that is
  about to act is written beside it first (``begin``), and only then both sites are asked whether another has begun: of two that contradict each
  other, whichever sites keep them, at most one goes on;
- one operator at a time: who opens the journal takes its transactional id, and whoever had it before is fenced. Who is fenced, or does not know how a
  write ended, looks whether the entry is still his before he writes again, and ends if it is not. So a step may be done twice, but never by two
  at once with both of them going on.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import kafka.errors as kerrors

from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import Table, ensure_table, read_table, table_records
from isthmus.errors import DataError, TakenOver
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.produce import Fenced, Interrupted, Producer, Refused, small_batches

KIND = "journal/"
# Where an operation is kept that is about to act, and has done nothing yet.
BEGUN = "journal-begun/"
WRITE_SECONDS = 30.0
OPERATIONS = ("failover", "failback", "reseed")
_TYPES = {"str": str, "int": int, "bool": bool, "dict": dict}

Found = dict[str, Any]


@dataclass(slots=True)
class Entry:
    """One operation: what was asked for, and each step that is done with what it found."""

    kind: str
    site: str
    to: str
    mode: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.time)
    # When it was about to act; 0 as long as it only looks around, and of operations that older versions have begun.
    begun: float = 0.0
    ended: float = 0.0
    abandoned: bool = False
    attempts: int = 0
    by: str = ""
    # When work was last brought home to ``site``; each entry hands it on, since newer ones take the place of older ones.
    home: float = 0.0
    # Of a failover: from where on records at ``to`` are its own, where an earlier operation has settled that.
    since: dict[str, dict[str, int]] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def acted(self) -> bool:
        """Whether it has changed something for good."""
        return bool(self.done.keys() - {"check"})

    @property
    def unfinished(self) -> bool:
        """Whether it has changed something, or is about to, and is not over; an operation that has only looked around binds nobody."""
        return not self.ended and not self.abandoned and (self.acted or bool(self.begun))

    def things(self) -> dict[str, Any]:
        """What is written of it: with the first step that is done it takes the place of its predecessor."""
        name = f"{self.kind}/{self.site}"
        if self.acted or self.ended:
            return {KIND + name: asdict(self), BEGUN + name: None}
        return {BEGUN + name: asdict(self) if self.unfinished else None}

    @classmethod
    def read(cls, name: str, value: Any) -> Entry:
        """What stands in a table, if it is an operation of this name."""
        entry = cls(**value)
        for each in fields(cls):
            kinds = (int, float) if each.type == "float" else (_TYPES[str(each.type).partition("[")[0]],)
            if not isinstance(getattr(entry, each.name), kinds):
                raise TypeError(f"{each.name} is a {type(getattr(entry, each.name)).__name__}")
        if name != f"{entry.kind}/{entry.site}" or entry.kind not in OPERATIONS:
            raise ValueError(f"not the operation that its key says ({entry.kind[:20]!r} of {entry.site[:80]!r})")
        if not all(isinstance(step, dict) and isinstance(step.get("found"), dict) for step in entry.done.values()):
            raise TypeError("a step without what it found")
        return entry

    def contradicts(self, other: Entry) -> bool:
        """Whether only one of the two may go on."""
        if {self.site, self.to}.isdisjoint({other.site, other.to}):
            return False
        return (self.kind, self.site, self.to, self.mode) != (other.kind, other.site, other.to, other.mode)

    def found(self, step: str) -> Found:
        """What a step found, if it is done."""
        found: Found = self.done.get(step, {}).get("found", {})
        return found

    def told(self) -> str:
        """The operation in words."""
        mode = f"{self.mode} " if self.mode else ""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.began))
        return f"{mode}{self.kind} of {self.site} to {self.to}, begun {when} UTC"


def came_home(known: Iterable[Entry]) -> float:
    """When work was last brought home, by the operations of one pair of sites; 0 if never."""
    return max((max(e.home, e.ended if e.kind == "failback" else 0.0) for e in known), default=0.0)


async def entries(keeper: Cluster) -> dict[tuple[str, str], Entry]:
    """All newest operations that a site keeps, by kind and site."""
    return entries_in(await read_table(keeper, SITES_TOPIC))


def entries_in(table: Table) -> dict[tuple[str, str], Entry]:
    return {(entry.kind, entry.site): entry for entry in table.kind(KIND, Entry.read).values()}


def unfinished_in(table: Table) -> list[Entry]:
    """The operations that a site keeps, and that are not over."""
    return [entry for entry in _all_in(table) if entry.unfinished]


def _all_in(table: Table) -> list[Entry]:
    return [*table.kind(KIND, Entry.read).values(), *table.kind(BEGUN, Entry.read).values()]


class Journal:
    """The journal of one operation, open for writing."""

    def __init__(self, keeper: Cluster, entry: Entry) -> None:
        self._keeper = keeper
        self.entry = entry
        # What the keeper keeps, as it was when the journal was opened.
        self.known: dict[tuple[str, str], Entry] = {}
        self._leaders = Leaders(keeper, [SITES_TOPIC])
        self._producer = self._make()
        # Whether the entry was ever written, and by whom as it stood there last.
        self._written, self._before = False, ""

    def _make(self) -> Producer:
        return Producer(self._keeper, self._leaders, Signal(self._keeper.loop), [f"{STATE_PREFIX}recovery"])

    async def open(self, others: Sequence[Cluster] = ()) -> bool:
        """Take the journal; whether an unfinished operation of the same kind goes on, whose options then hold.

        Raises when another one, which contradicts this one, is unfinished: here, or as one of the ``others`` keeps it.
        """
        await ensure_table(self._keeper, SITES_TOPIC)
        await self._leaders.refresh()
        await self._producer.begin()
        wanted = self.entry
        table = await read_table(self._keeper, SITES_TOPIC)
        self.known = entries_in(table)
        mine = (e for e in self.known.values() if (e.site, e.to) == (wanted.site, wanted.to))
        wanted.home = came_home(mine)
        for keeper in (self._keeper, *others):
            kept = table if keeper is self._keeper else await read_table(keeper, SITES_TOPIC)
            for known in unfinished_in(kept):
                if known.contradicts(wanted):
                    raise _in_the_way(keeper, known)
                if (known.kind, known.site) == (wanted.kind, wanted.site):
                    self.entry = known
        resumed = self.entry is not wanted
        self._written, self._before = resumed, self.entry.by
        self.entry.attempts += 1
        self.entry.by = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        if resumed:
            await self.write()
        return resumed

    async def begin(self, others: Sequence[Cluster] = ()) -> None:
        """Before the first thing is changed: write that this is about to be done, then look at all sites whether another one is."""
        if self.entry.unfinished:
            return
        self.entry.begun = time.time()
        await self.write()
        for keeper in (self._keeper, *others):
            for known in unfinished_in(await read_table(keeper, SITES_TOPIC)):
                if known.contradicts(self.entry):
                    self.entry.begun = 0.0
                    await self.write()
                    raise _in_the_way(keeper, known)

    async def write(self) -> None:
        """Write the entry as it is now; everybody who looks sees it, or nobody does and this raises."""
        deadline = time.monotonic() + WRITE_SECONDS
        while True:
            try:
                for batch in small_batches(await table_records(self._keeper, SITES_TOPIC, self.entry.things())):
                    self._producer.produce({(SITES_TOPIC, 0): batch})
                await self._producer.commit("", {})
                self._written, self._before = True, self.entry.by
                return
            except Fenced:
                if not self._written:
                    raise self._taken_over() from None
                await self._take_again()
            except Refused as refused:
                raise self._keeper.explain(refused.error(refused.words), "writing the journal") from None
            except (Interrupted, kerrors.KafkaError, OSError) as trouble:
                if time.monotonic() > deadline:
                    error = (
                        trouble if isinstance(trouble, kerrors.KafkaError) else kerrors.KafkaTimeoutError(str(trouble))
                    )
                    raise self._keeper.explain(error, "writing the journal") from None
                await self._keeper.loop.sleep(0.2)
                await self._take_again()

    async def _take_again(self) -> None:
        """Take the id again, which ends whatever was on its way; then look whether the entry is still ours."""
        await self._producer.begin()
        kept = _all_in(await read_table(self._keeper, SITES_TOPIC))
        mine = [known for known in kept if known.id == self.entry.id]
        others = any(known.by not in (self.entry.by, self._before) for known in mine)
        gone = self._written and not mine and (self.entry.unfinished or self.entry.acted)
        if others or gone or any(known.unfinished and known.contradicts(self.entry) for known in kept):
            raise self._taken_over()

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"another operator has taken over the {self.entry.told()}; this one stops. Nothing was left half done: the other one "
            "goes on from the last step that is written"
        )


def _in_the_way(keeper: Cluster, known: Entry) -> DataError:
    return DataError(
        f"site {keeper.site.name}: there is an unfinished {known.told()} (done so far: "
        f"{', '.join(known.done) or 'nothing'}). Finish it with the command that began it, or give that one with --abandon"
    )
