"""Both ends of a link, connected, as the resources see them; and the links that go the other way."""

from __future__ import annotations

from typing import Protocol

from isthmus.config import Config, Link, Site
from isthmus.config.turned import BACK, turned
from isthmus.control.change import Change, Outcome
from isthmus.errors import SameCluster
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.loop import Loop


def opposite(config: Config, link: Link) -> tuple[Link, ...]:
    """The links from this one's destination to its source; which of them brings which topic, opposite.py tells. Where there is none, the
    link turned round: a failback may have run it."""
    ways = (link.target, link.source)
    found = tuple(other for other in config.links.values() if (other.source, other.target) == ways)
    return found or (turned(link, BACK),)


class Ends:
    """A link with its two sites on one loop. ``others`` are the links of the other direction."""

    patience: float | None = None
    """How long a plain failure to connect is tried again; as long as any other, unless somebody waits for the answer."""

    def __init__(self, link: Link, source: Site, target: Site, others: tuple[Link, ...] = ()) -> None:
        self.link, self.others = link, others
        self.loop = Loop()
        self.source = Cluster(source, self.loop, f"isthmus-{link.name}-control")
        self.target = Cluster(target, self.loop, f"isthmus-{link.name}-control")

    @classmethod
    def of(cls, config: Config, link: Link) -> Ends:
        return cls(link, config.sites[link.source], config.sites[link.target], opposite(config, link))

    async def connect(self) -> Ends:
        await self.source.connect(patience=self.patience)
        await self.target.connect(patience=self.patience)
        if self.source.cluster_id and self.source.cluster_id == self.target.cluster_id:
            raise SameCluster(
                f"link {self.link.name}: sites {self.source.site.name} and {self.target.site.name} are one cluster "
                f"({self.source.cluster_id})"
            )
        return self

    def close(self) -> None:
        self.source.close()
        self.target.close()
        self.loop.close()

    def __enter__(self) -> Ends:
        self.loop.run(self.connect)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Resource(Protocol):
    """One kind of thing that follows the data. An object of it serves one link."""

    name: str

    async def plan(self, ends: Ends) -> list[Change]:
        """Read both sides and say what should change; changes nothing."""

    async def apply(self, ends: Ends, changes: list[Change]) -> list[Outcome]:
        """Carry out what is to be done of these changes; a refusal is an outcome, not an exception."""
