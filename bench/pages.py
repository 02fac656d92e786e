"""docs/performance.md, made of what the last runs left in bench/results: no figure in it is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.compare import KEPT, ROOT, ratios, summary
from bench.plot import bars, curve

DOCS = ROOT.parent / "docs"
Row = dict[str, Any]

INTRODUCTION = """\
# Performance

<!-- Made by `python -m bench.pages` from bench/results. Do not edit. -->

`make bench` compares the link, exactly-once, with MirrorMaker 2 (from its published jars, with large fetches and batches) on the same
brokers, data and machine, alternating, in one run; `make bench QUICK=1` is a glance, `make bench SCALE=1` shows how cost grows. Brokers,
replicator and measurement share the machine. Rates run from the first record that is visible at the destination to the last, CPU is that of all processes of the
replicator, memory is the peak of their proportional set sizes together (a page that processes share counts once), latency is from
the producer's call at the source to a stock consumer of committed records at the destination, at 1,000 records a second.
"""

SWEEPS = {
    "start": (
        "Start",
        "From the start of the command to the first record at the destination, kernels and class archive made (`make setup`), each system in turn.",
    ),
    "partitions": (
        "Partitions",
        "The same 1.5 M records of 100 B spread over more partitions. More partitions mean smaller batches: with 1,000 "
        "of them a fetch brings a few records of each.",
    ),
    "idle": ("Idle partitions", "Nothing is written; cores used by all processes of the replicator."),
    "sizes": ("Record size", "400 MB (at most 3 M records), uncompressed."),
    "headers": ("Headers", "Records of 100 B that already carry this many headers."),
    "kept": ("Compression, kept", "Each batch is decompressed, rewritten and compressed again with its own codec."),
    "changed": ("Compression, changed", "Uncompressed at the source, compressed on the way."),
    "rules": ("Rules", "With no rule a batch passes unopened."),
    "tasks": (
        "Tasks",
        "On two cores that also run both brokers, two tasks are all there is room for. On a standalone cluster CPU and memory are those of the "
        "driver alone: the executors are the cluster's.",
    ),
    "distance": (
        "Distance",
        "The destination is 50 ms (round trip) away behind a proxy that holds every byte; the replicator stands beside the source. One run a row.",
    ),
    "loss": (
        "Distance and loss",
        "A proxy cannot lose packets: 1% loss is imitated by the rate that it leaves to a TCP connection (about 0.36 MB/s, each way), "
        "so what counts here is how many connections carry data. Seconds are those from the start of the command until all was there; one run a row.",
    ),
    "chase": ("A long chase", "Far behind at the start; memory at each tenth of the way."),
}


def table(rows: list[Row]) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(n.replace("_", " ") for n in names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(_cell, value)) if isinstance(value, list) else str(value)


def _read(name: str) -> Any:
    path = KEPT / name
    return json.loads(path.read_text()) if path.exists() else None


def comparison(rows: list[Row], details: Row) -> list[str]:
    found = summary(rows)
    rounds = max(row["round"] for row in rows)
    parts = [
        "## Side by side",
        f"Medians of {rounds} rounds, 6 partitions, commit {details['commit']}; the run took {details['seconds'] // 60} minutes.",
        "![records a second](throughput.svg)",
        table(found),
        "Ours, exactly-once, in the same run:",
        "\n".join(f"- {line}" for line in ratios(found)),
    ]
    if details.get("idle"):
        idle = details["idle"]
        parts.append(f"{idle['idle_partitions']:,} idle partitions cost {idle['cores'] * 100:.1f}% of a core.")
    return parts


def limits(details: Row) -> list[str]:
    rows = []
    for found in details.get("limits", []):
        for way in ("reading", "writing"):
            one = found[way]
            rows.append({"bytes": found["payload_bytes"], "only": way, **one})
    if not rows:
        return []
    words = []
    for size in sorted({row["bytes"] for row in rows}):
        broker = sum(row["broker_cpu_us_per_record"] for row in rows if row["bytes"] == size)
        words.append(f"- {size} B: {broker:.2f} us of broker CPU a record, so two cores could not move more than "
                     f"{2 / broker * 1e6:,.0f} records/s, whoever moves them.")  # fmt: skip
    return [
        "## How far from the limit",
        "What the brokers alone take for the same bytes: reading only (what is fetched is thrown away) and writing only (batches were made "
        "ready before).",
        table(rows),
        "\n".join(words),
    ]


def stages(details: Row) -> list[str]:
    parts = []
    for size, found in details.get("stages", {}).items():
        rows = [
            {"stage": name, "share": f"{one['share']:.0%}", "CPU us a record": round(one["cpu_us_per_record"], 3)}
            for name, one in found["stages"].items()
        ]
        parts += [
            f"{size} B: {found['cpu_us_per_record']:.2f} us a record, {found['records_per_s']:,.0f} records/s from one task.",
            table(rows),
        ]
    if not parts:
        return []
    return ["## Where the time goes", "CPU of one task in a process of its own, sampled every millisecond.", *parts]


def growth(scale: dict[str, Row]) -> list[str]:
    parts = ["## How cost grows"] if scale else []
    for name, (title, words) in SWEEPS.items():
        found = scale.get(name)
        if not found or not found["rows"]:
            continue
        parts += [f"### {title}", words, table(found["rows"]), f"Commit {found['commit']}; took {found['seconds']} s."]
        if name == "sizes":
            points = [(row["bytes"], row["mb_per_s"]) for row in found["rows"]]
            curve(points, DOCS / "sizes.svg", "MB/s by record size", "bytes a record", "MB/s")
            parts.append("![MB/s by record size](sizes.svg)")
        if name == "partitions":
            points = [(row["partitions"], row["records_per_s"]) for row in found["rows"]]
            curve(points, DOCS / "partitions.svg", "records/s by partitions, 100 B", "partitions", "records/s")
            parts.append("![records/s by partitions](partitions.svg)")
        if name == "chase":
            points = [(tenth + 1, mib) for tenth, mib in enumerate(found["rows"][0]["pss_mib_at_each_tenth"])]
            curve(points, DOCS / "chase.svg", "memory on the way, MiB", "tenth of the way", "MiB", logarithmic=False)
            parts.append("![memory on the way](chase.svg)")
    return parts


def control() -> list[str]:
    parts = []
    for path in sorted(KEPT.glob("control-*.json")):
        parts.append(table(json.loads(path.read_text())))
    return ["### Control plane", *parts] if parts else []


def write(path: Path = DOCS / "performance.md") -> None:
    rows, details, scale = _read("latest.json"), _read("details.json"), _read("scale.json")
    parts = [INTRODUCTION]
    if rows and details:
        parts += comparison(rows, details) + limits(details) + stages(details)
        bars(summary(rows), DOCS / "throughput.svg", f"records a second ({details['commit']})")
    parts += growth(scale or {}) + control()
    notes = KEPT / "notes.md"
    if notes.exists():
        parts.append(notes.read_text())
    path.write_text("\n\n".join(part.strip() for part in parts) + "\n")


if __name__ == "__main__":
    write()
