"""``make bench``: our link and its peers, alternating, in one run; a table, JSON and a plot.

python -m bench            the whole comparison (about 25 minutes)
python -m bench --quick    fewer records and rounds (under 5 minutes)
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import measure
from bench.load import create, delete_all, fill
from bench.plot import bars
from bench.systems import Isthmus, MirrorMaker, RedpandaConnect, System, Task
from isthmus.records.warm import warm
from isthmus.sandbox import Sandbox

ROOT = Path(__file__).resolve().parent
console = Console(highlight=False)


def systems() -> list[System]:
    found: list[System] = [
        Isthmus("exactly-once"),
        MirrorMaker("at-least-once"),
        MirrorMaker("exactly-once"),
        Isthmus("at-least-once"),
    ]
    if RedpandaConnect.available():
        found.append(RedpandaConnect())
    return found


def commit() -> str:
    try:
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = 1 if quick else 3
    payloads = {100: 400_000 if quick else 3_000_000, 1024: 100_000 if quick else 700_000}
    codecs = ["none"] if quick else ["none", "lz4"]
    chosen = systems()[:3] if quick else systems()
    rows: list[dict[str, Any]] = []
    warm()
    number = 0
    with Sandbox() as box, tempfile.TemporaryDirectory() as scratch:
        east, west = box.start_all(["east", "west"], fast_start=False)
        for size, count in payloads.items():
            for codec in codecs:
                topic = f"bench-{size}-{codec}"
                delete_all(east.bootstrap)
                create(east.bootstrap, topic, measure.PARTITIONS)
                fill(east.bootstrap, topic, measure.PARTITIONS, count, size, codec)
                for turn in range(rounds):
                    for system in chosen:
                        number += 1
                        task = Task(east, west, topic, codec, Path(scratch), f"{number}")
                        row = measure.throughput(system, task, count, size) | {"round": turn + 1, "latency_ms": None}
                        rows.append(row)
                        say(row)
        for turn in range(rounds):
            for system in chosen:
                number += 1
                task = Task(east, west, f"latency-{number}", "none", Path(scratch), f"{number}")
                found = measure.latency(system, task, 10 if quick else 30, 100)
                say({"system": system.name, "delivery": system.delivery, **found})
                for row in rows:
                    same = (row["system"], row["delivery"], row["round"]) == (system.name, system.delivery, turn + 1)
                    if same:
                        row["latency_ms"] = found
    return rows


def say(row: dict[str, Any]) -> None:
    words = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items() if v is not None)
    console.print(words, soft_wrap=True)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the rounds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["payload_bytes"], row["compression"], row["system"], row["delivery"]), []).append(row)
    result = []
    for (size, codec, system, delivery), some in groups.items():
        late = [r["latency_ms"] for r in some if r["latency_ms"]]
        result.append(
            {
                "payload": size,
                "compression": codec,
                "system": system,
                "delivery": delivery,
                "records/s": round(median(r["records_per_s"] for r in some)),
                "MB/s": round(median(r["mb_per_s"] for r in some), 1),
                "CPU us/record": round(median(r["cpu_us_per_record"] for r in some), 2),
                "peak MiB": round(median(r["peak_rss_mib"] for r in some)),
                "first record s": round(median(r["start_to_first_s"] for r in some), 1),
                "p50 ms": round(median(x["p50"] for x in late), 1) if late else None,
                "p99 ms": round(median(x["p99"] for x in late), 1) if late else None,
                "max ms": round(median(x["max"] for x in late), 1) if late else None,
            }
        )
    return result


def show(table_rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in table_rows[0]:
        table.add_column(name, justify="left" if name in ("system", "delivery", "compression") else "right")
    for row in table_rows:
        table.add_row(
            *("-" if v is None else f"{v:,}" if isinstance(v, (int, float)) else str(v) for v in row.values())
        )
    console.print(table)
    for size in sorted({row["payload"] for row in table_rows}):
        for codec in sorted({row["compression"] for row in table_rows}):
            cell = {
                (r["system"], r["delivery"]): r for r in table_rows if (r["payload"], r["compression"]) == (size, codec)
            }
            ours = cell.get(("isthmus", "exactly-once"))
            if ours is None:
                continue
            for (system, delivery), peer in cell.items():
                if system != "isthmus":
                    speed = ours["records/s"] / peer["records/s"]
                    cpu = peer["CPU us/record"] / max(0.01, ours["CPU us/record"])
                    console.print(
                        f"{size} B {codec}: {speed:.2f}x the records/s of {system} {delivery}, 1/{cpu:.1f} of its CPU"
                    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "latest.json")
    options = parser.parse_args()
    began = time.monotonic()
    rows = run(options.quick)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")
    table_rows = summary(rows)
    show(table_rows)
    title = f"records a second, {platform.machine()}, {commit()}"
    if not options.quick:
        bars(table_rows, ROOT.parent / "docs" / "throughput.svg", title)
    console.print(f"took {time.monotonic() - began:.0f} s; rows are in {options.output.relative_to(ROOT.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
