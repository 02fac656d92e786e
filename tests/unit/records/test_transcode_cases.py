"""The cases of ``feed`` that deserve a name."""

from __future__ import annotations

import pickle
import struct
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from batch_tools import (
    COMPRESS,
    HEAD,
    Rec,
    make,
    marker,
    read_plain,
    record_bytes,
    renumbered,
    reseal,
    seal,
    varint,
    with_offset_header,
)

from isthmus.errors import CorruptBatch, OldFormat, RecordTooLarge, RuleFailed
from isthmus.records import Copied, Records, Transcoder, compression, stamp
from isthmus.rules.offset_header import OffsetHeader

WITH_HEADER = (OffsetHeader("isthmus-offset"),)


def feed(data: bytes, rules: tuple = (), *, position: int = 0, aborted=(), max_bytes=1_048_588, **options) -> Copied:
    return Transcoder(rules, **options).feed(
        data, topic="orders", partition=3, position=position, aborted=aborted, max_bytes=max_bytes
    )


def written(copied: Copied) -> list[Rec]:
    records = []
    for batch in copied.batches:
        stamp(batch.payload, 1, 0, 0, False)
        records += read_plain(batch.payload.tobytes())
    return records


def recs(start: int, count: int, size: int = 20) -> list[Rec]:
    return [Rec(start + i, value=b"%08d" % i + b"v" * size) for i in range(count)]


# --- what is kept -------------------------------------------------------------------------------------


def test_nothing_in_nothing_out() -> None:
    copied = feed(b"", WITH_HEADER, position=17)
    assert (copied.batches, copied.next_offset, copied.fault) == ([], 17, None)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("rules", [(), WITH_HEADER])
def test_null_is_not_empty_and_bytes_need_not_be_text(codec: int, rules: tuple) -> None:
    headers = ((b"\xff\xfe", b"\x00"), (b"", None), (b"a", b""), (b"a", b"2"), (b"\xff\xfe", None))
    records = [
        Rec(0, 5, None, None, headers),
        Rec(1, 5, b"", b"", ()),
        Rec(2, 5, b"\xff", b"\x80\x81", headers[::-1]),
        Rec(3, 5, b"k", None),
        Rec(4, 5, None, b"v"),
    ]
    copied = feed(make(records, codec=codec) + make([Rec(5)], codec=codec), rules)
    expected = [*records, Rec(5)]
    assert written(copied) == renumbered(with_offset_header(expected, b"isthmus-offset") if rules else expected)


def test_times_are_kept_exactly_also_backwards_and_missing() -> None:
    times = [100, -1, 99, 1 << 62, -1, 0, -(1 << 63), (1 << 63) - 1]
    records = [Rec(i, t) for i, t in enumerate(times)]
    copied = feed(make(records), WITH_HEADER)
    assert [rec.timestamp for rec in written(copied)] == times
    head = HEAD.unpack_from(copied.batches[0].payload.tobytes())
    assert head[7:9] == (100, (1 << 63) - 1)


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_becomes_create_time_of_each_record(codec: int) -> None:
    records = [Rec(0, 7), Rec(1, 1), Rec(2, 3)]
    copied = feed(make(records, codec=codec, log_append_time=1234))
    assert [rec.timestamp for rec in written(copied)] == [1234] * 3
    assert HEAD.unpack_from(copied.batches[0].payload.tobytes())[5] & 8 == 0


def test_holes_are_closed_and_the_runs_tell_where_they_were() -> None:
    records = [Rec(o) for o in (10, 11, 14, 15, 16, 20)]
    copied = feed(make(records, base_offset=9, last_offset=22))
    (batch,) = copied.batches
    assert batch.runs.tolist() == [[10, 2], [14, 3], [20, 1]]
    assert batch.next_offset == copied.next_offset == 23
    assert written(copied) == renumbered(records)


def test_a_delete_horizon_is_cleared() -> None:
    records = recs(0, 3)
    copied = feed(make(records, attributes=0x40, codec=4))
    assert written(copied) == renumbered(records)
    assert HEAD.unpack_from(copied.batches[0].payload.tobytes())[5] == 4


@pytest.mark.parametrize("codec", range(5))
def test_what_compaction_leaves_of_a_batch_may_be_nothing(codec: int) -> None:
    empty = seal(b"", base_offset=5, last_delta=4, count=0, attributes=codec)
    copied = feed(make(recs(0, 5)) + empty + make(recs(10, 2)), WITH_HEADER)
    assert (copied.fault, copied.records, copied.next_offset) == (None, 7, 12)
    assert feed(empty, position=5).next_offset == 10


def test_position_in_the_middle_of_a_batch() -> None:
    for codec in range(5):
        copied = feed(make(recs(100, 10), codec=codec), position=107)
        assert copied.batches[0].runs.tolist() == [[107, 3]]
        assert copied.next_offset == 110


def test_batches_before_the_position_are_left_out_whole() -> None:
    copied = feed(make(recs(0, 5)) + make(recs(5, 5)), position=5)
    assert copied.batches[0].runs.tolist() == [[5, 5]]
    copied = feed(make(recs(0, 5)), position=8)
    assert (copied.batches, copied.next_offset) == ([], 8)


# --- transactions -------------------------------------------------------------------------------------


def test_aborted_records_are_left_out_until_the_abort_marker() -> None:
    def of(start: int, producer: int) -> bytes:
        return make(recs(start, 2), attributes=0x10, producer=(producer, 0, 0))

    data = (
        of(0, 5)  # before the aborted transaction: committed
        + marker(2, 5, commit=True)
        + of(3, 5)  # aborted
        + of(5, 6)  # another producer's, committed
        + of(7, 5)  # aborted
        + marker(9, 5, commit=False)
        + of(10, 5)  # the next transaction
        + marker(12, 6, commit=True)
        + of(13, 5)  # aborted again
        + marker(15, 5, commit=False)
        + marker(16, 5, commit=True)
    )
    aborted = [(5, 13), (5, 3)]  # in any order
    copied = feed(data, WITH_HEADER, aborted=aborted)
    offsets = [struct.unpack(">q", rec.headers[-1][1] or b"")[0] for rec in written(copied)]
    assert offsets == [0, 1, 5, 6, 10, 11]
    assert copied.aborted == 6
    assert copied.next_offset == 17


def test_records_outside_of_transactions_are_never_aborted() -> None:
    data = make(recs(0, 2), producer=(5, 0, 0))  # idempotent only
    assert feed(data, aborted=[(5, 0)]).records == 2


# --- unopened -----------------------------------------------------------------------------------------


@pytest.fixture
def no_codec_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> int:
        raise AssertionError("a codec ran")

    monkeypatch.setattr(compression, "_inflate_into", run)
    monkeypatch.setattr("isthmus.records.write.deflate", run)


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.usefixtures("no_codec_may_run")
def test_a_batch_that_needs_no_change_is_never_inflated(codec: int) -> None:
    # The compressed bytes make no sense, which nobody may notice.
    junk = np.random.default_rng(codec).bytes(70_000)
    data = make(recs(5, 9), codec=codec, compress=lambda _: junk, attributes=0x10, producer=(7, 1, 2))
    copied = feed(data + make(recs(14, 2)), position=5)
    first = copied.batches[0]
    assert first.payload[61:].tobytes() == junk
    assert (first.count, first.runs.tolist(), first.next_offset) == (9, [[5, 9]], 14)
    stamp(first.payload, 50, 2, 30, True)
    head = HEAD.unpack_from(first.payload.tobytes())
    assert head[0:1] + head[2:4] + head[5:7] + head[9:] == (0, -1, 2, codec | 0x10, 8, 50, 2, 30, 9)
    assert reseal(first.payload.tobytes()) == first.payload.tobytes()
    assert feed(data, compression="keep").records == 9
    assert feed(data, compression=("none", "gzip", "snappy", "lz4", "zstd")[codec]).records == 9


@pytest.mark.parametrize(
    ("options", "rules", "change"),
    [
        ({}, WITH_HEADER, {}),
        ({"compression": "none"}, (), {}),
        ({}, (), {"log_append_time": 5}),
        ({}, (), {"last_offset": 30}),
        ({}, (), {"base_offset": 4}),
        ({}, (), {"attributes": 0x40}),
        ({"position": 6}, (), {}),
        ({"max_bytes": 5000}, (), {}),
    ],
)
@pytest.mark.usefixtures("no_codec_may_run")
def test_a_batch_that_needs_a_change_is_opened(options: dict, rules: tuple, change: dict) -> None:
    data = make(recs(5, 9, 5000), codec=4, compress=lambda data: data[:20_000], **change)
    with pytest.raises(AssertionError, match="a codec ran"):
        feed(data, rules, **options)


def test_large_uncompressed_batches_pass_and_small_ones_are_merged() -> None:
    large = make(recs(100, 90, 1000))
    data = b"".join(make(recs(i, 1)) for i in range(100)) + large + make(recs(190, 1)) + make(recs(191, 1))
    copied = feed(data)
    assert [batch.count for batch in copied.batches] == [100, 90, 2]
    assert copied.batches[1].payload[61:].tobytes() == large[61:]
    assert [batch.runs.tolist() for batch in copied.batches] == [[[0, 100]], [[100, 90]], [[190, 2]]]


@pytest.mark.parametrize("codec", range(1, 5))
def test_small_compressed_batches_are_merged_too(codec: int) -> None:
    data = b"".join(make(recs(i, 1), codec=codec) for i in range(100))
    copied = feed(data)
    assert [batch.count for batch in copied.batches] == [100]
    assert copied.batches[0].payload[22] == codec


# --- sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_split_at_the_destinations_limit(name: str) -> None:
    random = np.random.default_rng(1)
    records = [Rec(i, value=random.bytes(900)) for i in range(300)]
    records += [Rec(300 + i, value=b"x" * 900) for i in range(300)]
    copied = feed(make(records), WITH_HEADER, compression=name, max_bytes=20_000)
    assert copied.fault is None
    assert max(len(batch.payload) for batch in copied.batches) <= 20_000
    assert [batch.payload[22] for batch in copied.batches] == [
        ("none", "gzip", "snappy", "lz4", "zstd").index(name)
    ] * len(copied.batches)
    found = written(copied)
    assert [rec.value for rec in found] == [rec.value for rec in records]
    # Linear: not many more batches than the bytes need.
    assert len(copied.batches) < 2 * 600 * 950 / 20_000


def test_an_outgoing_batch_is_filled_across_source_batches() -> None:
    data = b"".join(make(recs(i * 100, 100, 100)) for i in range(200))  # some 2.4 MB
    copied = feed(data, WITH_HEADER)
    assert len(copied.batches) == 3
    assert all(len(batch.payload) > 940_000 for batch in copied.batches[:-1])


def test_a_record_larger_than_the_target_gets_a_batch_of_its_own() -> None:
    records = [Rec(0), Rec(1, value=b"x" * 1_000_000), Rec(2)]
    copied = feed(make(records), WITH_HEADER)
    assert [batch.count for batch in copied.batches] == [1, 1, 1]
    assert [rec.value for rec in written(copied)] == [rec.value for rec in records]


def test_a_record_that_fits_only_compressed_is_copied() -> None:
    records = [Rec(0), Rec(1, value=b"x" * 30_000_000), Rec(2)]
    copied = feed(make(records, codec=4), WITH_HEADER)
    assert copied.fault is None
    assert [rec.value for rec in written(copied)] == [rec.value for rec in records]


def test_a_record_that_compression_makes_too_large_is_sent_as_it_is() -> None:
    value = np.random.default_rng(2).bytes(10_000)
    exact = len(make([Rec(0, value=value)]))
    copied = feed(make([Rec(0, value=value)]), compression="gzip", max_bytes=exact)
    assert [rec.value for rec in written(copied)] == [value]
    assert copied.batches[0].payload[22] == 0


@pytest.mark.parametrize("name", ["none", "zstd"])
def test_a_record_that_does_not_fit_stops_at_its_offset(name: str) -> None:
    value = np.random.default_rng(2).bytes(5000)
    records = [Rec(7), Rec(8), Rec(9, value=value), Rec(10)]
    copied = feed(make(records), WITH_HEADER, compression=name, max_bytes=3000)
    assert isinstance(copied.fault, RecordTooLarge)
    assert (copied.fault.topic, copied.fault.partition, copied.fault.offset) == ("orders", 3, 9)
    assert (copied.next_offset, copied.records, copied.dropped) == (9, 2, 0)
    assert "offset 9" in str(copied.fault)
    assert "3000" in str(copied.fault)
    assert "max.message.bytes" in str(copied.fault)
    needed = int(str(copied.fault).split("needs a batch of ")[1].split()[0])
    again = feed(make(records), WITH_HEADER, compression=name, position=9, max_bytes=needed)
    assert again.fault is None
    assert pickle.loads(pickle.dumps(copied.fault)).offset == 9


# --- bad data -----------------------------------------------------------------------------------------


def damaged(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 0x40]) + batch[at + 1 :]


@pytest.mark.parametrize("size", [20, 3000], ids=["small", "large"])
@pytest.mark.parametrize("rules", [(), WITH_HEADER])
def test_a_wrong_checksum_stops_there(size: int, rules: tuple) -> None:
    data = make(recs(0, 4)) + damaged(make(recs(4, 4, size)), 80) + make(recs(8, 4))
    copied = feed(data, rules)
    assert isinstance(copied.fault, CorruptBatch)
    assert copied.fault.offset == 4
    assert "orders-3" in str(copied.fault)
    assert "checksum" in str(copied.fault)
    assert "on_corrupt: skip" in str(copied.fault)
    assert (copied.next_offset, copied.records, copied.skipped) == (4, 4, 0)


@pytest.mark.parametrize("size", [20, 3000], ids=["small", "large"])
@pytest.mark.parametrize("at", [24, 60, 80])  # last offset, number of records, a record
def test_a_wrong_checksum_is_skipped_if_asked(size: int, at: int) -> None:
    data = make(recs(0, 4)) + damaged(make(recs(4, 4, size)), at) + make(recs(8, 4))
    copied = feed(data, WITH_HEADER, on_corrupt="skip")
    assert copied.fault is None
    assert (copied.next_offset, copied.records, copied.skipped) == (12, 8, 1)


def test_skipping_the_last_batch_moves_on_but_believes_no_damaged_field() -> None:
    bad_body = damaged(make(recs(4, 4)), 80)
    assert feed(bad_body, on_corrupt="skip", position=4).next_offset == 8
    bad_last_offset = damaged(make(recs(4, 4)), 24)
    assert feed(bad_last_offset, on_corrupt="skip", position=4).next_offset == 5
    far = (1 << 63) - 1
    assert feed(damaged(make([Rec(far)]), 70), on_corrupt="skip", position=4).next_offset == 5


def test_a_good_batch_after_a_skipped_one_says_where_to_go_on() -> None:
    """Also when the skipped one's base offset, which no checksum covers, points far ahead."""
    bad = struct.pack(">q", 900) + damaged(make(recs(4, 4)), 80)[8:]
    copied = feed(bad + make(recs(8, 4)), on_corrupt="skip", position=4)
    assert (copied.next_offset, copied.records, copied.skipped) == (12, 4, 1)
    assert feed(bad, on_corrupt="skip", position=4).next_offset == 5


def test_skipping_a_batch_out_of_order_loses_nothing_after_it() -> None:
    data = make(recs(0, 10)) + make(recs(3, 2))
    copied = feed(data, on_corrupt="skip")
    assert (copied.next_offset, copied.skipped, copied.records) == (10, 1, 10)
    assert isinstance(feed(data).fault, CorruptBatch)


BASE = Rec(0, 10, b"key", b"value", ((b"h", b"x"),))


def region_of(body: bytes) -> bytes:
    return varint(len(body)) + body


BROKEN_REGIONS = {
    "a number that never ends": b"\xff" * 20,
    "a length past the end": varint(100) + b"\0" * 20,
    "a negative length": varint(-5) + b"\0" * 20,
    "a record that is too short": region_of(b"\0\0\0\0\0"),
    "a key past the end": region_of(b"\0\0\0" + varint(50) + b"abc" + b"\1\0"),
    "a key length of -2": region_of(b"\0\0\0" + varint(-2) + b"\1\1\0\0"),
    "a value past the end": region_of(b"\0\0\0\1" + varint(50) + b"abc\0"),
    "a value length of -2": region_of(b"\0\0\0\1" + varint(-2) + b"\0\0"),
    "a negative header count": region_of(b"\0\0\0\1\1" + varint(-1)),
    "an absurd header count": region_of(b"\0\0\0\1\1" + varint(1 << 30)),
    "a header key past the end": region_of(b"\0\0\0\1\1\2" + varint(30) + b"h\0"),
    "a null header key": region_of(b"\0\0\0\1\1\2\1\0"),
    "a header value past the end": region_of(b"\0\0\0\1\1\2\2h" + varint(30) + b"h\0"),
    "bytes left over in the record": region_of(b"\0\0\0\1\1\0left"),
    "bytes left over in the batch": record_bytes(BASE, 0, 10) + b"left",
    "an offset outside of the batch": record_bytes(replace(BASE, offset=3), 0, 10),
    "a negative offset delta": region_of(b"\0\0" + varint(-1) + b"\1\1\0"),
    "nothing": b"",
}


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("what", BROKEN_REGIONS)
def test_a_record_that_cannot_be_parsed(what: str, codec: int) -> None:
    region = COMPRESS[codec](BROKEN_REGIONS[what])
    bad = seal(region, base_offset=4, last_delta=0, count=1, attributes=codec)
    data = make(recs(0, 4), codec=codec) + bad + make(recs(5, 4), codec=codec)
    copied = feed(data, WITH_HEADER)
    assert isinstance(copied.fault, CorruptBatch)
    assert copied.fault.offset == 4
    assert "record 1 of 1" in str(copied.fault) or "left over after" in str(copied.fault)
    assert (copied.next_offset, copied.records) == (4, 4)
    skipping = feed(data, WITH_HEADER, on_corrupt="skip")
    assert (skipping.fault, skipping.next_offset, skipping.records, skipping.skipped) == (None, 9, 8, 1)


def test_offsets_that_do_not_ascend_inside_a_batch() -> None:
    region = record_bytes(replace(BASE, offset=1), 0, 10) * 2
    bad = seal(region, last_delta=1, count=2)
    assert isinstance(feed(bad, WITH_HEADER).fault, CorruptBatch)


@pytest.mark.parametrize(
    "fields",
    [
        {"count": -1, "last_delta": 0},
        {"count": 2, "last_delta": 0},
        {"count": 1, "last_delta": -1},
        {"count": 1, "last_delta": 0, "attributes": 5},
        {"count": 1, "last_delta": 0, "base_offset": -1},
        {"count": 1, "last_delta": 5, "base_offset": (1 << 63) - 6},
        {"count": 1, "last_delta": (1 << 31) - 1, "base_offset": (1 << 63) - 1},
        {"count": (1 << 31) - 1, "last_delta": (1 << 31) - 2},
    ],
)
def test_header_fields_that_contradict_each_other(fields: dict) -> None:
    copied = feed(seal(record_bytes(BASE, 0, 10), **fields), WITH_HEADER)
    assert isinstance(copied.fault, CorruptBatch)


@pytest.mark.parametrize("codec", range(1, 5))
def test_bytes_that_do_not_inflate(codec: int) -> None:
    bad = make(recs(4, 4), codec=codec, compress=lambda data: b"this is not compressed at all")
    data = make(recs(0, 4), codec=codec) + bad + make(recs(8, 4), codec=codec)
    copied = feed(data, WITH_HEADER)
    assert isinstance(copied.fault, CorruptBatch)
    assert (copied.fault.offset, copied.next_offset, copied.records) == (4, 4, 4)
    copied = feed(data, WITH_HEADER, on_corrupt="skip")
    assert (copied.fault, copied.next_offset, copied.records, copied.skipped) == (None, 12, 8, 1)


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_few_bytes_that_would_inflate_to_gigabytes(codec: int) -> None:
    bomb = make(recs(0, 1), codec=codec, compress=lambda data: COMPRESS[codec](bytes(20 << 20)))
    copied = feed(bomb, WITH_HEADER, max_inflated=1 << 20)
    assert isinstance(copied.fault, CorruptBatch)
    assert "more than 1048576 bytes (max_inflated on the link)" in str(copied.fault)
    fits = make([Rec(0), Rec(1, value=bytes(900_000))], codec=codec)
    assert feed(fits, WITH_HEADER, max_inflated=1 << 20).records == 2


def old_message(offset: int, magic: int) -> bytes:
    body = struct.pack(">Ibb", 0, magic, 0) + (struct.pack(">q", 5) if magic else b"") + struct.pack(">ii", -1, -1)
    return struct.pack(">qi", offset, len(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_stop_or_are_skipped(magic: int) -> None:
    data = make(recs(0, 2)) + old_message(2, magic) + old_message(3, magic) + make(recs(4, 2))
    copied = feed(data, WITH_HEADER)
    assert isinstance(copied.fault, OldFormat)
    assert f"format v{magic}" in str(copied.fault)
    assert (copied.fault.offset, copied.next_offset, copied.records) == (2, 2, 2)
    copied = feed(data, WITH_HEADER, on_corrupt="skip")
    assert (copied.fault, copied.next_offset, copied.records, copied.skipped) == (None, 6, 4, 2)
    assert feed(old_message(3, magic), on_corrupt="skip", position=3).next_offset == 4


def test_a_format_of_the_future_is_not_guessed_at() -> None:
    batch = bytearray(make(recs(0, 2)))
    batch[16] = 3
    fault = feed(bytes(batch)).fault
    assert isinstance(fault, CorruptBatch)
    assert "v3" in str(fault)


@pytest.mark.parametrize("length", [-1, 0, 48, (1 << 30) + 1, (1 << 31) - 1])
@pytest.mark.parametrize("on_corrupt", ["stop", "skip"])
def test_an_absurd_length_stops_always(length: int, on_corrupt: str) -> None:
    bad = bytearray(make(recs(4, 2)))
    bad[8:12] = struct.pack(">i", length)
    for before in (b"", make(recs(0, 4))):
        copied = feed(before + bytes(bad), on_corrupt=on_corrupt)
        assert isinstance(copied.fault, CorruptBatch)
        assert str(length) in str(copied.fault)
        assert copied.records == (4 if before else 0)


def test_every_truncation_of_good_data_is_quiet() -> None:
    data = make(recs(0, 2)) + make(recs(2, 2), codec=1)
    for end in range(len(data)):
        copied = feed(data[:end], WITH_HEADER)
        assert copied.fault is None
        assert copied.next_offset == (2 if end >= len(make(recs(0, 2))) else 0)


# --- rules --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeepEven:
    """Drops records of odd offsets, and fails on an offset."""

    fails_at: int = -1
    touches_records = True

    def topic(self, name: str) -> str:
        return name

    def apply(self, records: Records) -> Records:
        if self.fails_at in records.offset:
            raise ZeroDivisionError("just so")
        return records.with_columns(dropped=(records.offset % 2).astype(np.uint8))


def test_dropped_records_are_counted_and_accounted_for() -> None:
    copied = feed(make(recs(0, 10)), (KeepEven(), *WITH_HEADER))
    (batch,) = copied.batches
    assert batch.runs.tolist() == [[0, 1], [2, 1], [4, 1], [6, 1], [8, 1]]
    assert (copied.records, copied.dropped, copied.next_offset, batch.next_offset) == (5, 5, 10, 10)
    only_odd = make([Rec(1), Rec(3)])
    copied = feed(only_odd, (KeepEven(),))
    assert (copied.batches, copied.records, copied.dropped, copied.next_offset) == ([], 0, 2, 4)


def test_dropped_records_between_two_batches_belong_to_the_first() -> None:
    copied = feed(make(recs(0, 10, 400)), (KeepEven(),), max_bytes=1100)
    assert [batch.next_offset for batch in copied.batches] == [4, 8, 10]
    assert copied.dropped == 5


def test_a_dropped_record_is_never_too_large() -> None:
    data = make([Rec(0), Rec(1, value=b"x" * 5000), Rec(2)])
    assert feed(data, (KeepEven(),), max_bytes=1000).fault is None


class Forgetful(KeepEven):
    """Returns nothing."""

    def apply(self, records: Records) -> Records:
        super().apply(records)
        return None  # type: ignore[return-value]


def test_a_rule_that_returns_no_records_has_failed() -> None:
    fault = feed(make(recs(0, 5)), (Forgetful(),)).fault
    assert isinstance(fault, RuleFailed)
    assert "expected Records, found NoneType" in str(fault)


def test_a_rule_that_raises_stops_before_its_records() -> None:
    large = make(recs(0, 5)), make(recs(5, 5), codec=1)
    copied = feed(b"".join(large), (KeepEven(fails_at=7),))
    assert isinstance(copied.fault, RuleFailed)
    assert "KeepEven" in str(copied.fault)
    assert "offsets 5 to 9" in str(copied.fault)
    assert "ZeroDivisionError: just so" in str(copied.fault)
    assert (copied.next_offset, copied.records, copied.fault.offset) == (5, 3, 5)


# --- memory and speed ---------------------------------------------------------------------------------


def test_outgoing_memory_is_not_written_over_by_the_next_feed() -> None:
    transcoder = Transcoder(WITH_HEADER)
    one = transcoder.feed(make(recs(0, 50)), topic="t", partition=0, position=0).batches[0]
    before, runs = one.payload.copy(), one.runs.copy()
    transcoder.feed(make([Rec(9, value=b"other" * 500)]), topic="t", partition=0, position=0)
    assert (one.payload == before).all()
    assert (one.runs == runs).all()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    assert feed(kind(make(recs(0, 3))), WITH_HEADER).records == 3


def test_more_batches_than_the_scan_takes_in_one_turn() -> None:
    batch = make([Rec(0)])
    count = 20_000
    data = b"".join(struct.pack(">q", offset) + batch[8:] for offset in range(count))
    started = time.perf_counter()
    copied = feed(data, WITH_HEADER)
    seconds = time.perf_counter() - started
    assert copied.records == count
    assert copied.next_offset == count
    assert seconds / count < 20e-6  # 0.2 us on a quiet machine; a loop in Python would take some 10


def test_stamping_again_replaces_the_first_stamp() -> None:
    (batch,) = feed(make(recs(0, 3)), WITH_HEADER).batches
    stamp(batch.payload, 1, 2, 3, True)
    first = batch.payload.tobytes()
    stamp(batch.payload, 9, 9, 9, False)
    assert read_plain(batch.payload.tobytes())
    assert batch.payload[22] == 0
    stamp(batch.payload, 1, 2, 3, True)
    assert batch.payload.tobytes() == first


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="compression"):
        Transcoder((), compression="brotli")
    with pytest.raises(ValueError, match="on_corrupt"):
        Transcoder((), on_corrupt="ignore")
