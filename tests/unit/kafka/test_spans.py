"""Where batches end and which of them begin before an offset, by what they say of themselves; batches made by another codec."""

from __future__ import annotations

from kafka.record.default_records import DefaultRecordBatchBuilder

from isthmus.kafka.fetch import end_of, size_before


def batch(first: int, count: int) -> bytes:
    """So many records from an offset on."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number in range(count):
        builder.append(number, timestamp=1, key=b"k", value=b"v", headers=[])
    made = bytearray(builder.build())
    made[:8] = first.to_bytes(8, "big")  # a broker sets it, and the checksum leaves it out
    return bytes(made)


def test_batches_before_an_offset() -> None:
    first, second = batch(10, 3), batch(20, 5)
    data = first + second
    assert size_before(data, 10) == 0
    assert size_before(data, 11) == len(first), "a batch comes whole"
    assert size_before(data, 20) == len(first)
    assert size_before(data, 21) == size_before(data, 1000) == len(data)
    assert size_before(b"", 5) == 0


def test_half_a_batch_is_none() -> None:
    first, second = batch(10, 3), batch(20, 5)
    cut = first + second[:-1]
    assert size_before(cut, 1000) == len(first)
    assert end_of(cut, 10) == 13
    assert end_of(first + second, 10) == 25
    assert end_of(second[:40], 20) == 20
