"""For other programs: where a source offset is at the destination. Needs no Spark.

    from isthmus.client import Client

    with Client("isthmus.yaml") as client:
        place = client.translate("orders-link", "orders", 3, 12345)
        place.offset     # the destination offset of that record, or of the next one that exists
        place.exact      # True: that very record; False: it was never a record there (compacted, aborted, dropped)
        place.copied     # False: nothing at or after it is copied yet; offset is where the next record will be

        for row in client.translate_group("orders-link", "billing"):   # what the group has committed at the source
            row.target, row.partition, row.position.offset, row.position.method

Invariants:
- answers come from what is committed at the destination when ``refresh`` last read it. ``translate`` reads by itself what came since when
  it is asked for an offset beyond what it knows;
- an answer is about the topic that holds the copies. If that was deleted, or created again, ``DestinationMissing`` or
  ``DestinationRecreated`` is raised; whether it is still there is asked with each ``refresh``, and at least every few seconds.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import kafka.errors as kerrors
import numpy as np

from isthmus.config import Config, Link, load
from isthmus.control.map_records import MapRecords
from isthmus.engine import state
from isthmus.engine.incarnations import destination_missing, destination_recreated
from isthmus.engine.offset_map import PartitionMap, Place, build_maps
from isthmus.errors import DataError, UnknownLink, UsageError
from isthmus.kafka.cluster import NO_ID, Cluster

if TYPE_CHECKING:
    from isthmus.control.groups import Row

__all__ = ["Client", "LinkMap", "Place"]

# Whether the topics that hold the copies are still there is asked at least this often.
LOOK_SECONDS = 5.0


class LinkMap:
    """The offset map of one link, read from its destination."""

    def __init__(self, link: Link, target: Cluster) -> None:
        self._link, self._target = link, target
        self._records = MapRecords(link.name)
        self._maps: dict[tuple[str, int], PartitionMap] | None = None
        self._topics: dict[str, uuid.UUID] = {}
        self._looked = 0.0

    def refresh(self) -> None:
        """Read what was committed since the last time."""
        try:
            records = self._target.call(self._records.look, self._target)
        except kerrors.KafkaError as error:
            raise self._target.explain(error, f"reading {state.map_topic(self._link.name)}") from None
        if not self._records.exists:
            raise UnknownLink(
                f"link {self._link.name}: site {self._target.site.name} holds no map of it; has it ever run?"
            )
        if self._maps is None or self._records.grew:
            self._maps = build_maps(records)
        self._look()

    def _look(self) -> None:
        """Which topics there are at the destination, and which incarnations of them."""
        try:
            found = self._target.call(self._target.metadata, None).topics
        except kerrors.KafkaError as error:
            raise self._target.explain(error, "looking at its topics") from None
        self._topics = {name: info.id for name, info in found.items() if info.error is None}
        self._looked = time.monotonic()

    def _check(self, found: PartitionMap) -> None:
        """Raise if the topic that holds the copies is gone: then these offsets are of a log that nobody can read."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._look()
        name = self._link.destination_topic(found.topic)
        if NO_ID in (found.target_id, self._topics.get(name)) or found.target_id in self._topics.values():
            return
        if name not in self._topics:
            raise destination_missing(self._link.name, found.topic, found.partition, name)
        raise destination_recreated(self._link.name, found.topic, found.partition, name)

    def partition(self, topic: str, partition: int) -> PartitionMap:
        """The map of one source partition."""
        maps = self.partitions
        found = maps.get((topic, partition))
        if found is None or not len(found.runs):
            raise DataError(
                f"link {self._link.name} has copied nothing of {topic}[{partition}]; it has copied: "
                f"{', '.join(sorted({t for t, _ in maps})) or 'nothing'}"
            )
        self._check(found)
        return found

    @property
    def partitions(self) -> dict[tuple[str, int], PartitionMap]:
        if self._maps is None:
            self.refresh()
        assert self._maps is not None
        return self._maps

    def translate(self, topic: str, partition: int, offset: int) -> Place:
        known = self.partitions.get((topic, partition))
        if known is None or offset >= known.next_offset:
            self.refresh()
            known = self.partitions.get((topic, partition))
            if not self._records.whole and (known is None or offset >= known.next_offset):
                raise DataError(
                    f"link {self._link.name}: {self._records.open_from}, so nobody can tell yet where {topic}[{partition}] offset {offset} "
                    "is, or whether it is copied; ask again when that has ended (the broker ends it within a minute or so)"
                )
        return self.partition(topic, partition).translate(offset)


class Client:
    """Translations for the links of one configuration."""

    def __init__(self, config: Config | str | Path = "isthmus.yaml") -> None:
        self._config = config if isinstance(config, Config) else load(config)
        self._clusters: dict[str, Cluster] = {}
        self._maps: dict[str, LinkMap] = {}

    def link(self, name: str) -> LinkMap:
        """The map of a link; read when it is first needed."""
        if name not in self._maps:
            link = self._link(name)
            if link.target not in self._clusters:
                cluster = Cluster(self._config.sites[link.target], purpose="isthmus-client")
                cluster.call(cluster.connect)
                self._clusters[link.target] = cluster
            self._maps[name] = LinkMap(link, self._clusters[link.target])
        return self._maps[name]

    def _link(self, name: str) -> Link:
        if name not in self._config.links:
            raise UsageError(f"no link named {name}; there are: {', '.join(self._config.links) or 'none'}")
        return self._config.links[name]

    def translate(self, link: str, topic: str, partition: int, offset: int) -> Place:
        """Where the record at this source offset is at the link's destination."""
        return self.link(link).translate(topic, partition, offset)

    def translate_many(self, link: str, topic: str, partition: int, offsets: Iterable[int]) -> list[Place]:
        """The same for many offsets of one partition, at array speed."""
        answers, exact, copied = (
            self.link(link).partition(topic, partition).translate_many(np.fromiter(offsets, np.int64))
        )
        return [Place(int(o), bool(e), bool(c)) for o, e, c in zip(answers, exact, copied, strict=True)]

    def translate_group(self, link: str, group: str) -> list[Row]:
        """Where a group goes on at the link's destination, for each partition that it has read of the link's topics.

        ``position`` is None where that cannot be told, and ``reason`` says why. Nothing is written. A group that has committed no
        offset of them is a ``DataError``.
        """
        from isthmus.control.group_verbs import named_views

        return named_views(self._config, self._link(link), [group])[0].rows

    def close(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
