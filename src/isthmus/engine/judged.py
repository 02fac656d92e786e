"""Whose word each record of a table is, and which record of a key counts: one judge for all who read tables.

Invariants:
- without a secret the last record of a key counts. With one, the highest number that is proved (signature.py), wherever it stands;
- a table is signed if it says so (``SIGNED``), or if anything in it is proved: who can write the topic can destroy what it says, not make a proof.
  Not while a secret has begun to sign it and has not signed all of it (``BEGUN``): what it has not signed yet would be taken for a stranger's;
- what strangers wrote is counted exactly, since the table last said that it is signed; the first ``MOST`` of it are kept, so that nobody fills our memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus.engine.signature import Place, Signed, opened
from isthmus.kafka.read import Row

# The keys under which a table says that it is signed, and that a secret has begun to sign it.
OF_ITSELF = SIGNED, BEGUN = "table/signed", "table/signing"
# What it says of the first to those who have only a secret that is not used any more.
RETIRED = '{"retired":true}'
MOST = 100

OURS, BEFORE, UNSIGNED, FOREIGN = "signed", "signed with a previous secret", "not signed", "not signed by us"


class Judged(NamedTuple):
    """A record, and whose it is; ``by`` says which of the secrets proves it."""

    key: str
    offset: int
    signature: str
    record: Signed
    by: int = -1


@dataclass(slots=True)
class Look:
    """A table, looked at. ``counting`` is what counts of each key (also that it was forgotten), ``strangers`` the first records that somebody else wrote."""

    secrets: tuple[bytes, ...] = ()
    counting: dict[str, Judged] = field(default_factory=dict)
    strangers: list[Judged] = field(default_factory=list)
    forged: int = 0
    # The last word of strangers on each key, where all of them were asked for.
    newest: dict[str, Judged] = field(default_factory=dict)
    # Keys whose last record is not the one that counts: compaction would destroy that one.
    overwritten: set[str] = field(default_factory=set)

    @property
    def retired(self) -> bool:
        """Whether the secret that we sign with is not used any more."""
        marker = self.counting.get(SIGNED)
        return bool(self.secrets) and marker is not None and marker.by == 0 and marker.record.body == RETIRED

    @property
    def unfinished(self) -> bool:
        begun = self.counting.get(BEGUN)
        return (
            bool(self.secrets) and SIGNED not in self.counting and begun is not None and begun.record.body is not None
        )

    @property
    def signed(self) -> bool:
        return bool(self.secrets and self.counting) and not self.unfinished and not self.retired

    def number(self, key: str) -> int:
        """The number of a key's record; 0 if there is none."""
        return self.counting[key].record.number if key in self.counting else 0

    def things(self) -> list[Judged]:
        """What counts, without what the table says of itself."""
        return [each for key, each in self.counting.items() if not self.secrets or key not in OF_ITSELF]


class Judge:
    """Takes the records of a table in their order; ``every`` keeps the last word of strangers on each key too."""

    def __init__(self, cluster: str, topic: str, secrets: Sequence[bytes], every: bool = False) -> None:
        self._cluster, self._topic, self._every = cluster, topic, every
        self.look = Look(tuple(secrets))

    def take(self, row: Row) -> None:
        look = self.look
        try:
            key = (row.key or b"").decode()
        except UnicodeDecodeError:
            if not look.secrets:
                return  # not one of ours, and nobody asks for it
            key = (row.key or b"").decode("utf-8", "replace")
        claim, by = opened(look.secrets, Place(self._cluster, self._topic, key), row.value)
        if claim is None:
            body = None if row.value is None else row.value.decode("utf-8", "backslashreplace")
            judged = Judged(key, row.offset, UNSIGNED, Signed(1, body))
        else:
            judged = Judged(
                key, row.offset, FOREIGN if by is None else BEFORE if by else OURS, claim, -1 if by is None else by
            )
        if by is None and look.secrets:
            self._strange(judged)
        elif not look.secrets or judged.record.number >= look.number(key):
            self._counts(judged)
        else:
            look.overwritten.add(key)

    def _counts(self, judged: Judged) -> None:
        look = self.look
        if look.secrets and judged.key == SIGNED and judged.record.number > look.number(SIGNED):
            # What stood there before all was signed is history, of which the log is not rid yet. Whoever writes this record again changes nothing.
            look.forged = 0
            look.strangers.clear()
            look.newest.clear()
        look.counting[judged.key] = judged
        look.overwritten.discard(judged.key)

    def _strange(self, judged: Judged) -> None:
        look = self.look
        look.forged += 1
        look.overwritten.add(judged.key)
        if len(look.strangers) < MOST:
            look.strangers.append(judged)
        if self._every:
            look.newest[judged.key] = judged
