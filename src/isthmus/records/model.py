"""``Records``: a batch of records as columns over raw bytes.

Invariant: every place (start, length) lies inside ``data`` or ``tail``, because only ``index`` and
``from_arrow`` make them; kernels that come later trust columns and never trust bytes. All columns have
one length. Offsets ascend strictly.

A rule never changes what it was given (the type is not frozen only because making a frozen one
takes five times as long). It returns a copy made by ``with_columns`` in which some columns
were replaced:

- to drop records, ``dropped`` with ones;
- to add headers, a longer ``tail`` with ``tail_start`` and ``tail_count``: encoded headers that are
  written after a record's own;
- to change keys or values, new places in a new ``data``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item", bound=np.generic)
Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(slots=True)
class Records:
    """One column a field; row i is record i. Lengths of -1 mean null, which is not the same as empty."""

    topic: str
    partition: int
    data: Bytes
    offset: Longs
    timestamp: Longs
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    headers_start: Ints  # the first header, after the count
    headers_end: Ints
    headers_count: Ints
    dropped: Bytes  # 1: a rule has dropped the record
    tail: Bytes
    tail_start: Longs  # one more than records: row i's tail is tail[tail_start[i]:tail_start[i + 1]]
    tail_count: Ints

    def __len__(self) -> int:
        return len(self.offset)

    def with_columns(self, **columns: Any) -> Records:
        """A copy with other columns; ``data`` and ``tail`` become read-only as kernels expect them."""
        for name in ("data", "tail"):
            if name in columns:
                columns[name] = read_only(columns[name])
        return replace(self, **columns)


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """The same memory, not writable. Kernels are compiled for read-only input, which fetched bytes are."""
    view = array.view()
    view.flags.writeable = False
    return view


_USUAL = 1 << 16  # the records of a group of 4 MiB, if these have 64 bytes
_GIANT = 1 << 20
NO_BYTES = read_only(np.empty(0, np.uint8))


class Columns:
    """Reusable memory for the columns that ``index`` fills. Memory of a giant batch is given back."""

    def __init__(self) -> None:
        self._allocate(_USUAL)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self.longs = np.empty((2, capacity), np.int64)
        self.ints = np.empty((7, capacity), np.int32)
        # Never written. The system hands out zeros without touching them, so a batch that lies about its
        # number of records takes no memory.
        self._no = np.zeros(capacity, np.uint8)
        self._no_starts = np.zeros(capacity + 1, np.int64)
        self._no_counts = np.zeros(capacity, np.int32)

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` records; what the columns held is gone."""
        if not rows <= self.capacity <= max(rows, _GIANT):
            self._allocate(max(rows, _USUAL))

    def records(self, rows: int, data: Bytes, topic: str, partition: int) -> Records:
        """The first ``rows`` rows as records without tails, none dropped. Valid until the next index."""
        return Records(
            topic,
            partition,
            data,
            self.longs[0, :rows],
            self.longs[1, :rows],
            self.ints[0, :rows],
            self.ints[1, :rows],
            self.ints[2, :rows],
            self.ints[3, :rows],
            self.ints[4, :rows],
            self.ints[5, :rows],
            self.ints[6, :rows],
            self._no[:rows],
            NO_BYTES,
            self._no_starts[: rows + 1],
            self._no_counts[:rows],
        )


#: The columns in the order in which ``Records`` has them, after topic and partition.
COLUMN_NAMES = tuple(field.name for field in fields(Records))[2:]
