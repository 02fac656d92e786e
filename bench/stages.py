"""Where a copy task's CPU goes: one task in this process, sampled a thousand times a CPU second.

A sample belongs to the innermost frame whose file is in the table below. A compiled kernel has no frame of its own: its time
is that of the function that called it.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from isthmus.config import load
from isthmus.engine.copy import Copier
from isthmus.engine.plan import Job, Planner

SAMPLE_SECONDS = 0.001
# (end of the file's path, or a part of it; function or ""; what it is called), the first that fits counts
STAGES = [
    ("isthmus/kafka/transport.py", "_receive", "receive bytes"),
    ("isthmus/kafka/transport.py", "write", "send bytes"),
    ("kafka/net/transport.py", "", "send bytes"),
    ("isthmus/records/checksum.py", "", "checksums"),
    ("isthmus/records/outgoing.py", "", "checksums"),
    ("isthmus/records/compression.py", "", "compression"),
    ("isthmus/records/", "", "rewrite records"),
    ("isthmus/rules/", "", "rewrite records"),
    ("isthmus/kafka/fetch.py", "", "fetch requests"),
    ("isthmus/kafka/produce.py", "", "produce requests and commits"),
    ("isthmus/engine/offset_map.py", "", "offset map"),
    ("isthmus/engine/", "", "copy task"),
    ("kafka/protocol/", "", "encode and decode requests"),
    ("kafka/net/", "", "event loop"),
]


def _stage(frame: FrameType | None) -> str:
    while frame is not None:
        name, function = frame.f_code.co_filename, frame.f_code.co_name
        for part, wanted, stage in STAGES:
            if part in name and wanted in ("", function):
                return stage
        frame = frame.f_back
    return "other"


def measure(config: Path, count: int) -> dict[str, Any]:
    """Copy a filled topic with one task until ``count`` records are over; CPU by stage."""
    loaded = load(config)
    link = next(iter(loaded.links.values()))
    job = Job(link, loaded.sites[link.source], loaded.sites[link.target], 1)
    planner = Planner(job)
    try:
        lease = planner.plan()[0]
    finally:
        planner.close()
    samples: Counter[str] = Counter()
    copier = Copier(lease, lambda: copier._totals.records >= count)
    signal.signal(signal.SIGPROF, lambda _, frame: samples.update([_stage(frame)]))
    cpu, began = time.process_time(), time.monotonic()
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        result = copier.run()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    cpu, seconds = time.process_time() - cpu, time.monotonic() - began
    total = max(1, sum(samples.values()))
    return {
        "records_per_s": result.records / seconds,
        "cpu_us_per_record": cpu / result.records * 1e6,
        "stages": {
            stage: {"share": n / total, "cpu_us_per_record": n / total * cpu / result.records * 1e6}
            for stage, n in samples.most_common()
        },
    }


if __name__ == "__main__":
    json.dump(measure(Path(sys.argv[1]), int(sys.argv[2])), sys.stdout)
