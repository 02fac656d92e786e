"""The way home of a link, where the configuration has none: what its destination wrote while it served, and a failback brought to its source.

Invariants:
- what came home is judged by the way home's own map, beside the link: it is damage like any other if one side lacks or changes it;
- where the destination wrote itself is known from where it took over, up to where the way home ended: what stands elsewhere and no link has put there
  is not expected, however often the site has served.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from isthmus.config import Config, Link
from isthmus.config.turned import Without
from isthmus.engine.identity import sites_table
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import Partition
from isthmus.recovery.journal import entries_in
from isthmus.recovery.seeding import way_home
from isthmus.recovery.service import service
from isthmus.recovery.verify_units import Longs, Pair, clipped, merged, no_runs, no_spans, spans_of

if TYPE_CHECKING:
    from isthmus.recovery.verify_survey import Survey

NO_END = 2**63 - 1


def home_link(config: Config, link: Link) -> Link | None:
    """The way home along a link; None where the configuration has one, which is compared by its own name."""
    ways = (link.target, link.source)
    if any((other.source, other.target) == ways for other in config.links.values()):
        return None
    return way_home(link)


@dataclass(slots=True)
class Served:
    """What is known of the time in which a link's destination was in service, by partition of either site."""

    returned: dict[Partition, Longs] = field(default_factory=dict)
    """Offsets at the link's source that came home."""
    brought: dict[Partition, Longs] = field(default_factory=dict)
    """Offsets at the link's destination that were brought home."""
    own: dict[Partition, Longs] = field(default_factory=dict)
    """Offsets at the link's destination among which it wrote itself."""
    over: bool = False
    """Whether work came home, and the destination is a standby again."""

    def local(self, target: Partition) -> Longs:
        """Where applications wrote at the destination; everywhere, if it serves and nobody knows since when."""
        known = self.own.get(target)
        if known is not None:
            return known
        return no_spans() if self.over else everywhere()


async def served(target: Cluster, link: Link, home: Survey | None, promoted: bool) -> Served:
    """By the way home's map and position, and by the journal of the site that serves or has served."""
    # Nothing where we may not read it: a user of one link alone need not.
    known = service(entries_in(await sites_table(target)), link.source, link.target)
    serving = promoted or (known is not None and not known.over)
    found = Served(over=home is not None and not serving)
    for pair in home.pairs if home is not None else ():
        found.returned[pair.target] = spans_of(pair.runs, 1)
        found.brought[pair.source] = spans_of(pair.runs, 0)
        found.own[pair.source] = outside(pair.stranded, pair.watermark)
    for fault in home.faults if home is not None else ():
        found.own[fault.topic, fault.partition] = everywhere()  # what came home of it cannot be told any more
    if known is not None and not known.over:
        for topic, partitions in known.since.items():
            for partition, since in partitions.items():
                key = (topic, int(partition))
                spans = np.array([[since, NO_END]], np.int64)
                found.own[key] = merged(np.concatenate((found.own.get(key, no_spans()), spans)))
    return found


def everywhere() -> Longs:
    """All offsets."""
    return np.array([[0, NO_END]], np.int64)


def outside(spans: Longs, end: int) -> Longs:
    """What lies between ascending intervals, before an end."""
    edges = np.concatenate(([0], spans.ravel(), [end])).reshape(-1, 2)
    edges = np.minimum(edges, end)
    return edges[edges[:, 1] > edges[:, 0]]


def to_compare(home: Survey, there: Survey, link: Link) -> tuple[list[Pair], Link]:
    """The way home, cut down to what is its own to judge: what the link itself has put there is judged on the way ``there``. Where that could not be
    read, nobody knows what is whose."""
    pairs: list[Pair] = []
    without: Without = {}
    copies = {pair.target: pair.runs for pair in there.pairs}
    unknown = {(fault.topic, fault.partition) for fault in there.faults}
    for pair in home.pairs:
        if pair.target in unknown:
            continue
        skipped, first = pair.stranded, pair.first
        if len(skipped) and skipped[0, 0] <= first:
            first = max(first, int(skipped[0, 1]))
        runs = clipped(pair.runs, first, pair.watermark)
        if first >= pair.watermark and not len(runs):
            continue
        stays = merged(np.concatenate((skipped, spans_of(copies.get(pair.source, no_runs()), 1))))
        stays = stays[(stays[:, 1] > first) & (stays[:, 0] < pair.watermark)]
        if len(stays):
            without.setdefault(pair.topic, {})[pair.partition] = [(int(a), int(b)) for a, b in stays]
        begins = max(pair.target_first, int(runs[0, 1])) if len(runs) else pair.explained
        pairs.append(replace(pair, first=first, target_first=begins, stranded=no_spans(), home=True))
    return pairs, way_home(link, without)
