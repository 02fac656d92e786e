"""A lease: one task's right to copy a set of partitions for a while. Plain data; it travels to executors."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from isthmus.config import Link, Site
from isthmus.kafka.offsets import Partition
from isthmus.rules import Identities


@dataclass(frozen=True, slots=True)
class Assignment:
    """One source partition and where it goes; the ids pin the incarnations of both topics."""

    topic: str
    partition: int
    source_id: uuid.UUID
    target_topic: str
    target_id: uuid.UUID
    max_bytes: int
    faulted: bool = False

    @property
    def source(self) -> Partition:
        return (self.topic, self.partition)

    @property
    def target(self) -> Partition:
        return (self.target_topic, self.partition)


@dataclass(frozen=True, slots=True)
class Lease:
    link: Link
    source: Site
    target: Site
    source_cluster: str
    target_cluster: str
    run: str
    number: int
    slot: int
    slots: int
    seconds: float
    assignments: tuple[Assignment, ...]
    identities: Identities = field(default_factory=Identities)
    shares: int = 0
    """How many slots have partitions under this lease."""


@dataclass(slots=True)
class LeaseResult:
    """What a task did under its lease."""

    slot: int
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    seconds: float = 0.0
    faults: dict[Partition, str] = field(default_factory=dict)
