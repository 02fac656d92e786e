"""Side by side: our link and its peers on the same brokers and the same data, alternating, several rounds."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import measure
from bench.idle import idle_cost
from bench.limits import Limits
from bench.load import create, delete_all, fill
from bench.systems import Isthmus, MirrorMaker, RedpandaConnect, System, Task
from isthmus.sandbox import Sandbox

ROOT = Path(__file__).resolve().parent
console = Console(highlight=False)


def systems() -> list[System]:
    found: list[System] = [
        Isthmus("exactly-once"),
        MirrorMaker("at-least-once"),
        MirrorMaker("exactly-once"),
    ]
    if RedpandaConnect.available():
        found.append(RedpandaConnect())
    return found


def compare(quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(a row for each system, payload, codec and round; what else was found)."""
    rounds = 1 if quick else 3
    payloads = {100: 400_000 if quick else 3_000_000, 1024: 100_000 if quick else 700_000}
    codecs = ["none"] if quick else ["none", "lz4"]
    chosen = systems()
    rows: list[dict[str, Any]] = []
    details: dict[str, Any] = {"limits": [], "stages": {}}
    number = 0
    with Sandbox() as box, tempfile.TemporaryDirectory() as scratch:
        east, west = box.start_all(["east", "west"], fast_start=False)

        def task(topic: str, codec: str) -> Task:
            nonlocal number
            number += 1
            return Task(east, west, topic, codec, Path(scratch), f"{number}")

        for size, count in payloads.items():
            for codec in codecs:
                topic = f"bench-{size}-{codec}"
                delete_all(east.bootstrap)
                create(east.bootstrap, topic, measure.PARTITIONS)
                fill(east.bootstrap, topic, measure.PARTITIONS, count, size, codec)
                for turn in range(rounds):
                    # Each round starts with another system, so that none always comes first or last.
                    for system in chosen[turn % len(chosen) :] + chosen[: turn % len(chosen)]:
                        row = measure.throughput(system, task(topic, codec), count, size)
                        rows.append(row | {"round": turn + 1, "latency_ms": None})
                        say(rows[-1])
                if codec == "none" and not quick:
                    config = Isthmus().write(task(topic, codec))
                    found = Limits(east, west, topic, measure.PARTITIONS, config).measure(count, size)
                    details["limits"].append(found)
                    details["stages"][size] = stages(task(topic, codec), count, measure.PARTITIONS)
                    say({"limits": found, "stages": details["stages"][size]})
        for turn in range(rounds):
            for system in chosen[turn % len(chosen) :] + chosen[: turn % len(chosen)]:
                found = measure.latency(system, task(f"latency-{number}", "none"), 10 if quick else 30, 100)
                say({"system": system.name, "delivery": system.delivery, **found})
                for row in rows:
                    if (row["system"], row["delivery"], row["round"]) == (system.name, system.delivery, turn + 1):
                        row["latency_ms"] = found
        if not quick:
            details["idle"] = idle_cost(Isthmus(), task("idle", "none"))
            say(details["idle"])
    return rows, details


def stages(task: Task, count: int, partitions: int) -> dict[str, Any]:
    """In a process of its own: sampling needs a main thread, and the link a fresh one."""
    delete_all(task.west.bootstrap)
    create(task.west.bootstrap, task.topic, partitions)
    made = subprocess.run(
        [sys.executable, "-m", "bench.stages", str(Isthmus().write(task)), str(count)],
        cwd=ROOT.parent,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def say(row: dict[str, Any]) -> None:
    words = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items() if v is not None)
    console.print(words, soft_wrap=True)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the rounds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["payload_bytes"], row["compression"], row["system"], row["delivery"]), []).append(row)
    result = []
    for (size, codec, system, delivery), some in sorted(groups.items()):
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
                "peak MiB": round(median(r["peak_pss_mib"] for r in some)),
                "first record s": round(median(r["start_to_first_s"] for r in some), 1),
                "p50 ms": round(median(x["p50"] for x in late), 1) if late else None,
                "p99 ms": round(median(x["p99"] for x in late), 1) if late else None,
                "max ms": round(median(x["max"] for x in late), 1) if late else None,
            }
        )
    return result


def ratios(table_rows: list[dict[str, Any]]) -> list[str]:
    """Ours with exactly-once against each peer."""
    lines = []
    cells: dict[tuple[int, str], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in table_rows:
        cells.setdefault((row["payload"], row["compression"]), {})[row["system"], row["delivery"]] = row
    for (size, codec), cell in cells.items():
        ours = cell.get(("isthmus", "exactly-once"))
        for (system, delivery), peer in cell.items():
            if ours is not None and system != "isthmus":
                speed = ours["records/s"] / peer["records/s"]
                cpu = peer["CPU us/record"] / max(0.01, ours["CPU us/record"])
                memory = ours["peak MiB"] / peer["peak MiB"]
                lines.append(
                    f"{size} B {codec}: {speed:.2f}x the records/s of {system} {delivery}, 1/{cpu:.1f} of its CPU, "
                    f"{memory:.2f} of its memory"
                )
    return lines


def show(table_rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in table_rows[0]:
        table.add_column(name, justify="left" if name in ("system", "delivery", "compression") else "right")
    for row in table_rows:
        table.add_row(
            *("-" if v is None else f"{v:,}" if isinstance(v, (int, float)) else str(v) for v in row.values())
        )
    console.print(table)


KEPT = ROOT / "results"


def save(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_plain(content), indent=1) + "\n")


def _plain(content: Any) -> Any:
    """What could not be measured is null: JSON has no word for "not a number"."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content
