"""Consumer groups: a group that read at the source goes on at the destination with the next record that it has not read.

Read both sides -> translate (translation.py, two_way.py, foreign.py) -> plan -> apply (group_writes.py).

Invariants:
- a position is written only while the group has no member at the destination. The broker is the judge: it refuses a commit
  without a member to a group that has some, also when one has joined since we looked;
- a position is never moved back. What the destination has committed is read again right before writing;
- what is left alone has its reason: of a group, or of one of its partitions;
- a position never comes before the records: where nothing of a partition is copied yet, it waits for them. A consumer that
  started at the beginning of what is to come would read all of it again;
- a site's own groups (`_isthmus.*`) are never touched.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Link, is_internal
from isthmus.config.patterns import is_pattern, matches_any
from isthmus.config.sync_groups import SyncGroups
from isthmus.control.change import Change, Diff, Outcome
from isthmus.control.ends import Ends
from isthmus.control.foreign import Inquiry, positions
from isthmus.control.group_writes import Trouble, trouble_of, write_in_turns
from isthmus.control.map_records import PATIENCE_SECONDS, MapRecords
from isthmus.control.opposite import Brought, Hidden, Meeting, Opposite, brought, changed_topic, progress_of
from isthmus.control.topics import Topic, discover
from isthmus.control.translation import Position, Target, by_map, maps_between
from isthmus.engine import state
from isthmus.engine.lines import committed_of
from isthmus.kafka.cluster import TopicInfo
from isthmus.kafka.groups import Error, Group, Offsets, list_groups, offsets_of_groups
from isthmus.kafka.offsets import EARLIEST, LATEST, Committed, Partition, list_offsets, log_ranges

# The kinds of groups whose state is committed offsets and nothing else.
KINDS = ("classic", "consumer")
# The kinds of groups that are asked for by name and not listed: one that we may not see, and one that is not there.
HIDDEN, MISSING = "hidden", "missing"


class Left(Change):
    """A group, or one of its partitions, that is left for now: something stays to be done, later or by somebody."""

    __slots__ = ()


@dataclass(slots=True)
class Row:
    """One committed offset of a group, and what becomes of it; ``reason`` says why there is no position. One that ``waits`` comes
    by itself: its partition has no copies yet, or a transaction that hides the map has to end."""

    topic: str
    partition: int
    committed: Committed
    target: str
    position: Position | None = None
    before: Committed | None = None
    reason: str = ""
    waits: bool = False

    @property
    def moves(self) -> bool:
        """Whether the destination's position is to be written."""
        return self.position is not None and (self.before is None or self.before.offset < self.position.offset)

    @property
    def order(self) -> Committed:
        """What is to be written there: the position, with the group's own metadata."""
        assert self.position is not None
        return Committed(self.position.offset, self.committed.metadata)

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.committed.offset,
            "to_topic": self.target,
            "to_offset": self.position.offset if self.position else None,
            "method": self.position.method if self.position else None,
            "exact": self.position.exact if self.position else None,
            "copied": self.position.copied if self.position else None,
            "lands_on": self.position.lands_on if self.position else None,
            "committed_there": self.before.offset if self.before else None,
            "reason": self.reason,
        }


@dataclass(slots=True)
class View:
    """A group at both ends. ``left`` says why the whole group is left alone, ``trouble`` why it could not be read."""

    group: str
    kind: str
    state: str
    there: str
    rows: list[Row] = field(default_factory=list)
    left: str = ""
    trouble: Trouble | None = None

    @property
    def why_left(self) -> str:
        """Why nothing of it is written; empty if it follows."""
        return self.left or (self.trouble.words if self.trouble else "")

    @property
    def to_write(self) -> int:
        """How many positions are to be written at the destination."""
        return 0 if self.why_left else sum(row.moves for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "kind": self.kind,
            "state": self.state,
            "state_there": self.there,
            "left": self.why_left,
            "partitions": [row.to_json() for row in self.rows],
        }


class Groups:
    """The resource. ``only`` narrows it to some groups that an operator has named, whatever the configuration says of them;
    ``asked`` is for an operator who wants it now, although the link is not told to keep groups in step."""

    name = "groups"

    def __init__(self, only: Collection[str] | None = None, asked: bool = False) -> None:
        self._only, self._asked = only, asked
        self._known: Known | None = None

    async def plan(self, ends: Ends) -> list[Change]:
        options = ends.link.sync.groups
        if not options.enabled and not self._asked:
            return []
        self._known = self._known or Known.of(ends.link)
        return [change for view in await survey(ends, options, self._only, self._known) for change in _changes(view)]

    async def apply(self, ends: Ends, changes: list[Change]) -> list[Outcome]:
        todo = [change for change in changes if change.to_do]
        told = await write_in_turns(ends.target, {change.name: change.order for change in todo}, rewind=False)
        troubles = [(change, told[change.name].trouble or Trouble("")) for change in todo]
        return [Outcome(change, trouble.words, trouble.needs) for change, trouble in troubles]


# -- reading and translating ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Known:
    """What repeated surveys of one link need to read only once."""

    records: MapRecords
    opposite: Opposite = field(default_factory=Opposite)

    @classmethod
    def of(cls, link: Link, patience: float = PATIENCE_SECONDS) -> Known:
        return cls(MapRecords(link.name, patience))


async def survey(
    ends: Ends,
    options: SyncGroups,
    only: Collection[str] | None = None,
    known: Known | None = None,
    everybody: bool = False,
) -> list[View]:
    """All groups that follow the link's data, translated; of those that ``only`` names, also what is left alone. With
    ``everybody`` also those that read the link's topics and that the configuration leaves out, with the reason.

    A group that the configuration names and that does not exist is a view, too: of the kind ``MISSING``. Changes nothing.
    """
    here, there = await list_groups(ends.source), await list_groups(ends.target)
    named = only if only is not None else [e for e in options.include if not is_pattern(e) and options.matches(e)]
    views = await _not_listed(ends, set(named) - here.keys(), missing_too=only is None)
    for name, group in sorted(here.items()):
        outside = "" if only is not None else _does_not_follow(name, options)
        if is_internal(name) or (only is not None and name not in only):
            continue
        if outside and not (everybody and group.kind in KINDS):
            continue
        twin = there.get(name)
        view = View(name, group.kind, group.state, twin.state if twin else "")
        view.left = outside or _left_alone(group, twin, options.only_empty and only is None)
        views.append(view)
    # A link that no group reads from is looked at often, and should cost next to nothing.
    if all(view.kind == MISSING for view in views):
        return views
    others = await brought(ends)
    topics = await _topics(ends, others)
    wanted = [view.group for view in views if view.kind in KINDS]
    committed = await offsets_of_groups(ends.source, wanted)
    committed_there = await offsets_of_groups(ends.target, wanted)
    for view in views:
        if view.kind in KINDS:
            _take_offsets(view, topics, committed[view.group], committed_there[view.group], ends)
    # A group that reads nothing of this link's topics is none of its business.
    views = [view for view in views if view.rows or view.trouble or view.kind not in KINDS]
    views.sort(key=lambda view: view.group)
    rows = [row for view in views if not view.left or only is not None for row in view.rows]
    await _translate(ends, topics, others, rows, known or Known.of(ends.link))
    return views


async def _not_listed(ends: Ends, names: Collection[str], missing_too: bool) -> list[View]:
    """Groups that are asked for by name and not listed: we may not see them, or they do not exist."""
    found = []
    asked = sorted(name for name in names if not is_internal(name))
    for name, offsets in sorted((await offsets_of_groups(ends.source, asked)).items()):
        if isinstance(offsets, type) and issubclass(offsets, kerrors.GroupAuthorizationFailedError):
            trouble = trouble_of(offsets, ends.source, "DESCRIBE", name)
            found.append(View(name, HIDDEN, "", "", trouble=trouble))
        elif missing_too and offsets == {}:
            found.append(View(name, MISSING, "", "", left=f"no such group at site {ends.source.site.name}"))
    return found


async def _topics(ends: Ends, others: Sequence[Brought]) -> dict[str, Topic]:
    """The link's topics; and those that a link of the other direction has brought here, which need not be carried back."""
    topics = await discover(ends.source, ends.link)
    taken = {topic.target for topic in topics.values()}
    origins = {
        key[0]: progress.source_topic
        for other in others
        for key, progress in other.progress.items()
        if key[0] not in topics and progress.source_topic not in taken
    }
    for name, info in (await ends.source.metadata(sorted(origins))).topics.items() if origins else ():
        if info.error is None:
            topics[name] = Topic(info, origins[name])
    return topics


def _does_not_follow(name: str, options: SyncGroups) -> str:
    """Why the configuration leaves a group of this name where it is; empty if it follows."""
    if options.matches(name):
        return ""
    return f"sync.groups.{'exclude' if matches_any(options.include, name) else 'include'} leaves it out"


def _left_alone(group: Group, there: Group | None, only_empty: bool) -> str:
    if group.kind not in KINDS:
        return f"a {group.kind} group keeps more than offsets, which cannot be carried over"
    if group.state == "Dead":
        return "it is dead"
    for one, where in ((group if only_empty else None, "source"), (there, "destination")):
        if one is not None and not one.state:
            return f"whether it has members at the {where} is not known: the site tells no state of it"
    if only_empty and not group.empty:
        return f"it has members at the source ({group.state}) and only_empty is set"
    if there is not None and there.state not in ("Empty", "Dead"):
        return f"it has members at the destination ({there.state}), which write its position themselves"
    return ""


def _take_offsets(
    view: View, topics: Mapping[str, Topic], here: Offsets | Error, there: Offsets | Error, ends: Ends
) -> None:
    if isinstance(here, type):
        view.trouble = trouble_of(here, ends.source, "DESCRIBE", view.group)
        return
    ours = sorted((key, value) for key, value in here.items() if key[0] in topics)
    if ours and isinstance(there, type):
        view.trouble = trouble_of(there, ends.target, "DESCRIBE", view.group)
        return
    for (topic, partition), committed in ours:
        target = topics[topic].target
        before = there.get((target, partition)) if isinstance(there, dict) else None
        view.rows.append(Row(topic, partition, committed, target, before=before))


async def _translate(
    ends: Ends, topics: Mapping[str, Topic], others: Sequence[Brought], rows: list[Row], known: Known
) -> None:
    """Find each row's position, or its reason."""
    if not rows:
        return
    names = sorted({row.target for row in rows})
    targets = (await ends.target.metadata(names)).topics
    ids: dict[Partition, tuple[uuid.UUID, uuid.UUID]] = {}
    for row in rows:
        there = targets.get(row.target)
        row.waits = there is None or there.error is kerrors.UnknownTopicOrPartitionError
        row.reason = _unfit(row, topics[row.topic].source, there)
        if not row.reason:
            ids[row.topic, row.partition] = (topics[row.topic].source.id, targets[row.target].id)
    places = {key: (topics[key[0]].target, key[1]) for key in ids}
    # The end before the map: what the map does not know yet is written at or behind that end.
    last = await list_offsets(ends.target, dict.fromkeys(places.values(), LATEST))
    progress = progress_of(await committed_of(ends.target, ends.link, stable=False, complete=False))
    maps = maps_between(await known.records.look(ends.target), ids)
    first = await list_offsets(ends.target, dict.fromkeys(places.values(), EARLIEST))
    by_partition: dict[Partition, list[Row]] = {}
    for row in rows:
        if not row.reason:
            by_partition.setdefault((row.topic, row.partition), []).append(row)
    bounds: dict[Partition, Target] = {}
    for key, some in by_partition.items():
        start, end = first[places[key]], last[places[key]]
        if isinstance(start, int) and isinstance(end, int):
            bounds[key] = Target(start, end)
        else:
            bad = end if isinstance(start, int) else start
            _refuse(some, f"the destination does not tell its log's ends: {getattr(bad, '__name__', bad)}")
    two_way = await known.opposite.meetings(ends, others, places, ids, maps, bounds, known.records)
    own = {key: found for key in bounds if (found := progress.get(places[key])) and found.source_topic == key[0]}
    copied = own.keys() | maps.keys() | {k for k, m in two_way.items() if isinstance(m, Meeting) and m.both.has_copies}
    early = await _waiting(ends, {key: target for key, target in bounds.items() if key not in copied})
    foreign: list[tuple[Row, Inquiry]] = []
    for key, target in bounds.items():
        some, owned, meeting = by_partition[key], own.get(key), two_way.get(key)
        count, count_there = len(topics[key[0]].source.partitions), len(targets[places[key][0]].partitions)
        offsets = [row.committed.offset for row in some]
        if owned is not None and (changed := changed_topic(owned, *ids[key])):
            _refuse(some, changed)
        elif isinstance(meeting, str):
            _refuse(some, meeting)
        elif isinstance(meeting, Hidden):
            _refuse(some, f"{meeting.words}; the position follows when it has ended", waits=True)
        elif key in early and (meeting is not None or count == count_there):
            _refuse(some, f"nothing of {key[0]}[{key[1]}] is copied yet; the position follows its records", waits=True)
        elif isinstance(meeting, Meeting):
            _place(some, meeting.both.positions(offsets, meeting.limit, target))
        elif owned is not None and not known.records.exists:
            _refuse(
                some,
                f"the link's map is gone ({state.map_topic(ends.link.name)}): nobody can tell where a copy stands. Set the group by hand "
                "with `isthmus groups reset`",
            )
        elif not known.records.whole and not (key in maps and len(maps[key].runs)):
            # What stands there may be copies that the map will tell of: its end would lie behind them.
            _refuse(some, f"{known.records.open_from}; the position follows when it has ended", waits=True)
        elif owned is not None or key in maps:
            # Without a map the end is right only for whoever has read all that is copied, or where nothing stands. What others have
            # not read may stand there: copied by another tool before this link, or by this one whose map somebody has deleted.
            unmapped = owned.offset if owned is not None and key not in maps and target.start < target.end else 0
            blind = [row for row in some if row.committed.offset < unmapped]
            sure = [row for row in some if row.committed.offset >= unmapped]
            _place(sure, by_map(maps.get(key), target, [row.committed.offset for row in sure]))
            if count != count_there:
                _refuse(blind, f"the link's map knows nothing of {key[0]}[{key[1]}], and partitions differ in number")
            else:
                foreign += [(row, Inquiry(key, places[key], row.committed.offset, target)) for row in blind]
        elif count != count_there:
            _refuse(
                some,
                f"{count} partitions at the source and {count_there} at the destination, and this link has not copied it: whatever "
                "did may have dealt records to other partitions",
            )
        else:
            foreign += [(row, Inquiry(key, places[key], row.committed.offset, target)) for row in some]
    answers = await positions(ends, (i for _, i in foreign), ends.link.headers.offset)
    for row, inquiry in foreign:
        answer = answers[inquiry.source, inquiry.offset]
        if isinstance(answer, Position):
            row.position = answer
        else:
            row.reason = answer


async def _waiting(ends: Ends, uncopied: Mapping[Partition, Target]) -> set[Partition]:
    """Of partitions that the link has copied nothing of, those whose records are still to come: there are some at the source, open
    transactions included, and none at the destination. Where the source has none, nothing could be read again."""
    keys = [k for k, there in uncopied.items() if there.start >= there.end and ends.link.topics.matches(k[0])]
    if not keys:
        return set()
    logs = await log_ranges(ends.source, keys, committed_only=False)
    return {key for key, (start, end) in logs.items() if start < end}


def _place(rows: Iterable[Row], found: Iterable[Position]) -> None:
    for row, position in zip(rows, found, strict=True):
        row.position = position


def _refuse(rows: Iterable[Row], reason: str, waits: bool = False) -> None:
    for row in rows:
        row.reason, row.waits = reason, waits


def _unfit(row: Row, source: TopicInfo, target: TopicInfo | None) -> str:
    if target is None or target.error is kerrors.UnknownTopicOrPartitionError:
        return f"the destination has no topic {row.target} yet; the position follows its records"
    if target.error is not None:
        return f"destination topic {row.target}: {target.error.__name__.removesuffix('Error')}"
    if row.partition not in source.partitions:
        return f"the source topic {row.topic} has no partition {row.partition} any more"
    if row.partition not in target.partitions:
        return (
            f"{row.topic} has {len(source.partitions)} partitions at the source and {row.target} only "
            f"{len(target.partitions)} at the destination; add partitions there"
        )
    return ""


# -- planning -----------------------------------------------------------------------------------------------------


def _changes(view: View) -> list[Change]:
    """What becomes of a group, and a line of its own for each partition that should move and cannot."""
    if view.left:
        kind = Change if view.state == "Dead" else Left
        return [kind("groups", view.group, "keep", view.left, loud=view.kind == MISSING)]
    if view.trouble:
        return [Change("groups", view.group, "blocked", view.trouble.words, needs=view.trouble.needs)]
    changes: list[Change] = []
    moving = [row for row in view.rows if row.moves]
    stuck = [row for row in view.rows if row.reason]
    if moving:
        methods = Counter(row.position.method for row in moving if row.position)
        how = ", ".join(f"{count} by {method}" for method, count in sorted(methods.items()))
        new = all(row.before is None for row in view.rows)
        why = f"{len(moving)} partition{'s' if len(moving) > 1 else ''}: {how}"
        order = {(row.target, row.partition): row.order for row in moving}
        diff = tuple(
            Diff(
                f"{row.target}[{row.partition}]", str(row.before.offset) if row.before else None, str(row.order.offset)
            )
            for row in moving
        )
        changes.append(Change("groups", view.group, "create" if new else "alter", why, diff, order=order))
    elif len(stuck) < len(view.rows):
        ahead = sum(1 for row in view.rows if row.before and row.position and row.before.offset > row.position.offset)
        why = f"{ahead} partition{'s are' if ahead > 1 else ' is'} further at the destination" if ahead else "in place"
        changes.append(Change("groups", view.group, "keep", why))
    return changes + [
        Left("groups", f"{view.group} {row.target}[{row.partition}]", "keep" if row.waits else "blocked", row.reason)
        for row in stuck
    ]
