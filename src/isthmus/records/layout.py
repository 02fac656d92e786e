"""The layout of a record batch, format v2: where each field stands.

Invariant: every number about the wire format that more than one file needs is written here once.

    batch  = base_offset i64, length i32, leader_epoch i32, magic i8, crc u32,
             attributes i16, last_offset_delta i32, base_timestamp i64, max_timestamp i64,
             producer_id i64, producer_epoch i16, base_sequence i32, count i32, records
    record = length, attributes i8, timestamp_delta, offset_delta, key_length, key,
             value_length, value, header_count, headers           (numbers are zigzag varints)
    header = key_length, key, value_length, value

``length`` counts from ``leader_epoch`` on; ``crc`` covers everything from ``attributes`` on; with a
codec set in ``attributes``, everything from ``records`` on is compressed.
"""

from __future__ import annotations

BASE_OFFSET = 0
LENGTH = 8
LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
COUNT = 57
RECORDS = 61

#: ``length`` does not count ``base_offset`` and itself.
BEFORE_LENGTH_COUNTS = LEADER_EPOCH
#: The smallest ``length``: a batch without any record.
LEAST_LENGTH = RECORDS - BEFORE_LENGTH_COUNTS
#: The smallest size field of a message in format v0.
LEAST_OLD_LENGTH = 14
#: No broker lets a batch grow near this; a larger length is damage.
ABSURD_LENGTH = 1 << 30
#: Seven numbers of one byte each: nothing in a record is optional.
LEAST_RECORD = 7

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
