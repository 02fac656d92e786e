"""Modes of a registry: READWRITE, READONLY and IMPORT, by registry and by subject.

Invariants:
- *remember, then do*: a subject is opened for us alone (a mode of its own) only after that was written down, so one that
  a killed run left open is found and given back its mode by the next;
- a registry without modes is told apart from one that refuses;
- a registry that shows a mode and lets nobody set one (405) counts as one without modes, from the first time that it says so. That is remembered with
  the mode that it showed: once it shows another one, somebody could set it, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from isthmus.control import answers
from isthmus.control.answers import setting
from isthmus.control.ends import Ends
from isthmus.control.memory import Memory, of_kind, remember
from isthmus.control.registry import RegistryClient, path
from isthmus.control.schema_copy import in_thread
from isthmus.errors import IsthmusError, RegistryRefused

KIND = "schema-mode"
FIXED = "schema-mode-fixed"
NOT_SETTABLE = 405


def mode_of(client: RegistryClient) -> str | None:
    """The mode of the whole registry; None if it has none."""
    return client.find(path("mode"), answers.mode)


def settable(memory: Memory, mode: str | None) -> str | None:
    """The registry's mode, as ``mode_of`` found it; None too if it was seen to let nobody set it."""
    return None if mode is None or memory.get((FIXED, "*"), setting) == mode else mode


def cannot_be_set(error: object) -> bool:
    return isinstance(error, RegistryRefused) and error.status == NOT_SETTABLE


def without_modes(site: str) -> str:
    """What a standby is worth at a registry whose mode nobody can set."""
    return (
        f"the registry of {site} has no modes that can be set, so nothing holds others back from writing to it: schemas are copied, and keeping "
        "writers away from a standby is for you to do"
    )


def left_open(memory: Memory) -> dict[str, str]:
    """Subjects that a killed run left open, and the mode that each had before; empty for none of its own."""
    return of_kind(memory, KIND, setting)


class Modes:
    """Opens subjects of the destination for the link's own writing, if its options need that."""

    def __init__(self, ends: Ends, target: RegistryClient, memory: Memory) -> None:
        options = ends.link.sync.schemas
        self._memory = memory
        self._ends, self._target = ends, target
        self._mode = "IMPORT" if options.ids == "keep" else "READWRITE" if options.standby else None

    async def open(self, subjects: Iterable[str], left: Mapping[str, str]) -> dict[str, str]:
        """Open these; which are open now, those that were ``left`` so too, and the mode that each had before."""
        wanted = sorted(set(subjects))
        if self._mode is None or not wanted:
            return dict(left)
        if settable(self._memory, await in_thread(self._ends.loop, mode_of, self._target)) is None:
            return dict(left)  # nothing to open; that ids are kept all the same is checked with each answer
        shown = await self._each(lambda subject: self._target.find(path("mode", subject), answers.mode), wanted)
        before = {subject: mode or "" for subject, mode in shown.items()} | dict(left)
        await remember(self._ends.target, self._ends.link.name, {(KIND, s): mode for s, mode in before.items()})
        try:
            await self._each(lambda s: self._target.put(path("mode", s, force=True), {"mode": self._mode}), wanted)
        except RegistryRefused as refusal:
            if not cannot_be_set(refusal):
                raise
            unopened: dict[tuple[str, str], Any] = {(KIND, s): None for s in before if s not in left}
            await remember(self._ends.target, self._ends.link.name, unopened)
            await self.give_up()
            return dict(left)
        await self.worked()
        return before

    async def worked(self) -> None:
        """A mode was set: what was remembered of a registry that lets nobody do that is over."""
        if (FIXED, "*") in self._memory:
            await remember(self._ends.target, self._ends.link.name, {(FIXED, "*"): None})

    async def give_up(self) -> None:
        """The registry lets nobody set its mode: go on without, and remember it."""
        mode = await in_thread(self._ends.loop, mode_of, self._target)
        await remember(self._ends.target, self._ends.link.name, {(FIXED, "*"): mode})

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
        found = dict(await in_thread(self._ends.loop, self._target.map, call, subjects))
        for answer in found.values():
            if isinstance(answer, IsthmusError):
                raise answer
        return found
