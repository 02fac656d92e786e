"""What is done with groups besides keeping them in step: look, sync, move all at a failover, reset, and positions in files.

Invariants:
- each of these writes only while the group has no member at that site; only ``reset``, and an import that is told to, may
  move a position back;
- a group that is asked for by name and has no position is an error, never an empty answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Config, Link, is_internal
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends
from isthmus.control.group_file import Entry
from isthmus.control.group_writes import write_in_turns
from isthmus.control.groups import MISSING, Groups, Known, View, survey
from isthmus.control.map_records import UNTIL_ENDED_SECONDS
from isthmus.errors import DataError, IsthmusError
from isthmus.kafka.cluster import Cluster, whose
from isthmus.kafka.groups import list_groups, offsets_of_groups
from isthmus.kafka.offsets import EARLIEST, LATEST, Committed, Partition, list_offsets


def views(config: Config, link: Link, only: Collection[str] | None = None, everybody: bool = False) -> list[View]:
    """The groups of a link, translated: those that follow, those that ``only`` names, or ``everybody`` that reads its topics."""
    with Ends.of(config, link) as ends:
        try:
            found: list[View] = ends.loop.run(survey, ends, link.sync.groups, only, None, everybody)
        except kerrors.KafkaError as error:
            raise explained(ends, error) from error
        return found


def named_views(config: Config, link: Link, names: Collection[str]) -> list[View]:
    """The groups of these names, translated; ``DataError`` if one of them has no position of the link's topics, or may not be read."""
    found = views(config, link, names)
    missing = sorted(set(names) - {view.group for view in found})
    if missing:
        raise DataError(
            f"group {', '.join(missing)} has committed no offset of a topic of link {link.name} at site {link.source}"
        )
    for view in found:
        if view.trouble:
            raise DataError("\n".join((f"group {view.group}: {view.trouble.words}", *view.trouble.needs)))
    return found


def sync(
    config: Config, link: Link, only: Collection[str] | None, dry_run: bool = False
) -> tuple[list[Change], list[Outcome]]:
    """Plan the groups of a link and carry it out; an operator who asks for it means it, whatever ``enabled`` says."""
    resource = Groups(only, asked=True)
    with Ends.of(config, link) as ends:
        try:
            changes: list[Change] = ends.loop.run(resource.plan, ends)
            outcomes: list[Outcome] = [] if dry_run else ends.loop.run(resource.apply, ends, changes)
        except kerrors.KafkaError as error:
            raise explained(ends, error) from error
    return changes, outcomes


@dataclass(slots=True)
class Moved:
    """What became of one group at a failover, by partitions; ``reasons`` says of each one that was left why."""

    group: str
    written: int = 0
    kept: int = 0
    left: int = 0
    reasons: list[str] = field(default_factory=list)
    needs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def move_groups(ends: Ends) -> list[Moved]:
    """Write the positions of all groups that are not dead, with members at the source or not; never back.

    For a failover, when nothing is written to the source any more. A position that is further at the destination is kept and
    told of: records that arrived there since the group's last stay are behind it, so only somebody's reset makes it so.
    """
    everybody = ends.link.sync.groups.model_copy(update={"only_empty": False})
    moved: dict[str, Moved] = {}
    wanted: dict[str, dict[Partition, Committed]] = {}
    # Clients come right after this: it is worth waiting until a slot that stands still in its commit is ended by the broker.
    for view in await survey(ends, everybody, known=Known.of(ends.link, UNTIL_ENDED_SECONDS)):
        if view.kind == MISSING:
            continue
        told = moved[view.group] = Moved(view.group)
        if view.left or view.trouble:
            told.left = len(view.rows)
            told.reasons.append(view.trouble.words if view.trouble else view.left)
            told.needs = view.trouble.needs if view.trouble else ()
            continue
        for row in view.rows:
            place = f"{row.target}[{row.partition}]"
            if row.position is None:
                told.left += 1
                told.reasons.append(f"{place}: {row.reason}")
            elif row.moves:
                wanted.setdefault(view.group, {})[row.target, row.partition] = row.order
            else:
                told.kept += 1
                if row.before is not None and row.before.offset > row.position.offset:
                    told.reasons.append(
                        f"{place}: at {row.before.offset} there, which is further than {row.position.offset}; never moved back"
                    )
    for group, result in (await write_in_turns(ends.target, wanted, rewind=False)).items():
        told = moved[group]
        told.written, told.kept, told.left = result.written, told.kept + len(result.kept), told.left + result.refused
        if result.trouble:
            told.reasons.append(result.trouble.words)
            told.needs = result.trouble.needs
    return list(moved.values())


def explained(ends: Ends, error: kerrors.KafkaError) -> IsthmusError:
    return whose(error, ends.source, ends.target).explain(error, "reading consumer groups of both sites")


async def reset(
    cluster: Cluster, group: str, topics: Sequence[str], to: int | str, dry_run: bool = False
) -> list[dict[str, Any]]:
    """Set where a group goes on: a time in milliseconds, ``earliest`` or ``latest``."""
    site = cluster.site.name
    refuse_own(group)
    before = (await offsets_of_groups(cluster, [group]))[group]
    if isinstance(before, type):
        raise DataError(f"site {site}: group {group}: {before.__name__.removesuffix('Error')}")
    named = sorted(topics) or sorted({topic for topic, _ in before})
    if not named:
        raise DataError(f"group {group} has no position at site {site}; name the topics with --topic")
    metadata = await cluster.metadata(named)
    missing = [name for name in named if metadata.topics[name].error is not None]
    if missing:
        raise DataError(f"site {site} has no topic {', '.join(missing)}")
    keys: list[Partition] = [(name, p) for name in named for p in sorted(metadata.topics[name].partitions)]
    at = {"earliest": EARLIEST, "latest": LATEST}.get(to, 0) if isinstance(to, str) else to
    found = await list_offsets(cluster, dict.fromkeys(keys, at))
    # Nothing is as new as that: the end, where the next record will be.
    found.update(await list_offsets(cluster, dict.fromkeys([k for k, v in found.items() if v == -1], LATEST)))
    wanted: dict[Partition, Committed] = {}
    for key, offset in found.items():
        if not isinstance(offset, int):
            raise DataError(f"site {site} does not tell the offset of {key[0]}[{key[1]}]: {offset.__name__}")
        wanted[key] = Committed(offset, "")
    if not dry_run:
        trouble = (await write_in_turns(cluster, {group: wanted}, rewind=True))[group].trouble
        if trouble:
            raise DataError(f"group {group}: {trouble.words}")
    return [
        {
            "topic": topic,
            "partition": p,
            "before": before[topic, p].offset if (topic, p) in before else None,
            "after": wanted[topic, p].offset,
        }
        for topic, p in keys
    ]


def refuse_own(group: str) -> None:
    if is_internal(group):
        raise DataError(f"group {group} keeps a link's progress; isthmus reset moves that")


async def committed_entries(cluster: Cluster, groups: Collection[str] | None) -> list[Entry]:
    """What groups have committed at a site."""
    names = sorted(groups) if groups else sorted(name for name in await list_groups(cluster) if not is_internal(name))
    entries: list[Entry] = []
    for group, offsets in (await offsets_of_groups(cluster, names)).items():
        if isinstance(offsets, type):
            raise DataError(f"site {cluster.site.name}: group {group}: {offsets.__name__.removesuffix('Error')}")
        if groups and not offsets:
            raise DataError(f"group {group} has committed no offset at site {cluster.site.name}")
        entries += [Entry(group, topic, p, c.offset, c.metadata) for (topic, p), c in offsets.items()]
    return sorted(entries)
