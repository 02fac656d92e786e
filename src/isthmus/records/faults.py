"""What to tell about data that cannot be copied.

Invariant: each message says which partition and offset, what was expected and found, and what to do.
"""

from __future__ import annotations

from isthmus.errors import CorruptBatch, OldFormat, PartitionFault, RecordTooLarge, RuleFailed
from isthmus.records import layout, scan
from isthmus.records.checksum import crc32c
from isthmus.records.index import WHAT_IS_WRONG
from isthmus.records.model import Bytes, Longs, Records

_LEAVE_OUT = (
    "Check the source broker's disk and its other replicas. To go on without this batch, set"
    " `on_corrupt: skip` on the link, or move past it with `isthmus reset`."
)


def _corrupt(topic: str, partition: int, base_offset: int, what: str) -> CorruptBatch:
    return CorruptBatch(
        f"{topic}-{partition}: the batch at offset {base_offset} is corrupt: {what}. {_LEAVE_OUT}",
        topic=topic,
        partition=partition,
        offset=base_offset,
    )


def bad_batch(topic: str, partition: int, data: Bytes, row: Longs) -> PartitionFault:
    """Why the scan refused a batch."""
    at, end, base_offset, verdict = (int(row[column]) for column in (scan.AT, scan.END, scan.BASE_OFFSET, scan.VERDICT))
    magic = int(data[at + layout.MAGIC])
    if verdict == scan.OLD_FORMAT:
        return OldFormat(
            f"{topic}-{partition}: the batch at offset {base_offset} is in message format v{magic}; only v2"
            " (Kafka 0.11 and later) can be copied. Let the source rewrite the topic, for example by copying"
            " it with a current producer, or leave such batches out with `on_corrupt: skip`.",
            topic=topic,
            partition=partition,
            offset=base_offset,
        )
    if verdict == scan.UNKNOWN_FORMAT:
        what = f"its format is v{magic}, expected v2"
    elif verdict == scan.BAD_LENGTH:
        what = (
            f"its length is {end - at - layout.BEFORE_LENGTH_COUNTS}, expected {layout.LEAST_LENGTH} to"
            f" {layout.ABSURD_LENGTH}, so what follows cannot be found and cannot be skipped either"
        )
    elif verdict == scan.BAD_CHECKSUM:
        found = crc32c(data[at + layout.ATTRIBUTES : end])
        what = f"its checksum is {int(row[scan.CHECKSUM]):#010x}, its bytes give {found:#010x}"
    else:
        what = (
            f"its fields contradict each other or the batch before: last offset {int(row[scan.LAST_OFFSET])},"
            f" {int(row[scan.COUNT])} records, attributes {int(row[scan.ATTRIBUTES]):#06x}"
        )
    return _corrupt(topic, partition, base_offset, what)


def bad_record(topic: str, partition: int, base_offset: int, count: int, which: int, code: int) -> CorruptBatch:
    """Why the index refused a batch whose checksum is right."""
    what = f"record {which + 1} of {count}: {WHAT_IS_WRONG[code]}"
    return _corrupt(topic, partition, base_offset, what)


def bad_compression(topic: str, partition: int, base_offset: int, codec: int, why: str) -> CorruptBatch:
    """Why a batch did not inflate."""
    what = f"its {layout.CODECS[codec]} compressed records cannot be read: {why}"
    return _corrupt(topic, partition, base_offset, what)


def too_large(records: Records, offset: int, size: int, limit: int) -> RecordTooLarge:
    """A record that does not fit, even alone in its batch."""
    return RecordTooLarge(
        f"{records.topic}-{records.partition}: the record at offset {offset} needs a batch of {size} bytes,"
        f" and the destination topic takes {limit}. Raise `max.message.bytes` of the destination topic to at"
        f" least {size}.",
        topic=records.topic,
        partition=records.partition,
        offset=offset,
    )


def rule_failed(rule: str, records: Records, why: str) -> RuleFailed:
    """A rule that raised, or returned something else than records. Nothing of the batch was written."""
    first, last = int(records.offset[0]), int(records.offset[-1])
    return RuleFailed(
        f"{records.topic}-{records.partition}: rule {rule} failed on the {len(records)} records of"
        f" offsets {first} to {last}: {why}. Nothing of them was written; correct the rule, then go on.",
        topic=records.topic,
        partition=records.partition,
        offset=first,
    )
