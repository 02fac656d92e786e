"""Copies versions of subjects from one registry to another, each after what it refers to.

Invariants:
- a version is registered only when every version that it refers to, and its predecessor in the same subject, is known at
  the destination; references are written with the destination's names and version numbers;
- what was copied is in ``Known``, which is all that a later run needs: nothing is fetched or registered twice;
- a compatibility level at the destination is obeyed here; who may lift one is schema_guard.py's affair;
- the cost is a fixed number of requests for each version that is new, and none for one that is known.

Blocking: runs on a thread beside the loop (``in_thread``), and several requests at a time on the clients' own threads.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from isthmus.config import Link
from isthmus.control import answers
from isthmus.control.answers import setting
from isthmus.control.registry import RegistryClient, path
from isthmus.errors import DataError, IsthmusError, RegistryRefused
from isthmus.kafka.loop import Loop

Key = tuple[str, int]  # subject and version at the source
Result = TypeVar("Result")

INCOMPATIBLE = 409
# The API's word for a mode that does not allow it.
READ_ONLY = 42205
# How often the loop looks whether the thread is done.
POLL_SECONDS = 0.005


async def in_thread(loop: Loop, work: Callable[..., Result], *arguments: Any) -> Result:
    """Run blocking work beside the loop."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((work(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))

    threading.Thread(target=run, daemon=True).start()
    while not outcome:
        await loop.sleep(POLL_SECONDS)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject, as the source has it."""

    subject: str
    version: int
    id: int
    type: str
    schema: str
    references: tuple[tuple[str, str, int], ...] = ()  # name, subject, version
    extras: Mapping[str, Any] = field(default_factory=dict)  # metadata and rule set
    deleted: bool = False

    @property
    def key(self) -> Key:
        return (self.subject, self.version)

    @classmethod
    def read(cls, answer: Any, deleted: bool = False) -> Version:
        """A registry's answer; raises ``ValueError`` if it is no version."""
        (subject, version), (kind, schema) = answers.place_of(answer), answers.schema_of(answer)
        references = tuple(
            (answers.text(answers.member(each, "name"), "the name of a reference"), *answers.place_of(each))
            for each in answers.several(answer.get("references") or [], "references")
        )
        extras = {key: answer[key] for key in ("metadata", "ruleSet") if answer.get(key)}
        return cls(subject, version, answers.id_of(answer), kind, schema, references, extras, deleted)


@dataclass(slots=True)
class Copied:
    """What became of a version at the destination. ``version`` is None until somebody needs it."""

    source_id: int
    id: int
    version: int | None = None
    own: bool = False  # we put it there
    deleted: bool = False  # we soft-deleted it

    def to_json(self) -> list[Any]:
        return [self.source_id, self.id, self.version, int(self.own), int(self.deleted)]

    @classmethod
    def read(cls, value: Any) -> Copied:
        source_id, there, version, own, deleted = value
        return cls(int(source_id), int(there), None if version is None else int(version), bool(own), bool(deleted))


@dataclass(slots=True)
class Subject:
    """What is known of one source subject."""

    to: str
    versions: dict[int, Copied] = field(default_factory=dict)
    compatibility: str | None = None  # as we set it

    def to_json(self) -> dict[str, Any]:
        versions = {str(number): copied.to_json() for number, copied in self.versions.items()}
        return {"to": self.to, "versions": versions, "compatibility": self.compatibility}

    @classmethod
    def read(cls, _: str, value: Any) -> Subject:
        versions = {int(number): Copied.read(copied) for number, copied in value["versions"].items()}
        level = value.get("compatibility")
        return cls(str(value["to"]), versions, None if level is None else setting("", level))


class Known:
    """All that was copied, by source subject; ``changed`` names what is not written down yet."""

    def __init__(self, subjects: Mapping[str, Subject]) -> None:
        self.subjects = dict(subjects)
        self.changed: set[str] = set()

    def find(self, key: Key, to: str) -> Copied | None:
        return self.versions(key[0], to).get(key[1])

    def versions(self, name: str, to: str) -> Mapping[int, Copied]:
        """What is known of a subject under this name at the destination."""
        subject = self.subjects.get(name)
        return subject.versions if subject is not None and subject.to == to else {}

    def note(self, key: Key, to: str, copied: Copied) -> None:
        self.subject(key[0], to).versions[key[1]] = copied

    def subject(self, name: str, to: str) -> Subject:
        """The entry of a subject, to be changed; one under another name at the destination is begun anew."""
        found = self.subjects.get(name)
        if found is None or found.to != to:
            found = self.subjects[name] = Subject(to)
        self.changed.add(name)
        return found

    def forget_versions(self, name: str) -> dict[int, Copied]:
        """Begin a subject anew, since the destination has lost some of it; what was known."""
        subject = self.subjects.get(name)
        if subject is None:
            return {}
        self.changed.add(name)
        versions, subject.versions = subject.versions, {}
        return versions

    def unwritten(self) -> dict[str, Any]:
        """What to write down; taking it counts as written."""
        names, self.changed = self.changed, set()
        return {name: self.subjects[name].to_json() for name in names}

    def ids(self) -> dict[int, int]:
        """Source id -> destination id. Where one schema has got two ids, either will do: the smaller one."""
        table: dict[int, int] = {}
        for subject in self.subjects.values():
            for copied in subject.versions.values():
                table[copied.source_id] = min(copied.id, table.get(copied.source_id, copied.id))
        return table


class SchemaCopy:
    """Both registries of a link, and what is known."""

    def __init__(self, link: Link, source: RegistryClient, target: RegistryClient, known: Known) -> None:
        self.options = link.sync.schemas
        self.source, self.target, self.known = source, target, known
        self.link = link
        self._keeps_ids = self.options.ids == "keep"
        # Neither changes: the id of a version at the destination, and which of them a version of the source is.
        self._ids_there: dict[Key, int] = {}
        self._found_there: dict[Key, int | None] = {}

    def close(self) -> None:
        self.source.close()
        self.target.close()

    def name(self, subject: str) -> str:
        """What a source subject is called at the destination."""
        return self.options.destination(subject, self.link.source, self.link.target, self.link.name)

    # -- reading ------------------------------------------------------------------------------------------

    def fetch(self, wanted: Collection[Key], deleted: Collection[Key]) -> dict[Key, Version | IsthmusError]:
        """These versions and all that they refer to, directly or not, as far as it is not known."""
        found: dict[Key, Version | IsthmusError] = {}
        missing = set(wanted)
        while missing:
            for key, answer in self.source.map(lambda key: self.read(key, key in deleted), sorted(missing)):
                found[key] = answer
            referred = {
                (subject, version)
                for key in missing
                if isinstance(one := found[key], Version)
                for _, subject, version in one.references
            }
            missing = {key for key in referred if key not in found and self.known.find(key, self.name(key[0])) is None}
        return found

    def read(self, key: Key, deleted: bool) -> Version:
        """One version of the source."""
        live = None if deleted else self.source.find(path("subjects", key[0], "versions", key[1]), Version.read)
        if live is not None:
            return live
        # What is referred to may have been soft-deleted since; it is still needed.
        where = path("subjects", key[0], "versions", key[1], deleted=True)
        return self.source.get(where, lambda answer: Version.read(answer, deleted=True))

    def lookup(self, one: Version) -> Copied | None:
        """The version at the destination that is this one, if the subject has it."""
        where = path("subjects", self.name(one.subject), normalize=self.options.normalize)
        try:
            id_, version = self.target.post(where, self.body(one), lambda a: (answers.id_of(a), answers.version_of(a)))
        except RegistryRefused as refusal:
            if refusal.status == 404:
                return None
            raise
        self._ids_there[self.name(one.subject), version] = id_
        return Copied(one.id, id_, version)

    def find(self, one: Version) -> Copied | None:
        """The same, for a version of which it is not known whether what it refers to is there."""
        if any(self.known.find((subject, number), self.name(subject)) is None for _, subject, number in one.references):
            return None  # what it refers to is not there, so it is not there either
        return self.lookup(one)

    def strangers(self, subject: str) -> list[int]:
        """Live versions of a subject at the destination that are no copies: the source does not have them, nor has it deleted them.

        A version there is asked for once, however often this is called, and one of the source only where some are left over.
        """
        to = self.name(subject)
        there = {
            number: self._id_there(to, number)
            for number in self.target.find(path("subjects", to, "versions"), answers.numbers) or ()
        }
        copies = {copied.id for copied in self.known.versions(subject, to).values()}
        left = {number for number, id_ in there.items() if id_ not in copies}
        if left:
            copies = {id_ for id_ in self._all_found_there(subject, to) if id_ is not None}
        return sorted(number for number in left if there[number] not in copies)

    def _id_there(self, to: str, number: int) -> int:
        if (to, number) not in self._ids_there:
            self._ids_there[to, number] = self.target.get(path("subjects", to, "versions", number), answers.id_of)
        return self._ids_there[to, number]

    def _all_found_there(self, subject: str, to: str) -> Iterable[int | None]:
        """Ids at the destination of versions that the link has not copied: left out, or soft-deleted at the source."""
        known = self.known.versions(subject, to)
        for number in self.source.find(path("subjects", subject, "versions", deleted=True), answers.numbers) or ():
            key = (subject, number)
            if number not in known and key not in self._found_there:
                found = self.find(self.read(key, deleted=False))
                self._found_there[key] = found.id if found is not None else None
            yield self._found_there.get(key)

    def refused_beside(self, one: Version) -> bool:
        """Whether the destination would refuse this version beside those that it has; False where it cannot be asked."""
        subject = self.name(one.subject)
        for which in ((), ("latest",)):  # older registries compare with one version only
            try:
                compatible = self.target.post(
                    path("compatibility", "subjects", subject, "versions", *which, normalize=self.options.normalize),
                    self.body(one),
                    answers.is_compatible,
                )
            except (RegistryRefused, DataError):
                continue
            return not compatible
        return False

    def not_ours(self, one: Version, strangers: int) -> str:
        """Why a version that is refused beside others' is not forced upon them."""
        have, them = ("a version that is", "it") if strangers == 1 else (f"{strangers} versions that are", "them")
        return (
            f"subject {self.name(one.subject)} has {have} not at {self.source.site}, and its compatibility level at "
            f"{self.target.site} refuses version {one.version} beside {them}: rename the link's subjects, exclude this one, "
            f"or change the level there yourself"
        )

    def clash(self, one: Version) -> str:
        """Who has this version's id at the destination, if it is another schema; empty if nobody."""
        there = self.target.find(path("schemas", "ids", one.id), answers.schema_of)
        if there is None or same_schema(there, one):
            return ""
        owners = self.target.find(path("schemas", "ids", one.id, "versions"), answers.places) or []
        names = ", ".join(f"{subject} v{version}" for subject, version in owners) or "a deleted subject"
        return (
            f"id {one.id} is {one.subject} v{one.version} at {self.source.site} and another schema at "
            f"{self.target.site}: {names}; use `ids: translate`, or take the other one away"
        )

    # -- order --------------------------------------------------------------------------------------------

    def levels(self, versions: Iterable[Version]) -> tuple[list[list[Version]], list[Version]]:
        """Versions in the order in which they can be registered, those of one level at once; and those that cannot,
        because what they refer to is nowhere, or in a circle."""
        nodes = {one.key: one for one in versions}
        before: dict[Key, int] = dict.fromkeys(nodes, 0)
        after: dict[Key, list[Key]] = {key: [] for key in nodes}
        newest: dict[str, Key] = {}
        for key in sorted(nodes):
            needed = {(subject, version) for _, subject, version in nodes[key].references}
            if key[0] in newest:
                needed.add(newest[key[0]])
            newest[key[0]] = key
            for other in needed:
                if other in nodes:
                    before[key] += 1
                    after[other].append(key)
                elif self.known.find(other, self.name(other[0])) is None:
                    before[key] += 1  # never comes
        ready = deque(key for key, count in before.items() if count == 0)
        levels = []
        while ready:
            levels.append([nodes[key] for key in ready])
            following: deque[Key] = deque()
            for key in ready:
                for other in after[key]:
                    before[other] -= 1
                    if before[other] == 0:
                        following.append(other)
            ready = following
        return levels, [nodes[key] for key, count in before.items() if count > 0]

    # -- writing ------------------------------------------------------------------------------------------

    def register(self, level: Iterable[Version], referred: Collection[Key]) -> dict[Key, IsthmusError]:
        """Register versions and note what became of them; why not, for those that could not be.

        ``referred``: whose number at the destination others will need.
        """
        failed: dict[Key, IsthmusError] = {}
        for one, result in self.target.map(lambda one: self.register_one(one, one.key in referred), list(level)):
            if isinstance(result, IsthmusError):
                failed[one.key] = result
            else:
                self.known.note(one.key, self.name(one.subject), result)
        return failed

    def register_one(self, one: Version, referred: bool) -> Copied:
        """Register one version. One that the compatibility level there refuses is for schema_guard.py."""
        subject = self.name(one.subject)
        where = path("subjects", subject, "versions", normalize=self.options.normalize)
        body = self.body(one)
        if self._keeps_ids:
            body |= {"id": one.id, "version": one.version}
        id_ = self.target.post(where, body, answers.id_of)
        if self._keeps_ids and id_ != one.id:
            raise DataError(
                f"{one.subject} v{one.version} has id {one.id} at {self.source.site}, and the registry of "
                f"{self.target.site} gave it id {id_}: it does not import ids; use `ids: translate`"
            )
        version = one.version if self._keeps_ids else None
        if version is None and (referred or one.deleted):
            there = self.lookup(one)
            version = there.version if there else None
        if one.deleted and version is not None:
            self.target.delete(path("subjects", subject, "versions", version))
        return Copied(one.id, id_, version, own=True, deleted=one.deleted)

    def body(self, one: Version) -> dict[str, Any]:
        """What the API takes for a version, with the destination's references."""
        body: dict[str, Any] = {"schema": one.schema}
        if one.type != "AVRO":  # the API's default, and the only one that the oldest registries know
            body["schemaType"] = one.type
        if one.references:
            body["references"] = [
                {"name": name, "subject": self.name(subject), "version": self._version_there((subject, version))}
                for name, subject, version in one.references
            ]
        if not self.options.serverless:
            body |= one.extras
        return body

    def _version_there(self, key: Key) -> int:
        copied = self.known.find(key, self.name(key[0]))
        if copied is not None and copied.version is None:
            there = self.lookup(self.read(key, deleted=False))
            if there is not None:
                copied.version = there.version
                self.known.changed.add(key[0])
        if copied is None or copied.version is None:
            raise DataError(
                f"{key[0]} v{key[1]} is referred to, and the registry of {self.target.site} does not have it as "
                f"{self.name(key[0])}"
            )
        return copied.version

    # -- on demand ----------------------------------------------------------------------------------------

    def bring(self, ids: Iterable[int]) -> dict[int, int | None]:
        """Copy the schemas of these source ids now; the destination's ids, or None for one that is not to be had:
        the source does not know it, or only in subjects that the link leaves alone, or the destination refuses it."""
        owners: dict[int, Key | None] = {}
        for id_, found in self.source.map(
            lambda id_: self.source.find(path("schemas", "ids", id_, "versions"), answers.places), ids
        ):
            if isinstance(found, IsthmusError):
                raise found
            owners[id_] = min((key for key in found or () if self.options.matches(key[0])), default=None)
        keys = {key for key in owners.values() if key is not None}
        if self.options.versions == "all":
            # In their order: what is registered last is the subject's latest.
            keys |= {earlier for key in tuple(keys) for earlier in self._up_to(key)}
        fetched = self.fetch({key for key in keys if self.known.find(key, self.name(key[0])) is None}, ())
        versions = [one for one in fetched.values() if isinstance(one, Version)]
        referred = {(subject, version) for one in versions for _, subject, version in one.references}
        for level in self.levels(versions)[0]:
            for refused, error in self.register(level, referred).items():
                if not isinstance(error, (RegistryRefused, DataError)) or self._held_back(refused, error):
                    raise error  # not for good: worth another try
        result: dict[int, int | None] = {}
        for id_, key in owners.items():
            copied = self.known.find(key, self.name(key[0])) if key is not None else None
            result[id_] = copied.id if copied is not None else None
        return result

    def _held_back(self, key: Key, error: IsthmusError) -> bool:
        """Whether the link's own comparison will copy what was refused here: it alone opens a standby that is read-only, and
        lifts a compatibility level, because both are written down first."""
        if incompatible(error):
            return not self.strangers(key[0])
        return self.options.standby and isinstance(error, RegistryRefused) and error.code == READ_ONLY

    def _up_to(self, key: Key) -> list[Key]:
        versions = self.source.find(path("subjects", key[0], "versions"), answers.numbers) or []
        return [(key[0], version) for version in versions if version <= key[1]]


def incompatible(error: IsthmusError | None) -> bool:
    """Whether a compatibility level has refused a version."""
    return isinstance(error, RegistryRefused) and error.status == INCOMPATIBLE


def same_schema(there: tuple[str, str], one: Version) -> bool:
    """Whether a schema (its type, and itself) is this one; blanks do not matter."""
    kind, schema = there
    return kind == one.type and bool(_canonical(schema, kind) == _canonical(one.schema, kind))


def _canonical(schema: str, kind: str) -> Any:
    if kind in ("AVRO", "JSON"):
        try:
            return json.loads(schema)
        except (ValueError, RecursionError):
            pass
    return " ".join(schema.split())
