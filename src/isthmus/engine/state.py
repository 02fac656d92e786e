"""What a link keeps at its destination, and under which names. Nothing else is needed to go on.

    _isthmus.LINK                group: progress, claim and control, as committed offsets
      (target topic, partition)    next source offset to copy, and whose (``Progress``)
      (map topic, 0)               the newest lease and who holds it (``Claim``)
      (status topic, 0)            what operators ask of the link (``Control``)
    _isthmus.LINK.map            topic, compacted: source offsets -> destination offsets (offset_map.py)
    _isthmus.LINK.status         topic, compacted: reports of tasks, faults of partitions (report.py)
    _isthmus.LINK.control        topic, compacted: what the link has set up besides records (control/memory.py); claim and control once more (lines.py)
    _isthmus.LINK.SLOT           transactional ids, one a slot
    _isthmus.LINK.plan           transactional id of whoever plans (pen.py)
    _isthmus.LINK.steer          transactional id of whoever changes the control line (steer.py)
    _isthmus.sites               topic, compacted, of all links: which clusters sites are and were (identity.py)

Invariants:
- progress is committed only in the transaction that holds the records, or by a planner that has fenced all
  slots before;
- a planner writes claim and progress only in transactions of the planner's id, which it took before it read what
  it changes: of two planners, the one that came first writes nothing any more;
- *fence, then look, then read*: whoever starts to copy first takes its transactional id (which fences
  predecessors and aborts what they left open), then looks whether the claim still names its lease, and only
  then reads progress. A planner writes the claim *before* it fences the slots. So a zombie is either fenced
  by the planner, or fences too late and then sees a newer claim and leaves, without having written.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from isthmus.errors import DataError
from isthmus.kafka.cluster import NO_ID, STATE_PREFIX
from isthmus.kafka.offsets import Committed

STATE_TOPIC_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.2"}


def group(link: str) -> str:
    return f"{STATE_PREFIX}{link}"


def map_topic(link: str) -> str:
    return f"{STATE_PREFIX}{link}.map"


def status_topic(link: str) -> str:
    return f"{STATE_PREFIX}{link}.status"


def control_topic(link: str) -> str:
    return f"{STATE_PREFIX}{link}.control"


def topics_of(link: str) -> tuple[str, ...]:
    """All topics that a link keeps for itself."""
    return map_topic(link), status_topic(link), control_topic(link)


SITES_TOPIC = f"{STATE_PREFIX}sites"


def transactional_ids(link: str, slot: int) -> tuple[str, str]:
    """A slot's transactions take turns; whoever takes the slot takes both."""
    return f"{STATE_PREFIX}{link}.{slot}", f"{STATE_PREFIX}{link}.{slot}.turn"


def planner_id(link: str) -> str:
    return f"{STATE_PREFIX}{link}.plan"


def steering_id(link: str) -> str:
    return f"{STATE_PREFIX}{link}.steer"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one source partition is copied. Keyed by the *target* partition (the broker wants a topic it
    has), but it names its source, so that it can be found again after the link's rename has changed."""

    offset: int
    source_topic: str
    source_cluster: str
    source_id: uuid.UUID = NO_ID
    target_id: uuid.UUID = NO_ID

    def commit(self) -> Committed:
        words = ("1", self.source_id.hex, self.target_id.hex, self.source_cluster or "-", self.source_topic)
        return Committed(self.offset, " ".join(words))

    @classmethod
    def read(cls, committed: Committed) -> Progress | None:
        parts = committed.metadata.split(" ", 4)
        if len(parts) != 5 or parts[0] != "1":
            return None
        return cls(committed.offset, parts[4], parts[3], uuid.UUID(hex=parts[1]), uuid.UUID(hex=parts[2]))


@dataclass(frozen=True, slots=True)
class Claim:
    """The newest lease of a link: its number, the run that dealt it, and between which clusters. ``slots`` is how
    many slots may have tasks that are not fenced yet; ``started``, whether the topics that the link was born with have
    their start; ``temporary``, that a recovery operation runs it for a while."""

    number: int
    run: str
    host: str = ""
    source_cluster: str = ""
    target_cluster: str = ""
    slots: int = 0
    started: bool = False
    temporary: bool = False

    def commit(self) -> Committed:
        body = {
            "run": self.run,
            "host": self.host,
            "from": self.source_cluster,
            "to": self.target_cluster,
            "slots": self.slots,
            "started": self.started,
        }
        if self.temporary:
            body["temporary"] = True
        return Committed(self.number, json.dumps(body, separators=(",", ":")))

    @classmethod
    def read(cls, committed: Committed | None) -> Claim | None:
        if committed is None:
            return None
        body = _body(committed, "claim")
        places = (body["run"], body["host"], body["from"], body["to"])
        return cls(
            committed.offset, *places, body["slots"], body.get("started", True), body.get("temporary", False) is True
        )


@dataclass(frozen=True, slots=True)
class Control:
    """What operators ask of a running link. ``deal`` counts requests to deal the partitions out anew;
    ``stop`` names a run that shall end; ``held`` says why recovery has taken the link out of service; ``reset`` names the
    command that is setting positions right now."""

    paused: bool = False
    rate_limit: int | None = None
    rate_overridden: bool = False
    deal: int = 0
    stop: str = ""
    held: str = ""
    version: int = field(default=0, compare=False)
    reset: str = ""

    @property
    def lasting(self) -> dict[str, Any]:
        """What holds until somebody says otherwise, however long that takes; and the counter, which must not count backwards."""
        names = ("paused", "rate_limit", "rate_overridden", "held", "deal", "stop", "reset")
        return {name: getattr(self, name) for name in names}

    @property
    def resting(self) -> bool:
        """Whether nothing is to be copied now."""
        return self.paused or bool(self.held) or bool(self.reset)

    def commit(self) -> Committed:
        body = {
            "paused": self.paused,
            "rate": self.rate_limit,
            "override": self.rate_overridden,
            "deal": self.deal,
            "stop": self.stop,
            "held": self.held,
            "reset": self.reset,
        }
        return Committed(self.version, json.dumps(body, separators=(",", ":")))

    @classmethod
    def read(cls, committed: Committed | None) -> Control:
        if committed is None:
            return cls()
        body = _body(committed, "control line")
        places = (body["paused"], body["rate"], body["override"], body["deal"], body["stop"], body.get("held", ""))
        return cls(*places, committed.offset, body.get("reset", ""))


def _body(committed: Committed, what: str) -> dict[str, Any]:
    """The metadata of a line that we wrote."""
    try:
        body = json.loads(committed.metadata)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    if not committed.metadata:
        raise not_kept(f"the destination (its {what} is empty)")
    raise DataError(
        f"the link's {what} at its destination reads {committed.metadata[:40]!r}, which is not ours: somebody else commits to the link's group. "
        "Stop that, then `isthmus reset` the link's partitions"
    )


def not_kept(site: str) -> DataError:
    return DataError(
        f"{site} does not keep the metadata of committed offsets, in which a link keeps whose progress it is: nothing can be copied exactly, "
        "nor at least once. A link needs a destination that keeps it, as Apache Kafka does"
    )
