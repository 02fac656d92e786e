"""Records <-> Arrow, without touching a record from Python.

Invariant: the round trip is exact, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from isthmus.records.arrow_in import NotRecordsError, from_arrow
from isthmus.records.arrow_out import to_arrow
from isthmus.records.arrow_schema import SCHEMA
from isthmus.records.model import read_only
from isthmus.records.read import Fetched, Reader

__all__ = ["SCHEMA", "NotRecordsError", "decode", "from_arrow", "to_arrow"]


def decode(
    data: bytes | bytearray | memoryview,
    *,
    topic: str,
    partition: int,
    position: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    reader: Reader | None = None,
) -> Iterator[Any]:
    """The records of fetched bytes, some thousands in each Arrow record batch.

    Who decodes often passes a ``reader`` of their own, whose memory is then used again.

    Raises the ``PartitionFault`` of data that cannot be read, after everything before it was given.
    """
    fetched = Fetched(topic, partition, position, read_only(np.frombuffer(data, np.uint8)), aborted)
    for group in (reader or Reader(skip_corrupt=False)).groups(fetched):
        if group.records is not None and len(group.records):
            yield to_arrow(group.records)
        if group.fault is not None:
            raise group.fault
