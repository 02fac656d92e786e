"""Committing positions for groups that nobody reads with at that moment, and what became of each.

Invariants:
- the broker is the judge of whether a group has members: it refuses a commit without a member to a group that has some;
- unless told to, nothing is moved back: what is committed there is read right before writing, and what is not behind the
  position that is wanted is kept;
- nothing counts as written that was not: a group's answer tells what was written, what was kept, and what was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import kafka.errors as kerrors

from isthmus.control.rights import right
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.groups import HAS_MEMBERS, Error, commit_offsets_of_groups, offsets_of_groups
from isthmus.kafka.offsets import Committed, Partition

# Groups whose positions at the destination are read, compared and written together: what has been read is some
# hundred milliseconds old when it is relied on.
GROUPS_AT_ONCE = 200

Positions = Mapping[Partition, Committed]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a site said no to, and the ACL that is missing, if one is."""

    words: str
    needs: tuple[str, ...] = ()


@dataclass(slots=True)
class Written:
    """What became of one group's positions: how many were written and refused, and where those stand that were ``kept``."""

    written: int = 0
    kept: dict[Partition, Committed] = field(default_factory=dict)
    refused: int = 0
    trouble: Trouble | None = None


async def write_in_turns(target: Cluster, wanted: Mapping[str, Positions], rewind: bool) -> dict[str, Written]:
    """Commit these positions for groups without members; what became of each group.

    Unless ``rewind``, what is not ahead of the position that is there at this moment is kept.
    """
    told: dict[str, Written] = {}
    names = sorted(wanted)
    for at in range(0, len(names), GROUPS_AT_ONCE):
        told |= await _write(target, {name: wanted[name] for name in names[at : at + GROUPS_AT_ONCE]}, rewind)
    return told


async def _write(target: Cluster, wanted: Mapping[str, Positions], rewind: bool) -> dict[str, Written]:
    told = {group: Written() for group in wanted}
    writing: dict[str, Positions] = dict(wanted)
    if not rewind:
        now = await offsets_of_groups(target, wanted)
        for group, offsets in wanted.items():
            there = now[group]
            if isinstance(there, type):
                told[group].refused = len(offsets)
                told[group].trouble = trouble_of(there, target, "DESCRIBE", group)
                del writing[group]
            else:
                told[group].kept = {
                    k: there[k] for k, v in offsets.items() if k in there and there[k].offset >= v.offset
                }
                writing[group] = {k: v for k, v in offsets.items() if k not in told[group].kept}
    for group, answer in (await commit_offsets_of_groups(target, writing)).items():
        if isinstance(answer, type):
            told[group].refused = len(writing[group])
            told[group].trouble = trouble_of(answer, target, "READ", group, (topic for topic, _ in writing[group]))
        elif answer:
            found = [trouble_of(error, target, "READ", group, [topic]) for (topic, _), error in sorted(answer.items())]
            where = ", ".join(f"{topic}[{p}]" for topic, p in sorted(answer))
            words = "; ".join(dict.fromkeys(each.words for each in found))
            needs = tuple(dict.fromkeys(need for each in found for need in each.needs))
            told[group].refused = len(answer)
            told[group].trouble = Trouble(f"{where}: {words}; its other partitions are written", needs)
    for group, offsets in writing.items():
        told[group].written = len(offsets) - told[group].refused
    return told


def trouble_of(error: Error, cluster: Cluster, operation: str, group: str, topics: Iterable[str] = ()) -> Trouble:
    """An error of a group, or of these topics of it, in words."""
    site, name, named = cluster.site, error.__name__.removesuffix("Error"), sorted(set(topics))
    if issubclass(error, kerrors.GroupAuthorizationFailedError):
        needs = (str(right(site, operation, "group", group)),)
        return Trouble(f"site {site.name}: not authorised for the group", needs)
    if issubclass(error, kerrors.TopicAuthorizationFailedError):
        return Trouble(
            f"site {site.name}: not authorised for the topic",
            tuple(str(right(site, "READ", "topic", topic)) for topic in named),
        )
    if issubclass(error, kerrors.UnknownTopicOrPartitionError) and named:
        return Trouble(f"site {site.name} has no topic {', '.join(named)}, or not that partition of it")
    if error in HAS_MEMBERS:
        return Trouble(f"site {site.name}: the group has members there now ({name}); it is left to them")
    if issubclass(error, kerrors.OffsetMetadataTooLargeError):
        return Trouble(
            f"site {site.name}: the offset's metadata is longer than offset.metadata.max.bytes there; raise it"
        )
    return Trouble(f"site {site.name}: {name}")
