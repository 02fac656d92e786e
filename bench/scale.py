"""How cost grows: one thing is varied at a time, everything else stays as in the comparison."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import measure
from bench.compare import KEPT, console, save, say
from bench.distance import Distance
from bench.idle import idle_cost
from bench.load import create, delete_all, fill
from bench.systems import Isthmus, MirrorMaker, System, Task
from isthmus.sandbox import KafkaSite, Sandbox

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SWEEP_BYTES = 400_000_000
ROUNDS = 3
CHASE_BYTES = 20_000_000_000
ROUND_TRIP, LOSS = 0.05, 0.01
START_ROUNDS = 5
KEPT_FIELDS = ("records_per_s", "mb_per_s", "cpu_us_per_record", "peak_pss_mib", "start_to_first_s")
USER_RULE = """
import pyarrow.compute as pc

def keep_all(batch):
    return batch.filter(pc.greater_equal(batch["offset"], 0))
"""

Row = dict[str, Any]


class Bench:
    """Two sites and what is needed to fill the one and copy to the other."""

    def __init__(self, box: Sandbox, scratch: Path) -> None:
        self.box, self.scratch = box, scratch
        self.east, self.west = box.start_all(["east", "west"], fast_start=False)
        self._number = 0
        self._filled: tuple[Any, ...] = ()

    def task(self, topic: str, codec: str = "none", west: KafkaSite | None = None) -> Task:
        self._number += 1
        return Task(self.east, west or self.west, topic, codec, self.scratch, f"{self._number}")

    def fill(
        self, count: int, size: int, partitions: int = measure.PARTITIONS, codec: str = "none", headers: int = 0
    ) -> str:
        """A topic with this in it; the one before it is gone unless it is the same."""
        wanted = (count, size, partitions, codec, headers)
        topic = "scale-" + "-".join(map(str, wanted))
        if wanted != self._filled:
            delete_all(self.east.bootstrap)
            create(self.east.bootstrap, topic, partitions, {"max.message.bytes": "10000000", "retention.ms": "-1"})
            fill(self.east.bootstrap, topic, partitions, count, size, codec, headers)
            self._filled = wanted
        return topic

    def copy(self, count: int, size: int, system: System | None = None, **filling: Any) -> Row:
        """Copied in several rounds, each by a link of its own; the medians of what was measured."""
        topic = self.fill(count, size, **filling)
        number = filling.get("partitions", measure.PARTITIONS)
        codec = filling.get("codec", "none")
        rounds = [
            measure.throughput(system or Isthmus(), self.task(topic, codec), count, size, 900, number)
            for _ in range(ROUNDS)
        ]
        return {field: _median([row[field] for row in rounds]) for field in KEPT_FIELDS}


def _median(values: list[float | None]) -> float | None:
    """Of what could be measured; a run that was over too soon has no rate."""
    measured = [value for value in values if value is not None]
    return round(median(measured), 2) if measured else None


def start(bench: Bench) -> Iterator[Row]:
    """From the start of the command to the first record; each system in turn."""
    competitors: list[tuple[str, System]] = [
        ("isthmus, exactly-once", Isthmus()),
        ("mirrormaker2, at-least-once", MirrorMaker()),
        ("mirrormaker2, exactly-once", MirrorMaker("exactly-once")),
    ]
    topic = bench.fill(60_000, 100)
    took: dict[str, list[float]] = {name: [] for name, _ in competitors}
    for _ in range(START_ROUNDS):
        for name, system in competitors:
            row = measure.throughput(system, bench.task(topic), 60_000, 100)
            took[name].append(row["start_to_first_s"])
    for name, seconds in took.items():
        yield {"system": name, "median_s": round(median(seconds), 2), "all_s": [round(s, 2) for s in seconds]}


def partitions(bench: Bench) -> Iterator[Row]:
    for number in (10, 100, 1000):
        yield {"partitions": number, **bench.copy(1_500_000, 100, partitions=number)}


def idle(bench: Bench) -> Iterator[Row]:
    for number in (100, 1000):
        yield idle_cost(Isthmus(), bench.task("idle"), number)


def sizes(bench: Bench) -> Iterator[Row]:
    for size in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        yield {"bytes": size, **bench.copy(min(3_000_000, SWEEP_BYTES // size), size)}


def headers(bench: Bench) -> Iterator[Row]:
    for number in (0, 2, 20):
        yield {"headers": number, **bench.copy(2_000_000, 100, headers=number)}


def kept(bench: Bench) -> Iterator[Row]:
    for codec in CODECS:
        yield {"codec": codec, **bench.copy(3_000_000, 100, codec=codec)}


def changed(bench: Bench) -> Iterator[Row]:
    for codec in CODECS[1:]:
        yield {"from": "none", "to": codec, **bench.copy(3_000_000, 100, Isthmus(options={"compression": codec}))}


def rules(bench: Bench) -> Iterator[Row]:
    (bench.scratch / "bench_rule.py").write_text(USER_RULE)
    variants: dict[str, dict[str, object]] = {
        "none (passes unopened)": {"headers": "off"},
        "offset header": {},
        "offset header and a user's Arrow rule": {"rules": ["bench_rule:keep_all"]},
    }
    for codec in ("none", "lz4"):
        for name, options in variants.items():
            system = Isthmus(options=options, python_path=bench.scratch)
            yield {"rules": name, "codec": codec, **bench.copy(3_000_000, 100, system, codec=codec)}


def tasks(bench: Bench) -> Iterator[Row]:
    for master, options in {"local[1]": {"tasks": 1}, "local[2]": {"tasks": 2}}.items():
        system = Isthmus(options=dict(options), spark={"spark.master": master})
        yield {"spark": master, **bench.copy(3_000_000, 100, system)}
    cluster = bench.box.spark(workers=2)
    try:
        system = Isthmus(
            options={"tasks": 2}, spark={"spark.master": cluster.master_url, "spark.executor.memory": "512m"}
        )
        yield {"spark": "standalone, two workers", **bench.copy(3_000_000, 100, system)}
    finally:
        cluster.stop()


def chase(bench: Bench) -> Iterator[Row]:
    """Far behind: memory must be flat to the end. Compared are the tenths of the way."""
    size = 1000
    count = CHASE_BYTES // size
    topic = bench.fill(count, size)
    task = bench.task(topic)
    seen: list[tuple[float, float]] = []
    row = measure.throughput(Isthmus(), task, count, size, 1800, watch=seen)
    marks = [seen[int((len(seen) - 1) * tenth / 10)] for tenth in range(1, 11)]
    yield {
        "bytes": count * size,
        **{field: row[field] for field in KEPT_FIELDS},
        "pss_mib_at_each_tenth": [round(mib) for _, mib in marks],
    }


def distance(bench: Bench) -> Iterator[Row]:
    """The destination is far away; the replicator stands beside the source."""
    yield from _far(bench, 0.0, {1: 60_000, 6: 300_000})


def loss(bench: Bench) -> Iterator[Row]:
    """As far away, over a line that loses packets."""
    yield from _far(bench, LOSS, {1: 8_000, 6: 20_000})


def _far(bench: Bench, lost: float, counts: dict[int, int]) -> Iterator[Row]:
    competitors: list[tuple[str, System]] = [
        ("isthmus, defaults", Isthmus()),
        ("mirrormaker2, defaults", MirrorMaker(tuned=False)),
        ("mirrormaker2, tuned", MirrorMaker()),
    ]
    far = bench.box.kafka(f"far{int(lost * 100)}", fast_start=False)
    way = Distance(far, ROUND_TRIP, lost)
    try:
        for number, count in counts.items():
            topic = bench.fill(count, 1000, partitions=number)
            for name, system in competitors:
                task = dataclasses.replace(bench.task(topic, west=far), west_address=way.bootstrap)
                began = time.monotonic()
                row = measure.throughput(system, task, count, 1000, 300, number)
                # Over a slow line all of it may become visible at once: then only the time to the end says something.
                fields = ("peak_pss_mib", "start_to_first_s") if lost else KEPT_FIELDS
                yield {
                    "system": name,
                    "round_trip_ms": ROUND_TRIP * 1000,
                    "loss": lost,
                    "partitions": number,
                    "records": count,
                    **{field: row[field] for field in fields},
                    "seconds": round(time.monotonic() - began),
                }
    finally:
        way.close()
        bench.box.remove(far.name)


SWEEPS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    sweep.__name__: sweep
    for sweep in (start, partitions, idle, sizes, headers, kept, changed, rules, tasks, distance, loss, chase)
}


def scale(about: dict[str, Any], only: list[str] | None) -> None:
    """Run the sweeps; what was found before of others is kept."""
    import json

    path = KEPT / "scale.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with Sandbox() as box, tempfile.TemporaryDirectory() as scratch:
        bench = Bench(box, Path(scratch))
        for name in only or SWEEPS:
            began = time.monotonic()
            rows = []
            for row in SWEEPS[name](bench):
                rows.append(row)
                say({"sweep": name, **row})
                found[name] = {**about, "seconds": round(time.monotonic() - began), "rows": rows}
                save(path, found)
    console.print(f"rows are in {path}")
