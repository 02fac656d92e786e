"""Which batches go together into one rewrite, and which one passes unopened.

Invariant: a group is a run of neighbours in the log with one codec, so order is kept whatever is done
with it. Rows that hold nothing to copy (control, aborted, empty, before the position) belong to the group
around them.

A batch may pass unopened when no rule looks at records and the destination would accept it as it is:
right codec, times of creation, no holes in its offsets, nothing before the position, not too large.
Small batches are worth opening all the same: a Produce request takes one batch a partition.
"""

from __future__ import annotations

from typing import Any

from isthmus.records import layout, scan
from isthmus.records.kernels_cache import kernel

#: Bytes of source that are rewritten in one go: enough to fill some outgoing batches. Between 1 and 8 MiB
#: it makes no difference that can be measured, so this bounds memory.
GROUP_BYTES = 4 << 20
#: Below this, copying an uncompressed batch into a larger one costs less than one more request.
SMALL = 64 << 10
#: The same for a compressed batch, which has to be inflated and compressed again.
SMALL_COMPRESSED = 8 << 10

KEEP_CODEC = -1
NOT_ALONE = -1


@kernel("UniTuple(int64, 4)(int64[:, ::1], int64, int64, boolean, int64, int64)")
def gather(
    table: Any, first: int, position: int, may_pass: bool, codec: int, max_bytes: int
) -> tuple[int, int, int, int]:
    """The group that starts at row ``first``, which is not a bad one.

    Returns the row after the group, how many batches of it hold data, the row of the only batch if that
    one passes unopened (or ``NOT_ALONE``), and how many records an uncompressed group can hold.
    """
    batches = 0
    size = 0
    capacity = 0
    alone = NOT_ALONE
    group_codec = 0
    row = first
    while row < len(table):
        verdict = table[row, scan.VERDICT]
        if verdict >= scan.BAD_LENGTH:
            break
        if verdict != scan.DATA:
            row += 1
            continue
        attributes = table[row, scan.ATTRIBUTES]
        count = table[row, scan.COUNT]
        batch_size = table[row, scan.END] - table[row, scan.AT]
        batch_codec = attributes & layout.CODEC_BITS
        small = SMALL if batch_codec == 0 else SMALL_COMPRESSED
        passes = (
            may_pass
            and codec in (KEEP_CODEC, batch_codec)
            and attributes & (layout.LOG_APPEND_TIME_BIT | layout.DELETE_HORIZON_BIT) == 0
            and count > 0
            and count == table[row, scan.LAST_OFFSET] - table[row, scan.BASE_OFFSET] + 1
            and table[row, scan.BASE_OFFSET] >= position
            and batch_size <= max_bytes
        )
        passes_large = passes and batch_size >= small
        if batches > 0 and (passes_large or batch_codec != group_codec or size + batch_size > GROUP_BYTES):
            break
        alone = row if passes and batches == 0 else NOT_ALONE
        batches += 1
        size += batch_size
        capacity += min(count, (table[row, scan.END] - table[row, scan.START]) // layout.LEAST_RECORD)
        group_codec = batch_codec
        row += 1
        if passes_large:
            break
    return row, batches, alone, capacity
