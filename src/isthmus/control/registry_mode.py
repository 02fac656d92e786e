"""Modes of a registry: READWRITE, READONLY and IMPORT, by registry and by subject.

Invariants:
- *remember, then do*: a subject is opened for us alone (a mode of its own) only after that was written down, so one that
  a killed run left open is found and given back its mode by the next;
- a registry without modes is told apart from one that refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from isthmus.control.ends import Ends
from isthmus.control.memory import Memory, of_kind, remember
from isthmus.control.registry import RegistryClient, path
from isthmus.control.schema_copy import in_thread
from isthmus.errors import IsthmusError, RegistryRefused

KIND = "schema-mode"


def mode_of(client: RegistryClient) -> str | None:
    """The mode of the whole registry; None if it has none."""
    answer = client.find(path("mode"))
    return str(answer["mode"]) if answer else None


def left_open(memory: Memory) -> dict[str, str]:
    """Subjects that a killed run left open, and the mode that each had before; empty for none of its own."""
    return {subject: str(before) for subject, before in of_kind(memory, KIND).items()}


class Modes:
    """Opens subjects of the destination for the link's own writing, if its options need that."""

    def __init__(self, ends: Ends, target: RegistryClient) -> None:
        options = ends.link.sync.schemas
        self._ends, self._target = ends, target
        self._mode = "IMPORT" if options.ids == "keep" else "READWRITE" if options.standby else None

    async def open(self, subjects: Iterable[str], left: Mapping[str, str]) -> dict[str, str]:
        """Open these; which are open now, those that were ``left`` so too, and the mode that each had before."""
        wanted = sorted(set(subjects))
        if self._mode is None or not wanted:
            return dict(left)
        if await in_thread(self._ends.loop, mode_of, self._target) is None:
            return dict(left)  # nothing to open; that ids are kept all the same is checked with each answer
        answers = await self._each(lambda subject: self._target.find(path("mode", subject)), wanted)
        before = {subject: str(answer["mode"]) if answer else "" for subject, answer in answers.items()} | dict(left)
        await remember(self._ends.target, self._ends.link.name, {(KIND, s): mode for s, mode in before.items()})
        await self._each(lambda s: self._target.put(path("mode", s, force=True), {"mode": self._mode}), wanted)
        return before

    async def close(self, opened: Mapping[str, str]) -> None:
        """Give subjects back the mode that they had."""
        if not opened:
            return
        await self._each(lambda subject: self._close(subject, opened[subject]), sorted(opened))
        await remember(self._ends.target, self._ends.link.name, {(KIND, subject): None for subject in opened})

    def _close(self, subject: str, before: str) -> None:
        if before:
            self._target.put(path("mode", subject, force=True), {"mode": before})
            return
        try:
            self._target.delete(path("mode", subject))
        except RegistryRefused as refusal:
            if refusal.status != 404:  # it has none: as it should be
                raise

    async def _each(self, call: Callable[[str], Any], subjects: list[str]) -> dict[str, Any]:
        answers = dict(await in_thread(self._ends.loop, self._target.map, call, subjects))
        for answer in answers.values():
            if isinstance(answer, IsthmusError):
                raise answer
        return answers
