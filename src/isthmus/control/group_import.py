"""Positions from a file, written at a site: each is written, kept because the group is further, or refused; and the file's owner is told which.

Invariants:
- a position that a client would not find is not written unless somebody insists: outside of the log a client goes to wherever
  its own settings say. Of a topic or a partition that is not there, there is nothing to insist on;
- nothing is moved back unless told to, and nothing is written to a group that has members (group_writes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import kafka.errors as kerrors

from isthmus.control.group_file import Entry
from isthmus.control.group_verbs import refuse_own
from isthmus.control.group_writes import trouble_of, write_in_turns
from isthmus.control.translation import Target
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import EARLIEST, LATEST, Committed, Partition, list_offsets


@dataclass(slots=True)
class Imported:
    """What became of one group of a file, by positions; ``reasons`` says why some were not written."""

    group: str
    written: int = 0
    kept: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def refuse(self, reason: str, count: int = 1) -> None:
        self.refused += count
        self.reasons.append(reason)


async def write_entries(cluster: Cluster, entries: Sequence[Entry], rewind: bool, force: bool) -> list[Imported]:
    """Write positions, also back with ``rewind`` and outside of the logs with ``force``; what became of each group."""
    for entry in entries:
        refuse_own(entry.group)
    logs = await _logs(cluster, {(entry.topic, entry.partition) for entry in entries})
    told = {entry.group: Imported(entry.group) for entry in sorted(entries)}
    wanted: dict[str, dict[Partition, Committed]] = {}
    for entry in entries:
        place, log = f"{entry.topic}[{entry.partition}]", logs[entry.topic, entry.partition]
        if isinstance(log, str):
            told[entry.group].refuse(f"{place}: {log}")
        elif not log.start <= entry.offset <= log.end and not force:
            told[entry.group].refuse(
                f"{place}: offset {entry.offset} is outside of the log, which goes from {log.start} to {log.end}; "
                "--force writes it all the same"
            )
        else:
            offsets = wanted.setdefault(entry.group, {})
            offsets[entry.topic, entry.partition] = Committed(entry.offset, entry.metadata)
    for group, result in (await write_in_turns(cluster, wanted, rewind)).items():
        mine = told[group]
        mine.written, mine.kept = result.written, len(result.kept)
        mine.reasons += [
            f"{topic}[{p}]: at {there.offset} there, which is further than {wanted[group][topic, p].offset}; "
            "--rewind moves it back"
            for (topic, p), there in sorted(result.kept.items(), key=lambda item: item[0])
            if there.offset > wanted[group][topic, p].offset
        ]
        if result.trouble:
            mine.refuse("; grant ".join((result.trouble.words, *result.trouble.needs)), result.refused)
    return list(told.values())


async def _logs(cluster: Cluster, keys: Iterable[Partition]) -> dict[Partition, Target | str]:
    """Where each log begins and ends, open transactions included; or why that cannot be told."""
    site = cluster.site.name
    found: dict[Partition, Target | str] = {}
    topics = (await cluster.metadata(sorted({topic for topic, _ in keys}))).topics
    for topic, p in keys:
        error, partitions = topics[topic].error, topics[topic].partitions
        if error is kerrors.UnknownTopicOrPartitionError:
            found[topic, p] = f"site {site} has no topic {topic}"
        elif error is not None:
            trouble = trouble_of(error, cluster, "READ", "", [topic])
            found[topic, p] = "; grant ".join((trouble.words, *trouble.needs))
        elif p not in partitions:
            found[topic, p] = f"topic {topic} has {len(partitions)} partitions at site {site}"
    left = [key for key in keys if key not in found]
    first = await list_offsets(cluster, dict.fromkeys(left, EARLIEST))
    last = await list_offsets(cluster, dict.fromkeys(left, LATEST), committed_only=False)
    for key in left:
        start, end = first[key], last[key]
        if isinstance(start, int) and isinstance(end, int):
            found[key] = Target(start, end)
        else:
            bad = end if isinstance(start, int) else start
            found[key] = f"site {site} does not tell the log's ends: {getattr(bad, '__name__', bad)}"
    return found
