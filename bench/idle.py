"""What a link costs that has nothing to do: 1,000 partitions in which nothing happens."""

from __future__ import annotations

import time
from typing import Any

from bench.load import create, delete_all
from bench.meter import Meter, cpu_seconds, tree
from bench.systems import System, Task, stop

IDLE_PARTITIONS = 1000
SETTLE_SECONDS, WATCH_SECONDS = 30.0, 30.0


def idle_cost(system: System, task: Task, partitions: int = IDLE_PARTITIONS) -> dict[str, Any]:
    """Cores used once all is quiet, over all processes of the replicator."""
    delete_all(task.east.bootstrap)
    delete_all(task.west.bootstrap)
    create(task.east.bootstrap, task.topic, partitions)
    process = system.start(task)
    meter = Meter(process.pid)
    try:
        time.sleep(SETTLE_SECONDS)
        began, cpu = time.monotonic(), cpu_seconds(tree(process.pid))
        time.sleep(WATCH_SECONDS)
        used = cpu_seconds(tree(process.pid)) - cpu
        seconds = time.monotonic() - began
    finally:
        meter.stop()
        stop(process)
    return {"idle_partitions": partitions, "cores": used / seconds, "peak_pss_mib": meter.peak_pss / 2**20}
