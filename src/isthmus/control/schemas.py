"""Schemas: the subjects of the source's registry, kept at the destination's.

    look at both ──> what is new ──> fetch it, with what it refers to ──> is it there already? ──> plan
    plan ──> level by level: register, write down ──> compatibility, deletions ──> outcomes

Invariants:
- a subject at the destination only grows: versions are added, and only those that the link itself has put there are ever
  soft-deleted, and only with ``deleted: copy``;
- a compatibility level is copied where one is set on the subject itself, and taken away only if we set it;
- what others have registered in a subject there is told in the plan, and stays under the level that they have chosen
  (schema_guard.py);
- what was copied is written down after each level, so a run that was killed goes on where it was; what it had not written
  down is found again by asking the destination.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from isthmus.config import Link, Site
from isthmus.control import answers
from isthmus.control.acls import PROMOTED
from isthmus.control.change import Action, Change, Diff, Outcome
from isthmus.control.ends import Ends
from isthmus.control.memory import Memory, of_kind, recall, remember
from isthmus.control.meter import METER
from isthmus.control.registry import RegistryClient, path
from isthmus.control.registry_mode import Modes, cannot_be_set, left_open, mode_of, settable, without_modes
from isthmus.control.schema_copy import Copied, Key, Known, SchemaCopy, Subject, Version, in_thread, incompatible
from isthmus.control.schema_guard import LIFTED, Guard, left_lifted
from isthmus.errors import ConnectionFailed, IsthmusError

KIND = "schema"
WHOLE_REGISTRY = "*"
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Seen:
    """One subject, as both sides have it."""

    subject: str
    live: list[int]
    deleted: list[int]
    compatibility: str | None
    there: set[int] | None = None  # live versions at the destination; None: no such subject
    there_compatibility: str | None = None

    def wanted(self, latest_only: bool) -> list[int]:
        if latest_only:
            return self.live[-1:] or self.deleted[-1:]
        return sorted({*self.live, *self.deleted})


@dataclass(slots=True)
class Order:
    """What is to be done about one subject."""

    subject: str
    new: list[Version] = field(default_factory=list)
    found: list[tuple[Key, Copied]] = field(default_factory=list)
    vanished: bool = False
    delete: list[int] = field(default_factory=list)
    compatibility: tuple[str | None] | None = None  # (None,) takes it away
    mode: str | None = None  # of the whole registry
    close: dict[str, str] = field(default_factory=dict)  # subjects that were left open, and their modes before
    put_back: dict[str, str] = field(default_factory=dict)  # subjects that were left unguarded, and their levels before
    strangers: int = 0  # live versions at the destination that the source does not have
    level_is_theirs: bool = False  # so the source's is not copied over it


class Schemas:
    """The resource. ``copy_between`` is for who needs a schema at once."""

    name = "schemas"

    async def plan(self, ends: Ends) -> list[Change]:
        if not ends.link.sync.schemas.enabled:
            return []
        memory = await recall(ends.target, ends.link.name)
        known = Known(of_kind(memory, KIND, Subject.read))
        copy = open_copy(ends, known)
        try:
            return await in_thread(ends.loop, _compare, copy, memory)
        finally:
            copy.close()

    async def apply(self, ends: Ends, changes: list[Change]) -> list[Outcome]:
        todo = [change for change in changes if change.to_do]
        memory = await recall(ends.target, ends.link.name)
        known = Known(of_kind(memory, KIND, Subject.read))
        copy = open_copy(ends, known)
        modes = Modes(ends, copy.target, memory)
        try:
            return await self._carry_out(ends, copy, modes, todo)
        finally:
            copy.close()

    async def _carry_out(self, ends: Ends, copy: SchemaCopy, modes: Modes, todo: list[Change]) -> list[Outcome]:
        errors: dict[str, str] = {}
        notes: dict[str, str] = {}
        orders: list[Order] = [change.order for change in todo]
        for order in orders:
            before = copy.known.forget_versions(order.subject) if order.vanished else {}
            for key, copied in order.found:
                if copy.known.find(key, copy.name(key[0])) is None:
                    copied.own = key[1] in before and before[key[1]].own
                    copy.known.note(key, copy.name(key[0]), copied)
        levels, stuck = copy.levels(one for order in orders for one in order.new)
        referred = {
            (subject, version) for order in orders for one in order.new for _, subject, version in one.references
        }
        written = {copy.name(one.subject) for level in levels for one in level}
        written |= {copy.name(order.subject) for order in orders if order.delete}
        left = {subject: before for order in orders for subject, before in order.close.items()}
        guard = Guard(ends, copy)
        unguarded = {subject: before for order in orders for subject, before in order.put_back.items()}
        opened = await modes.open(written | set(unguarded), left)
        failed: set[Key] = set()
        try:
            for subject, error in (await guard.mend(unguarded)).items():
                errors[_level_of(subject)] = error.message
            for level in levels:
                waiting = {one.key for one in level if _waits_for(one, failed, errors)}
                ready = [one for one in level if one.key not in waiting]
                for subject, number in sorted(waiting):
                    errors.setdefault(subject, f"version {number} was not tried: what it needs failed")
                failed |= waiting
                refused = await in_thread(ends.loop, copy.register, ready, referred)
                held = [one for one in ready if incompatible(refused.get(one.key))]
                refused = {key: error for key, error in refused.items() if not incompatible(error)}
                for key, error in (refused | await guard.let_in(held, referred)).items():
                    failed.add(key)
                    errors.setdefault(key[0], f"version {key[1]}: {error.message}")
                await _write_down(ends, copy.known)
            for one in stuck:
                errors.setdefault(one.subject, f"version {one.version} refers to what is not there, or to itself")
            rest = [order for order in orders if order.delete or order.compatibility is not None or order.mode]
            for order, result in await in_thread(
                ends.loop, copy.target.map, lambda order: _finish(copy, order, order.subject in errors), rest
            ):
                if order.mode is not None and cannot_be_set(result):
                    await modes.give_up()
                    notes[order.subject] = without_modes(copy.target.site)
                elif isinstance(result, IsthmusError):
                    errors.setdefault(order.subject, result.message)
                elif order.mode is not None:
                    await modes.worked()
            await _write_down(ends, copy.known)
        finally:
            await modes.close(opened)
        return [
            Outcome(change, errors.get(change.order.subject, ""), note=notes.get(change.order.subject, ""))
            for change in todo
        ]


def _waits_for(one: Version, failed: Collection[Key], stopped: Collection[str]) -> bool:
    """Whether what a version refers to has failed, or an earlier version of its subject: the later ones are left for the next
    run, in their order."""
    return one.subject in stopped or any((subject, version) in failed for _, subject, version in one.references)


def _finish(copy: SchemaCopy, order: Order, failed: bool) -> None:
    """Compatibility and deletions of one subject, after its versions; what is not all there keeps the level that it has."""
    if order.mode is not None:
        copy.target.put(path("mode"), {"mode": order.mode})
        return
    if failed:
        return
    subject = copy.name(order.subject)
    if order.compatibility is not None:
        (level,) = order.compatibility
        _set_level(copy, subject, level)
        copy.known.subject(order.subject, subject).compatibility = level
    for number in order.delete:
        copied = copy.known.subject(order.subject, subject).versions[number]
        version = copied.version
        if version is None:
            there = copy.lookup(copy.read((order.subject, number), deleted=True))
            version = there.version if there else None
        if version is not None:
            copy.target.delete(path("subjects", subject, "versions", version))
        copied.version, copied.deleted = version, True


def _set_level(copy: SchemaCopy, subject: str, level: str | None) -> None:
    began, done = time.monotonic(), False
    try:
        if level is None:
            copy.target.delete(path("config", subject))
        else:
            copy.target.put(path("config", subject), {"compatibility": level})
        done = True
    finally:
        METER.set_level(copy.link.name, done, time.monotonic() - began)


async def _write_down(ends: Ends, known: Known) -> None:
    await remember(ends.target, ends.link.name, {(KIND, name): value for name, value in known.unwritten().items()})


def open_copy(ends: Ends, known: Known) -> SchemaCopy:
    return copy_between(ends.link, ends.source.site, ends.target.site, known)


def copy_between(link: Link, source: Site, target: Site, known: Known) -> SchemaCopy:
    return SchemaCopy(link, RegistryClient.of(source), RegistryClient.of(target), known)


# -- comparing --------------------------------------------------------------------------------------------


def _compare(copy: SchemaCopy, memory: Memory) -> list[Change]:
    """All changes. What a run that was cut off has left is mended even if the source cannot be asked."""
    lifted = left_lifted(memory)
    left = _left_lifted(copy, lifted) + _left_open(left_open(memory))
    try:
        changes = left + _registry_changes(copy, memory)
        if not any(change.action == "blocked" for change in changes):
            changes += _compare_subjects(copy, lifted)
    except IsthmusError as error:
        if not left:
            raise
        changes = [*left, Change(Schemas.name, WHOLE_REGISTRY, "blocked", error.message)]
    return sorted(changes, key=lambda change: (change.name != WHOLE_REGISTRY, change.name))


def _compare_subjects(copy: SchemaCopy, lifted: Mapping[str, str]) -> list[Change]:
    options, known = copy.options, copy.known
    changes: list[Change] = []
    with_deleted = options.deleted == "copy"
    subjects = [s for s in copy.source.get(path("subjects", deleted=with_deleted), answers.names) if options.matches(s)]
    there = set(copy.target.get(path("subjects"), answers.names))
    seen: dict[str, _Seen] = {}
    for subject, looked in _each(copy.source, lambda s: _look(copy, s, copy.name(s) in there), sorted(set(subjects))):
        if isinstance(looked, IsthmusError):
            changes.append(Change(Schemas.name, copy.name(subject), "blocked", looked.message))
        else:
            seen[subject] = looked
    changes += _look_at_levels(copy, seen, lifted)
    vanished = {name for name, one in seen.items() if _lost_some(known, name, copy.name(name), one)}
    new: set[Key] = set()
    deleted: set[Key] = set()
    for name, one in seen.items():
        deleted |= {(name, number) for number in one.deleted}
        for number in one.wanted(options.versions == "latest"):
            if name in vanished or known.find((name, number), copy.name(name)) is None:
                new.add((name, number))
    for name in vanished:
        known.forget_versions(name)
    fetched = copy.fetch(new, deleted)
    # What is referred to from outside the selection is copied too.
    orders = {name: Order(name, vanished=name in vanished) for name in {*seen, *(key[0] for key in fetched)}}
    problems: dict[str, str] = {}
    for key, answer in fetched.items():
        if isinstance(answer := _unless_down(answer), IsthmusError):
            problems.setdefault(key[0], f"version {key[1]}: {answer.message}")
    _sort_out(copy, [one for one in fetched.values() if isinstance(one, Version)], there, orders, problems)
    for name, one in seen.items():
        _compare_rest(copy, orders[name], one)
    _look_for_strangers(copy, [orders[name] for name in orders if copy.name(name) in there], seen, problems)
    for name, order in orders.items():
        before = seen.get(name)
        if name in problems:
            changes.append(Change(Schemas.name, copy.name(name), "blocked", problems[name]))
        else:
            changes.append(_change(copy, order, before, copy.name(name) in there))
    return changes


def _each(
    client: RegistryClient, call: Callable[[Item], Result], items: Iterable[Item]
) -> list[tuple[Item, Result | IsthmusError]]:
    """What became of each item. A registry that is down is raised: it is no affair of one subject."""
    return [(item, _unless_down(answer)) for item, answer in client.map(call, items)]


def _unless_down(answer: Result) -> Result:
    if isinstance(answer, ConnectionFailed):
        raise answer
    return answer


def _left_open(subjects: Mapping[str, str]) -> list[Change]:
    why = "a run that was cut off left this subject open for itself"
    return [
        Change(Schemas.name, subject, "alter", why, order=Order(f"mode of {subject}", close={subject: before}))
        for subject, before in subjects.items()
    ]


def _left_lifted(copy: SchemaCopy, lifted: Mapping[str, str]) -> list[Change]:
    """Levels that were written down to be lifted, and not put back."""
    changes = []
    for subject, level in _each(copy.target, copy.target.level_of, sorted(lifted)):
        if isinstance(level, IsthmusError):
            raise level
        diff: tuple[Diff, ...] = ()
        why = "a run that was cut off has noted this subject's compatibility level, which is not lifted any more"
        if level == LIFTED:
            diff = (Diff("compatibility", LIFTED, lifted[subject] or None),)
            why = "a run that was cut off left this subject's compatibility level lifted"
        order = Order(_level_of(subject), put_back={subject: lifted[subject]})
        changes.append(Change(Schemas.name, subject, "alter", why, diff, order=order))
    return changes


def _level_of(subject: str) -> str:
    """What an order is called that is about a level alone."""
    return f"level of {subject}"


def _registry_changes(copy: SchemaCopy, memory: Memory) -> list[Change]:
    """What concerns the destination's registry as a whole: its mode."""
    options, site = copy.options, copy.target.site
    changes: list[Change] = []
    if options.ids != "keep" and not options.standby:
        return changes
    mode = settable(memory, mode_of(copy.target))
    if mode is None and options.ids == "keep":
        why = f"the registry of {site} has no modes that can be set, so it cannot import ids: use `ids: translate`"
        changes.append(Change(Schemas.name, WHOLE_REGISTRY, "blocked", why))
    elif mode is None:
        changes.append(Change(Schemas.name, WHOLE_REGISTRY, "keep", without_modes(site), loud=True))
    elif options.standby and PROMOTED not in memory and mode != "READONLY":
        why = "a standby: only this link writes to it until it is promoted"
        order = Order(WHOLE_REGISTRY, mode="READONLY")
        changes.append(
            Change(Schemas.name, WHOLE_REGISTRY, "alter", why, (Diff("mode", mode, "READONLY"),), order=order)
        )
    return changes


def _look(copy: SchemaCopy, subject: str, is_there: bool) -> _Seen:
    with_deleted = copy.options.deleted == "copy"
    live = copy.source.find(path("subjects", subject, "versions"), answers.numbers) or []
    deleted = path("subjects", subject, "versions", deleted=True)
    every = copy.source.get(deleted, answers.numbers) if with_deleted else live
    known = copy.known.subjects.get(subject)
    to = copy.name(subject)
    seen = _Seen(subject, sorted(live), sorted(set(every) - set(live)), None)
    if copy.options.compatibility:
        seen.compatibility = copy.source.level_of(subject)
    if is_there and known is not None:
        seen.there = set(copy.target.find(path("subjects", to, "versions"), answers.numbers) or [])
    elif is_there:
        seen.there = set()
    return seen


def _look_at_levels(copy: SchemaCopy, seen: dict[str, _Seen], lifted: Mapping[str, str]) -> list[Change]:
    """Only levels that subjects have of their own count; all have been looked at, so how the source shows them is known.
    One that is still lifted counts as what it will be put back to."""
    ask = []
    for name, one in seen.items():
        if copy.source.says_nothing(one.compatibility):
            one.compatibility = None
        known = copy.known.subjects.get(name)
        if one.compatibility is not None or (known is not None and known.compatibility is not None):
            ask.append(name)
    problems = []
    for name, level in _each(copy.target, lambda name: copy.target.level_of(copy.name(name)), ask):
        if isinstance(level, IsthmusError):
            problems.append(Change(Schemas.name, copy.name(name), "blocked", level.message))
            del seen[name]
        else:
            before = lifted.get(copy.name(name)) if level == LIFTED else None
            seen[name].there_compatibility = level if before is None else before or None
    return problems


def _lost_some(known: Known, name: str, to: str, seen: _Seen) -> bool:
    """Whether the destination has less of a subject than was copied: somebody took it away, or began anew."""
    subject = known.subjects.get(name)
    if subject is None or subject.to != to:
        return False
    live = [copied for copied in subject.versions.values() if not copied.deleted]
    if seen.there is None:
        return bool(live)
    numbered = {copied.version for copied in live if copied.version is not None}
    return len(seen.there) < len({copied.id for copied in live}) or not numbered <= seen.there


def _sort_out(
    copy: SchemaCopy, versions: list[Version], there: set[str], orders: dict[str, Order], problems: dict[str, str]
) -> None:
    """What of the new is at the destination already, and what clashes with something else there."""
    levels, stuck = copy.levels(versions)
    for one in stuck:
        problems.setdefault(one.subject, f"version {one.version} refers to what the source does not have")
    for level in levels:
        ask = [one for one in level if copy.name(one.subject) in there]
        found = {one.key: answer for one, answer in _each(copy.target, copy.find, ask)}
        clashes = dict[Key, str | IsthmusError]()
        if copy.options.ids == "keep" and there:
            fresh = [one for one in level if not isinstance(found.get(one.key), Copied)]
            clashes = {one.key: answer for one, answer in _each(copy.target, copy.clash, fresh)}
        for one in level:
            answer, clash = found.get(one.key), clashes.get(one.key, "")
            for problem in (answer, clash):
                if isinstance(problem, IsthmusError):
                    problems.setdefault(one.subject, f"version {one.version}: {problem.message}")
            if isinstance(clash, str) and clash:
                problems.setdefault(one.subject, f"version {one.version}: {clash}")
            if isinstance(answer, Copied):
                if copy.options.ids == "keep" and answer.id != one.id:
                    problems.setdefault(
                        one.subject,
                        f"version {one.version} has id {one.id} at {copy.source.site} and id {answer.id} at "
                        f"{copy.target.site} (as {copy.name(one.subject)} v{answer.version}): use `ids: translate`",
                    )
                orders[one.subject].found.append((one.key, answer))
                # Only so that what refers to it can be asked about; the plan itself changes nothing.
                copy.known.note(one.key, copy.name(one.subject), answer)
            elif one.subject not in problems:
                orders[one.subject].new.append(one)


def _look_for_strangers(
    copy: SchemaCopy, orders: list[Order], seen: Mapping[str, _Seen], problems: dict[str, str]
) -> None:
    """What others have registered in subjects that are to change, and whether the level there refuses ours beside it. The level itself
    is theirs too, unless the link has set it.

    Nobody is asked about a subject that has as many versions as were copied.
    """
    changing = [order for order in orders if order.new or order.compatibility is not None]
    ask = [
        order
        for order in changing
        if order.subject not in problems and _has_more(copy, order.subject, seen.get(order.subject))
    ]
    for order, strangers in _each(copy.target, lambda order: copy.strangers(order.subject), ask):
        if isinstance(strangers, IsthmusError):
            problems.setdefault(order.subject, strangers.message)
            continue
        order.strangers = len(strangers)
        if order.strangers and order.compatibility is not None:
            known, one = copy.known.subjects.get(order.subject), seen[order.subject]
            if known is None or known.compatibility is None or known.compatibility != one.there_compatibility:
                order.compatibility, order.level_is_theirs = None, True
    # Ids and numbers are imported past any level.
    guarded = [order for order in ask if order.strangers and order.new and copy.options.ids != "keep"]
    for order, refused in _each(copy.target, lambda order: copy.refused_beside(order.new[0]), guarded):
        if isinstance(refused, IsthmusError):
            problems.setdefault(order.subject, refused.message)
        elif refused:
            problems.setdefault(order.subject, copy.not_ours(order.new[0], order.strangers))


def _has_more(copy: SchemaCopy, name: str, seen: _Seen | None) -> bool:
    """Whether the destination may have more of a subject than the link has copied or found."""
    if seen is None or not seen.there:
        return True  # nobody has counted
    known = copy.known.versions(name, copy.name(name)).values()
    return len(seen.there) > len({copied.id for copied in known if not copied.deleted})


def _compare_rest(copy: SchemaCopy, order: Order, seen: _Seen) -> None:
    known = copy.known.subjects.get(order.subject)
    # What the destination shows is what holds there, whether it was set or not.
    if seen.compatibility is not None and seen.compatibility != seen.there_compatibility:
        order.compatibility = (seen.compatibility,)
    elif (
        seen.compatibility is None
        and known is not None
        and known.compatibility is not None
        and known.compatibility == seen.there_compatibility
    ):
        order.compatibility = (None,)
    if known is not None and copy.options.deleted == "copy":
        order.delete = [
            number
            for number in seen.deleted
            if (copied := known.versions.get(number)) is not None and copied.own and not copied.deleted
        ]


def _change(copy: SchemaCopy, order: Order, seen: _Seen | None, is_there: bool) -> Change:
    diff = [Diff(f"version {one.version}", None, f"{one.type}, id {one.id}") for one in order.new]
    diff += [Diff(f"version {n}", "live", "soft-deleted") for n in order.delete]
    if order.compatibility is not None:
        before = seen.there_compatibility if seen is not None else None
        diff.append(Diff("compatibility", before, order.compatibility[0]))
    action: Action
    if order.new and not is_there:
        action, why = "create", "the destination has no such subject"
    elif order.new:
        action, why = "grow", f"{_count(len(order.new), 'version')} to add"
    elif order.compatibility is not None:
        set_or_not = "set" if order.compatibility[0] else "not set any more"
        action, why = "alter", f"the compatibility level is {set_or_not} at the source"
    elif order.delete:
        action, why = "delete", f"{_count(len(order.delete), 'version')} deleted at the source"
    elif order.found:
        action, why = "alter", f"{_count(len(order.found), 'version')} there already: the ids are noted for records"
    else:
        count = len(seen.wanted(copy.options.versions == "latest")) if seen is not None else 0
        action, why = "keep", f"{_count(count, 'version')} in step"
    if order.strangers:
        why += f"; the destination has {_count(order.strangers, 'version')} that the source does not have"
        why += ", and keeps its compatibility level" if order.level_is_theirs else ""
    if order.vanished and order.new:
        why += "; copied before, and gone since"
    if seen is None:
        why += "; others refer to it"
    return Change(Schemas.name, copy.name(order.subject), action, why, tuple(diff), order=order)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
