"""The destination's compatibility levels: obeyed, and lifted for a moment where history has to be copied.

A version that the source took before its present level was set may be refused by that level at the destination. It is
registered with the level of that one subject lifted.

Invariants:
- *remember, then do*: the level that a subject has, or that it has none of its own, is written down before it is lifted, and
  forgotten after it was put back. What a killed run, or a registry that died, left lifted is put back by the next run;
- a level is lifted only where the destination has nothing but copies of what the source has. What others have registered
  there stays under the guard that they chose;
- a level is put back only where it is still lifted: one that somebody has set since is theirs;
- who finds that another run is lifting the same level lifts nothing, and so never takes NONE for what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from isthmus.control.answers import setting
from isthmus.control.ends import Ends
from isthmus.control.memory import Memory, of_kind, recall, remember
from isthmus.control.registry import RegistryClient, path
from isthmus.control.schema_copy import Copied, Key, SchemaCopy, Version, in_thread
from isthmus.errors import ConnectionFailed, DataError, IsthmusError, RegistryRefused

KIND = "schema-level"
LIFTED = "NONE"
Item = TypeVar("Item")
Result = TypeVar("Result")


def left_lifted(memory: Memory) -> dict[str, str]:
    """Subjects whose level a run that was cut off may have left lifted, and the level before; empty for none of its own."""
    return of_kind(memory, KIND, setting)


class Guard:
    """Lifts levels at the destination for one run's own writing, and puts them back."""

    def __init__(self, ends: Ends, copy: SchemaCopy) -> None:
        self._ends, self._copy, self._target = ends, copy, copy.target

    async def mend(self, left: Mapping[str, str]) -> dict[str, IsthmusError]:
        """Put back what was left lifted; why not, for those that could not be."""
        results = await self._each(lambda subject: _mend(self._target, subject, left[subject]), sorted(left))
        failed = {subject: result for subject, result in results if isinstance(result, IsthmusError)}
        await self._note({subject: None for subject in left if subject not in failed})
        return failed

    async def let_in(self, versions: Iterable[Version], referred: Collection[Key]) -> dict[Key, IsthmusError]:
        """Register versions that a level has refused; why not, for those that could not be. No two of one subject."""
        failed: dict[Key, IsthmusError] = {}
        copies: list[Version] = []
        for one, strangers in await self._each(lambda one: self._copy.strangers(one.subject), versions):
            if isinstance(strangers, IsthmusError):
                failed[one.key] = strangers
            elif strangers:
                failed[one.key] = DataError(self._copy.not_ours(one, len(strangers)))
            else:
                copies.append(one)
        before = await self._levels(copies, failed)
        await self._note(before)
        # Whoever finds the level lifted already only tries again.
        ready = [one for one in copies if one.key not in failed]
        back: dict[str, None] = {}
        for one, result in await self._each(
            lambda one: self._register(one, one.key in referred, before.get(self._copy.name(one.subject))), ready
        ):
            subject = self._copy.name(one.subject)
            if isinstance(result, IsthmusError):  # nothing was lifted
                failed[one.key] = result
                back[subject] = None
                continue
            outcome, trouble = result
            if isinstance(outcome, Copied):
                self._copy.known.note(one.key, subject, outcome)
            else:
                failed[one.key] = outcome
            if trouble is None:
                back[subject] = None
            else:
                words = f"the level of {subject} could not be put back, which the next run does: {trouble.message}"
                failed[one.key] = ConnectionFailed(words, self._target.site)
        await self._note({subject: None for subject in back if subject in before})
        return failed

    async def _levels(self, copies: list[Version], failed: dict[Key, IsthmusError]) -> dict[str, str]:
        """Levels that may be lifted; empty for none of its own.

        A level that another run has lifted is not the subject's. So it is read before and after the notes: one that is the same
        both times, without a note in between, is nobody's NONE.
        """
        if not copies:
            return {}
        first = await self._own_levels(copies, failed)
        noted = left_lifted(await recall(self._ends.target, self._ends.link.name))
        again = await self._own_levels(copies, failed)
        return {
            subject: level
            for subject, level in first.items()
            if level == again.get(subject) and level != LIFTED and subject not in noted
        }

    async def _own_levels(self, copies: list[Version], failed: dict[Key, IsthmusError]) -> dict[str, str]:
        levels = {}
        for one, level in await self._each(lambda one: self._target.own_level(self._copy.name(one.subject)), copies):
            if isinstance(level, IsthmusError):
                failed[one.key] = level
            else:
                levels[self._copy.name(one.subject)] = level or ""
        return levels

    def _register(
        self, one: Version, referred: bool, before: str | None
    ) -> tuple[Copied | IsthmusError, IsthmusError | None]:
        """What became of a version, and why its level could not be put back. Raises where it could not even be lifted."""
        if before is None:
            return self._copy.register_one(one, referred), None
        subject = self._copy.name(one.subject)
        trouble: IsthmusError | None = None
        outcome: Copied | IsthmusError
        try:
            self._target.put(path("config", subject), {"compatibility": LIFTED})
        except ConnectionFailed as doubt:  # it may have been lifted before the answer was lost
            return doubt, doubt
        try:
            outcome = self._copy.register_one(one, referred)
        except IsthmusError as error:
            outcome = error
        try:
            _put_back(self._target, subject, before)
        except IsthmusError as error:
            trouble = error
        return outcome, trouble

    async def _each(
        self, call: Callable[[Item], Result], items: Iterable[Item]
    ) -> list[tuple[Item, Result | IsthmusError]]:
        return await in_thread(self._ends.loop, self._target.map, call, list(items))

    async def _note(self, levels: Mapping[str, str | None]) -> None:
        await remember(
            self._ends.target, self._ends.link.name, {(KIND, subject): level for subject, level in levels.items()}
        )


def _mend(target: RegistryClient, subject: str, before: str) -> None:
    if target.level_of(subject) == LIFTED:
        _put_back(target, subject, before)


def _put_back(target: RegistryClient, subject: str, before: str) -> None:
    if before:
        target.put(path("config", subject), {"compatibility": before})
        return
    try:
        target.delete(path("config", subject))
    except RegistryRefused as refusal:
        if refusal.status != 404:  # it has none: as it should be
            raise
