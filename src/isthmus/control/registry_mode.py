"""Modes of a registry: READWRITE, READONLY and IMPORT, by registry and by subject.

Invariants:
- *remember, then do*: a subject is opened for us alone (a mode of its own) only after that was written down, so one that
  a killed run left open is found and closed by the next;
- a registry without modes is told apart from one that refuses.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.control.ends import Ends
from isthmus.control.memory import Memory, of_kind, remember
from isthmus.control.registry import RegistryClient, path
from isthmus.control.schema_copy import in_thread
from isthmus.errors import IsthmusError

KIND = "schema-mode"


def mode_of(client: RegistryClient) -> str | None:
    """The mode of the whole registry; None if it has none."""
    answer = client.find(path("mode"))
    return str(answer["mode"]) if answer else None


def promote(client: RegistryClient) -> bool:
    """Let everybody write to a standby's registry; False if it has no modes, and so nobody was held back."""
    if mode_of(client) is None:
        return False
    client.put(path("mode"), {"mode": "READWRITE"})
    return True


def left_open(memory: Memory) -> list[str]:
    return sorted(of_kind(memory, KIND))


class Modes:
    """Opens subjects of the destination for the link's own writing, if its options need that."""

    def __init__(self, ends: Ends, target: RegistryClient) -> None:
        options = ends.link.sync.schemas
        self._ends, self._target = ends, target
        self._mode = "IMPORT" if options.ids == "keep" else "READWRITE" if options.standby else None

    async def open(self, subjects: Iterable[str]) -> None:
        wanted = sorted(set(subjects))
        if self._mode is None or not wanted:
            return
        if await in_thread(self._ends.loop, mode_of, self._target) is None:
            return  # nothing to open; that ids are kept all the same is checked with each answer
        await remember(self._ends.target, self._ends.link.name, {(KIND, subject): self._mode for subject in wanted})
        await self._each(lambda s: self._target.put(path("mode", s, force=True), {"mode": self._mode}), wanted)

    async def close(self, subjects: Iterable[str]) -> None:
        wanted = sorted(set(subjects))
        if not wanted or (self._mode is None and await in_thread(self._ends.loop, mode_of, self._target) is None):
            return
        await self._each(lambda s: self._target.delete(path("mode", s)), wanted)
        await remember(self._ends.target, self._ends.link.name, {(KIND, subject): None for subject in wanted})

    async def _each(self, call: object, subjects: list[str]) -> None:
        for _, result in await in_thread(self._ends.loop, self._target.map, call, subjects):
            if isinstance(result, IsthmusError) and getattr(result, "status", 0) != 404:
                raise result
