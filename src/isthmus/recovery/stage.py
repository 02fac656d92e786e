"""The sites of an operation, connected on one loop, and the links between them.

Invariant: a site that does not answer is an answer too: ``answers`` never raises for it. What must be reached is asked for with
``site``, which says why it cannot be.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Config, Link
from isthmus.control.ends import Ends
from isthmus.engine.identity import incarnations, newest
from isthmus.engine.state import Control
from isthmus.engine.steer import read_control
from isthmus.errors import ConnectionFailed, IsthmusError, UsageError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.loop import Loop
from isthmus.rules import Identities

REACH_SECONDS = 15.0
# Long enough for a far site that lives, short enough that a dead one does not cost the hour.
BRIEF_SECONDS = 5.0
SILENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Between:
    """The links that join two sites: from the old one to the new one, and back."""

    forward: tuple[Link, ...]
    backward: tuple[Link, ...]


def links_between(config: Config, old: str, new: str) -> Between:
    """The links from ``old`` to ``new`` and those the other way; a usage error where there is nothing to move along."""
    config.site(old)
    config.site(new)
    if old == new:
        raise UsageError(f"{old} and {new} are one site")
    forward = tuple(link for link in config.links.values() if (link.source, link.target) == (old, new))
    backward = tuple(link for link in config.links.values() if (link.source, link.target) == (new, old))
    if not forward and not backward:
        raise UsageError(f"the configuration has no link between {old} and {new}")
    return Between(forward, backward)


class Stage:
    """Connections by site name; made when they are first needed."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._loop = Loop()
        self._clusters: dict[str, Cluster] = {}
        self._silent: dict[str, float] = {}

    def site(self, name: str, seconds: float = REACH_SECONDS) -> Cluster:
        """The site, connected; raises what keeps us from it."""
        if name not in self._clusters:
            cluster = Cluster(self.config.site(name), self._loop, "isthmus-recovery")
            try:
                self._loop.run(cluster.connect, seconds)
            except BaseException:
                cluster.close()
                raise
            self._clusters[name] = cluster
        return self._clusters[name]

    def answers(self, name: str) -> bool:
        """Whether a site can be used right now. One that was silent is not asked again for a while: in an emergency every second of waiting
        for the dead is one more without service."""
        if time.monotonic() < self._silent.get(name, 0.0):
            return False
        try:
            cluster = self.site(name, BRIEF_SECONDS)
            self._loop.run(cluster.metadata, [])
        except (ConnectionFailed, kerrors.KafkaError, OSError):
            self.forget(name)
            self._silent[name] = time.monotonic() + SILENT_SECONDS
            return False
        return True

    def told(self, *names: str) -> list[str]:
        """Which of these sites answer, in words."""
        return [f"{name}: {'answers' if self.answers(name) else 'does not answer'}" for name in names]

    def forget(self, name: str) -> None:
        """Meet a site anew the next time: it may be another cluster by then."""
        cluster = self._clusters.pop(name, None)
        if cluster is not None:
            cluster.close()

    def run(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return self._loop.run(work, *arguments)

    def at(self, name: str, doing: str, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Do something at a site; what goes wrong names the site and what was being done."""
        cluster = self.site(name)
        try:
            return self._loop.run(work, cluster, *arguments)
        except IsthmusError:
            raise
        except (kerrors.KafkaError, OSError) as error:
            raise cluster.explain(error, doing) from error

    def asked_of(self, link: Link, site: str) -> Control:
        """What operators and operations ask of a link, as its destination ``site`` keeps it."""
        control: Control = self.at(site, "reading what is asked of the link", read_control, link.name)
        return control

    def identities(self, link: Link) -> Identities:
        """Which clusters the sites of a link were, as far as those that answer know."""
        known: dict[str, list[str]] = {}
        for site in filter(self.answers, (link.source, link.target)):
            known = newest(known, self.at(site, "reading which clusters sites are", incarnations))
        return Identities(tuple(known.get(link.source, ())), tuple(known.get(link.target, ())))

    def ends(self, link: Link) -> Ends:
        """Both ends of a link, for the control plane; to be used in a ``with`` block."""
        return Ends.of(self.config, link)

    def close(self) -> None:
        for name in list(self._clusters):
            self.forget(name)
        self._loop.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
