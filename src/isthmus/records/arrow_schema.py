"""What records look like as an Arrow batch.

Invariant: nothing of a record is lost: null and empty differ, headers keep their order and repeats, and
keys of headers are bytes because nothing forces them to be text.

    offset     int64               the source offset
    timestamp  int64               milliseconds, -1 for none
    key        binary              may be null
    value      binary              may be null
    headers    list<struct<key: binary not null, value: binary>>

The schema's metadata holds ``topic`` and ``partition``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", HEADER, nullable=False)), nullable=False),
    ]
)


def schema_of(topic: str, partition: int) -> Any:
    """The schema of records that come from one partition."""
    return SCHEMA.with_metadata({"topic": topic, "partition": str(partition)})
