"""What an operation has done so far, kept where it survives: at the site that takes over.

Invariants:
- a step's outcome is written before the next step begins; an operation that was killed goes on after the last step that is written;
- an operation that has only looked around is not written: it would take the place of one that was done, and of what that one remembers;
- one operator at a time: who opens the journal takes its transactional id, and whoever had it before cannot write any more and
  ends. So a step may be done twice, but never by two at once with both of them going on.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import ensure_table, read_table
from isthmus.errors import DataError, TakenOver
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.leaders import Leaders
from isthmus.kafka.loop import Signal
from isthmus.kafka.produce import Fenced, Interrupted, Producer, Refused, small_batches

KIND = "journal/"
WRITE_SECONDS = 30.0

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
    def key(self) -> str:
        return f"{KIND}{self.kind}/{self.site}"

    @property
    def unfinished(self) -> bool:
        """Whether it has changed something and is not over; an operation that has only looked around binds nobody."""
        return not self.ended and not self.abandoned and bool(self.done.keys() - {"check"})

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
    table = await read_table(keeper, SITES_TOPIC)
    found = [Entry(**value) for key, value in table.items() if key.startswith(KIND)]
    return {(entry.kind, entry.site): entry for entry in found}


class Journal:
    """The journal of one operation, open for writing."""

    def __init__(self, keeper: Cluster, entry: Entry) -> None:
        self._keeper = keeper
        self.entry = entry
        # What the keeper keeps, as it was when the journal was opened.
        self.known: dict[tuple[str, str], Entry] = {}
        self._leaders = Leaders(keeper, [SITES_TOPIC])
        self._producer = self._make()

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
        self.known = await entries(self._keeper)
        mine = (e for e in self.known.values() if (e.site, e.to) == (wanted.site, wanted.to))
        wanted.home = came_home(mine)
        for keeper in (self._keeper, *others):
            kept = self.known if keeper is self._keeper else await entries(keeper)
            for known in kept.values():
                if not known.unfinished or {known.site, known.to}.isdisjoint({wanted.site, wanted.to}):
                    continue
                if (known.kind, known.site, known.to, known.mode) != (wanted.kind, wanted.site, wanted.to, wanted.mode):
                    raise DataError(
                        f"site {keeper.site.name}: there is an unfinished {known.told()} (done so far: "
                        f"{', '.join(known.done) or 'nothing'}). Finish it with the command that began it, or give that one with --abandon"
                    )
                self.entry = known
        resumed = self.entry is not wanted
        self.entry.attempts += 1
        self.entry.by = f"{socket.gethostname()}:{os.getpid()}"
        if resumed:
            await self.write()
        return resumed

    async def write(self) -> None:
        """Write the entry as it is now; everybody who looks sees it, or nobody does and this raises."""
        body = json.dumps(asdict(self.entry), separators=(",", ":")).encode()
        deadline = time.monotonic() + WRITE_SECONDS
        while True:
            try:
                for batch in small_batches([(self.entry.key.encode(), body)]):
                    self._producer.produce({(SITES_TOPIC, 0): batch})
                await self._producer.commit("", {})
                return
            except Fenced:
                raise TakenOver(
                    f"another operator has taken over the {self.entry.told()}; this one stops. Nothing was left half done: the other one "
                    "goes on from the last step that is written"
                ) from None
            except Refused as refused:
                raise self._keeper.explain(refused.error(refused.words), "writing the journal") from None
            except (Interrupted, kerrors.KafkaError, OSError) as trouble:
                if time.monotonic() > deadline:
                    error = (
                        trouble if isinstance(trouble, kerrors.KafkaError) else kerrors.KafkaTimeoutError(str(trouble))
                    )
                    raise self._keeper.explain(error, "writing the journal") from None
                await self._keeper.loop.sleep(0.2)
                await self._producer.begin()
