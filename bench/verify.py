"""How fast `isthmus verify` compares, in pairs of records a second, and what it takes; with a Spark that runs already.

Each row is the median of some rounds. A pair counts once, though it is read twice. The brokers share the machine's cores.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.compare import KEPT, console, save, say
from bench.load import create, delete_all, fill
from bench.meter import Meter, cpu_seconds
from bench.systems import Isthmus, Task
from isthmus.config import load
from isthmus.engine.session import Spark, cores
from isthmus.recovery.verify import verify
from isthmus.sandbox import KafkaSite, Sandbox

ROUNDS = 3
#: Records, bytes of each, partitions, codec.
PAYLOADS = (
    (2_000_000, 100, 6, "none"),
    (12_000_000, 100, 6, "none"),
    (3_000_000, 100, 1, "none"),
    (3_000_000, 100, 6, "lz4"),
    (400_000, 1000, 6, "none"),
)

Row = dict[str, Any]


def measure(about: dict[str, Any]) -> None:
    """Run it all; the rows are kept."""
    rows: list[Row] = []
    with Sandbox() as box, tempfile.TemporaryDirectory() as scratch:
        east, west = box.start_all(["east", "west"], fast_start=False)
        for number, payload in enumerate(PAYLOADS):
            row = _row(east, west, Path(scratch), number, *payload)
            rows.append(row)
            say(row)
            save(KEPT / "verify.json", {**about, "cores": cores(), "rows": rows})
    console.print(f"rows are in {KEPT / 'verify.json'}")


def _row(
    east: KafkaSite, west: KafkaSite, scratch: Path, number: int, count: int, size: int, partitions: int, codec: str
) -> Row:
    topic = f"verify-{number}"
    for site in (east, west):
        delete_all(site.bootstrap)
    create(east.bootstrap, topic, partitions, {"retention.ms": "-1"})
    fill(east.bootstrap, topic, partitions, count, size, codec)
    path = Isthmus().write(Task(east, west, topic, codec, scratch, f"verify-{number}"))
    config = load(path)
    (link,) = config.links
    command = [sys.executable, "-m", "isthmus.cli", "run", link, "--until-caught-up", "--config", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    spark = Spark(config.spark_options(link), cores())
    # Spark's Java process and its Python workers; what stays here only waits for them.
    meter = Meter(spark.context()._gateway.proc.pid, 0.2)
    brokers = [broker.pid for site in (east, west) for broker in site.brokers if broker.pid is not None]
    rounds: list[Row] = []
    try:
        for _ in range(ROUNDS):
            cpu, broker_cpu, began = meter.now(), cpu_seconds(brokers), time.monotonic()
            report = verify(config, link, spark=spark)
            seconds = time.monotonic() - began
            assert report.clean, report.verdict
            assert report.totals["compared"] == count, report.verdict
            rounds.append(
                {
                    "pairs_per_s": round(count / seconds),
                    "mb_per_s": round(report.bytes / seconds / 1e6, 1),
                    "seconds": round(seconds, 2),
                    "cpu_us_per_pair": round((meter.now() - cpu) / count * 1e6, 3),
                    "broker_cpu_us_per_pair": round((cpu_seconds(brokers) - broker_cpu) / count * 1e6, 3),
                }
            )
    finally:
        meter.stop()
        spark.stop()
    medians = {name: median(each[name] for each in rounds) for name in rounds[0]}
    described = {"records": count, "bytes": size, "partitions": partitions, "codec": codec}
    return {**described, **medians, "peak_pss_mib": round(meter.peak_pss / 2**20)}
