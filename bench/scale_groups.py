"""``python -m bench.scale_groups``: how long many groups take to translate and write, and how that grows.

Goal: 5,000 groups with 10 partitions each in under 60 s. Prints a table: groups, partitions, seconds to plan (list, read
offsets of both sides, one read of the map, translate), to apply (compare again, commit), and to plan once more.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import confluent_kafka as ck
from rich.console import Console
from rich.table import Table

from bench.load import QUIET, create
from isthmus.config import Config, Link, Site
from isthmus.control.ends import Ends
from isthmus.control.groups import Groups
from isthmus.engine.copy import Copier
from isthmus.engine.plan import Job, Planner
from isthmus.kafka.groups import commit_offsets_of_groups
from isthmus.kafka.offsets import Committed
from isthmus.sandbox import KafkaSite, Sandbox

TOPIC, PARTITIONS, RECORDS = "positions", 10, 20_000
# Small transactions make a long map: one run each.
TRANSACTION = 100
console = Console(highlight=False)


def fill(site: KafkaSite) -> None:
    """Records with a hole after each transaction, so that no offset is the same on both sides."""
    create(site.bootstrap, TOPIC, PARTITIONS)
    producer = ck.Producer({"bootstrap.servers": site.bootstrap, **QUIET, "transactional.id": "fill", "linger.ms": 5})
    producer.init_transactions(30)
    for start in range(0, RECORDS, TRANSACTION):
        producer.begin_transaction()
        for number in range(start, start + TRANSACTION):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"%d" % number, partition=partition)
            producer.poll(0)
        producer.commit_transaction(30)


def copy(config: Config, link: Link) -> None:
    planner = Planner(Job(link, config.sites[link.source], config.sites[link.target], 1))
    (lease,) = planner.plan()
    planner.close()
    goal = RECORDS + RECORDS // TRANSACTION
    copier: Any = Copier(lease, lambda: all(c.position >= goal for c in copier._by_source.values()))
    copier.run()


def measure(config: Config, link: Link, count: int) -> dict[str, Any]:
    """Commit for so many groups at the source, then plan, apply and plan again."""
    chance = random.Random(count)
    names = [f"group-{count}-{n}" for n in range(count)]
    chosen = Groups(set(names))
    with Ends(link, config.sites[link.source], config.sites[link.target]) as ends:
        end = RECORDS + RECORDS // TRANSACTION
        wanted = {
            name: {(TOPIC, p): Committed(chance.randrange(end + 1), "") for p in range(PARTITIONS)} for name in names
        }
        assert not any(ends.loop.run(commit_offsets_of_groups, ends.source, wanted).values())
        began = time.monotonic()
        changes = ends.loop.run(chosen.plan, ends)
        planned = time.monotonic()
        outcomes = ends.loop.run(chosen.apply, ends, changes)
        applied = time.monotonic()
        again = ends.loop.run(chosen.plan, ends)
        done = time.monotonic()
    assert sum(o.done for o in outcomes) == count, [o.error for o in outcomes if not o.done][:3]
    assert not any(change.to_do for change in again)
    return {
        "groups": count,
        "partitions": count * PARTITIONS,
        "plan s": round(planned - began, 2),
        "apply s": round(applied - planned, 2),
        "together s": round(applied - began, 2),
        "again s": round(done - applied, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1250, 2500, 5000])
    sizes = parser.parse_args().groups
    with Sandbox() as box:
        east, west = box.start_all(["east", "west"], fast_start=False)
        fill(east)
        sites = {site.name: Site(name=site.name, bootstrap=site.bootstrap.split(",")) for site in (east, west)}
        link = Link.model_validate({"name": "scale", "from": "east", "to": "west", "topics": [TOPIC]})
        config = Config(sites=sites, links={"scale": link})
        copy(config, link)
        rows = [measure(config, link, count) for count in sizes]
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)


if __name__ == "__main__":
    main()
