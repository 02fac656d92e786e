"""How the table of schema ids reaches a task, and how it grows there.

    start of a lease ──> what the link has written down (control/memory.py)
    an unknown id    ──> what was written down since ──> ask the registries, and copy the schema ──> the records again

Invariant: only the partition that met the unknown id waits; a registry that is down is asked again, and the others go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import kafka.errors as kerrors

from isthmus.control.memory import of_kind, recall
from isthmus.control.schema_copy import Known, Subject, in_thread
from isthmus.control.schemas import KIND, copy_between
from isthmus.engine.lease import Lease
from isthmus.errors import BadState
from isthmus.kafka.cluster import Cluster
from isthmus.rules import Rule
from isthmus.rules.schema_ids import IdTable, SchemaIds


def table_of(rules: tuple[Rule, ...]) -> IdTable | None:
    """The table that a link's rules use, if they do."""
    return next((rule.table for rule in rules if isinstance(rule, SchemaIds)), None)


class SchemaTable:
    """Fills a task's table."""

    def __init__(self, lease: Lease, target: Cluster, table: IdTable) -> None:
        self._lease, self._target, self.table = lease, target, table

    async def load(self) -> None:
        """What is written down. Nothing yet is no trouble, nor what cannot be read: what is missing will be asked for, and told then."""
        with contextlib.suppress(kerrors.KafkaError, OSError, BadState):
            await self._recall()

    async def _recall(self) -> Known:
        known = Known(of_kind(await recall(self._target, self._lease.link.name), KIND, Subject.read))
        self.table.learn(known.ids())
        return known

    async def ask(self, ids: Iterable[int]) -> None:
        """Find these ids, or learn that they are nowhere to be had. Raises when the registries cannot be asked."""
        known = await self._recall()
        missing = self.table.not_asked(ids)
        if not missing:
            return
        copy = copy_between(self._lease.link, self._lease.source, self._lease.target, known)
        try:
            # The link's own comparison writes it down; what the destination gave is the same whoever asks.
            self.table.learn(await in_thread(self._target.loop, copy.bring, missing))
        finally:
            copy.close()
