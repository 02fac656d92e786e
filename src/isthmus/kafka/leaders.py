"""Who leads which partition, and which incarnation of a topic that is.

Invariant: a topic's id is remembered from its first sight; when the site answers with another id, or without
the topic, the topic is *changed* and stays so: nobody may read or write it as if it were the same log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable

import kafka.errors as kerrors

from isthmus.kafka.cluster import FIRST_BACKOFF, NO_ID, Cluster, Metadata, TopicInfo
from isthmus.kafka.offsets import Partition

# Asking more often than this for leaders that are being elected only loads the brokers that elect them.
REFRESH_PAUSE = 0.1
# A topic that a broker does not know is gone only when this long nobody knows it: brokers of one site hear of a new
# topic one after another, and a busy one late.
UNKNOWN_SECONDS = 5.0


def _unknown(info: TopicInfo | None) -> bool:
    return info is None or info.error is kerrors.UnknownTopicOrPartitionError


class Leaders:
    """Leaders of a fixed set of topics at one site."""

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._topics = sorted(set(topics))
        self._leader: dict[Partition, int] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.names: dict[uuid.UUID, str] = {}
        self.missing: dict[str, float] = {}
        self.recreated: dict[str, uuid.UUID] = {}
        self.refused: dict[str, type[Exception]] = {}
        self._refreshed = 0.0

    def of(self, partition: Partition) -> int:
        """The leader's node id, or -1 while there is none."""
        return self._leader.get(partition, -1)

    @property
    def all_have_ids(self) -> bool:
        return bool(self.ids) and all(topic_id != NO_ID for topic_id in self.ids.values())

    async def refresh(self, minimum_pause: float = REFRESH_PAUSE) -> None:
        """Ask again, at most every so many seconds. Raises what kafka-python raises when nobody answers."""
        wait = self._refreshed + minimum_pause - time.monotonic()
        if wait > 0:
            await self._cluster.loop.sleep(wait)
        self._refreshed = time.monotonic()
        metadata = await self._cluster.metadata(self._topics)
        await self._ask_the_others(metadata)
        now = time.monotonic()
        for name in self._topics:
            info = metadata.topics.get(name)
            if info is None or _unknown(info):
                self.missing.setdefault(name, now)
                continue
            if info.error is not None and issubclass(info.error, kerrors.AuthorizationError):
                self.refused[name] = info.error
                continue
            self.missing.pop(name, None)
            self.refused.pop(name, None)
            known = self.ids.setdefault(name, info.id)
            self.names[known] = name
            if known != info.id:
                self.recreated[name] = info.id
                continue
            for index, partition in info.partitions.items():
                self._leader[name, index] = partition.leader

    async def _ask_the_others(self, metadata: Metadata) -> None:
        """What one broker has not heard of, another may know."""
        for node in metadata.brokers:
            unknown = [name for name in self._topics if _unknown(metadata.topics.get(name))]
            if not unknown:
                return
            try:
                answer = await self._cluster.metadata(unknown, node)
            except (kerrors.KafkaError, OSError):
                continue  # its word is not needed when another knows better
            metadata.topics.update({name: info for name, info in answer.topics.items() if not _unknown(info)})

    async def refresh_until_known(self, but: Collection[str] = ()) -> None:
        """Refresh until each topic (``but`` for some) is known, or has been unknown for so long that it is gone."""
        await self.refresh()
        while any(time.monotonic() - at < UNKNOWN_SECONDS for topic, at in self.missing.items() if topic not in but):
            await self.refresh()

    async def refresh_patiently(self, timeout: float) -> None:
        """Refresh until somebody answers."""
        deadline, backoff = time.monotonic() + timeout, FIRST_BACKOFF
        while True:
            try:
                await self.refresh()
                return
            except (kerrors.RetriableError, kerrors.UnknownBrokerIdError):
                if time.monotonic() > deadline:
                    raise
                await self._cluster.loop.sleep(backoff)
                backoff = min(1.0, backoff * 1.6)
