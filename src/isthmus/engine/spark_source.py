"""Leases as a Spark data source: planning a micro-batch deals a lease, reading one of its partitions carries it out.

    latestOffset   "there is a next lease" (or not: paused before the start, or stopped)
    partitions     deals it: one input partition a slot (plan.py)
    read           the task: copies under the lease (copy.py), then yields one row that says what it did

Spark's offset is only a counter of leases dealt by this query. Where copying goes on is kept at the destination
(state.py), so the checkpoint directory may be lost at any time.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from isthmus.engine.job import Job
from isthmus.errors import IsthmusError, TakenOver

# Spark unpickles the source in several short-lived processes that neither plan nor copy: what those need is imported
# only where it is used.
if TYPE_CHECKING:
    import pyarrow as pa

    from isthmus.engine.lease import Lease
    from isthmus.engine.plan import Planner

SCHEMA = "lease long, slot int, records long, bytes long, transactions long, seconds double, faults int, ended string"
# Typed errors cross Spark as text: this word, then the error as JSON on the same line.
ERROR_MARK = "ISTHMUS-ERROR "
# How often to look whether a run that may not deal leases now may deal again.
IDLE_SECONDS = 0.5


class EngineError(Exception):
    """Carries an IsthmusError through Spark's text of an exception."""

    def __init__(self, error: IsthmusError) -> None:
        super().__init__(ERROR_MARK + json.dumps(error.to_json(), default=str))


class LeasePartition(InputPartition):  # type: ignore[misc]
    def __init__(self, lease: Lease) -> None:
        self.lease = lease


class LeaseReader(DataSourceStreamReader):  # type: ignore[misc]
    """Planner side (latestOffset, partitions) and task side (read) of one run of one link."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_job": self._job, "_planner": None}  # the reader travels to tasks; connections do not

    def _planning(self) -> Planner:
        if self._planner is None:
            from isthmus.engine.plan import Planner

            self._planner = Planner(self._job)
        return self._planner

    def initialOffset(self) -> dict[str, int]:
        return {"lease": 0}

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:
        try:
            control = self._planning().control()
        except IsthmusError as error:
            raise EngineError(error) from error
        if control.paused or control.stop == self._job.run:
            time.sleep(IDLE_SECONDS)
            return start
        return {"lease": start["lease"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        try:
            leases = self._planning().plan()
        except IsthmusError as error:
            raise EngineError(error) from error
        if not any(lease.assignments for lease in leases):
            time.sleep(IDLE_SECONDS)  # nothing to copy yet: look again soon
        return [LeasePartition(lease) for lease in leases if lease.assignments]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from isthmus.engine.copy import Copier

        if threading.current_thread() is threading.main_thread():
            # A terminal's Ctrl-C reaches this process too, but only the driver decides how a run ends.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        lease: Lease = partition.lease
        ended = "over"
        parent = os.getppid()
        try:
            result = Copier(lease, should_stop=lambda: os.getppid() != parent).run()
            if os.getppid() != parent:
                # Nobody could end this worker any more; the executor, if there is one, tries again with another.
                raise ChildProcessError("the Python daemon of this worker has died")
        except TakenOver as error:
            # Not a failure of this task: retrying it would only disturb whoever has the link now. The planner looks
            # at the claim before it deals again and raises there if the link is really lost.
            ended, result = error.message, None
        except IsthmusError as error:
            raise EngineError(error) from error
        columns: dict[str, tuple[Any, pa.DataType]] = {
            "lease": (lease.number, pa.int64()),
            "slot": (lease.slot, pa.int32()),
            "records": (result.records if result else 0, pa.int64()),
            "bytes": (result.bytes if result else 0, pa.int64()),
            "transactions": (result.transactions if result else 0, pa.int64()),
            "seconds": (result.seconds if result else 0.0, pa.float64()),
            "faults": (len(result.faults) if result else 0, pa.int32()),
            "ended": (ended, pa.string()),
        }
        yield pa.record_batch({name: pa.array([value], kind) for name, (value, kind) in columns.items()})

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: progress was committed with the records."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


def lease_source(job: Job) -> type[DataSource]:
    """A data source class for this job.

    The job is part of the class, not an option: options show up in plans and logs, and a job holds secrets.
    """

    class LeaseSource(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return f"isthmus-{job.link.name}"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return LeaseReader(job)

    return LeaseSource
