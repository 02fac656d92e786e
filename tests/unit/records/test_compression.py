"""The codecs read what others write, and others read what they write."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
from batch_tools import COMPRESS, decompress
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.records.compression import InflateError, Inflater, deflate, deflated_bound

SAMPLES = {
    "nothing": b"",
    "a byte": b"x",
    "text": b"the quick brown fox " * 30_000,
    "noise": np.random.default_rng(5).bytes(300_000),
    "zeros": bytes(3_000_000),
}


def bytes_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def deflated(codec: int, data: bytes) -> bytes:
    out = np.empty(deflated_bound(len(data)), np.uint8)
    return out[: deflate(codec, bytes_of(data), out)].tobytes()


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("what", SAMPLES)
def test_others_read_ours_and_we_read_theirs(codec: int, what: str) -> None:
    data = SAMPLES[what]
    assert decompress(codec, deflated(codec, data)) == data
    inflater = Inflater(capacity=1000)
    for source in (COMPRESS[codec](data), deflated(codec, data)):
        start, end = inflater.inflate(codec, bytes_of(source))
        assert inflater.inflated()[start:end].tobytes() == data


@given(pieces=st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=2000)), max_size=8))
@settings(deadline=None)
def test_batches_inflate_one_after_another(pieces: list[tuple[int, bytes]]) -> None:
    inflater = Inflater(capacity=64)
    places = [inflater.inflate(codec, bytes_of(COMPRESS[codec](data))) for codec, data in pieces]
    whole = inflater.inflated()
    assert [whole[start:end].tobytes() for start, end in places] == [data for _, data in pieces]
    assert inflater.used == sum(len(data) for _, data in pieces)


def test_lz4_frames_are_of_the_kind_that_the_java_client_reads() -> None:
    """Version 1, independent blocks of 64 KiB, no content size; cramjam's own frames have linked blocks."""
    ours = deflated(3, SAMPLES["text"])
    info = lz4.frame.get_frame_info(ours)
    assert (info["block_linked"], info["block_size"], info["content_size"]) == (False, 65536, 0)
    assert lz4.frame.get_frame_info(bytes(cramjam.lz4.compress(b"x" * 99)))["block_linked"]


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_every_kind_are_read(linked: bool, size: bool, checksum: bool) -> None:
    data = SAMPLES["text"]
    frame = lz4.frame.compress(data, block_linked=linked, store_size=size, content_checksum=checksum)
    inflater = Inflater()
    inflater.inflate(3, bytes_of(frame))
    assert inflater.inflated().tobytes() == data


def test_raw_snappy_is_read() -> None:
    data = SAMPLES["text"]
    inflater = Inflater(capacity=10)
    inflater.inflate(2, bytes_of(pa.compress(data, codec="snappy", asbytes=True)))
    assert inflater.inflated().tobytes() == data


def test_gzip_of_several_members_is_read() -> None:
    inflater = Inflater()
    inflater.inflate(1, bytes_of(gzip.compress(b"one") + gzip.compress(b"two")))
    assert inflater.inflated().tobytes() == b"onetwo"


@pytest.mark.parametrize("codec", range(1, 5))
def test_inflating_is_bounded(codec: int) -> None:
    bomb = bytes_of(COMPRESS[codec](bytes(3_000_000)))
    with pytest.raises(InflateError, match="more than 100000 bytes"):
        Inflater(capacity=1000, most=100_000).inflate(codec, bomb)
    assert Inflater(capacity=1000, most=3_000_000).inflate(codec, bomb) == (0, 3_000_000)


@pytest.mark.parametrize("codec", range(1, 5))
def test_damage_is_reported_and_leaves_what_was_inflated_before(codec: int) -> None:
    inflater = Inflater(capacity=100)
    good = bytes_of(COMPRESS[codec](b"good" * 100))
    inflater.inflate(codec, good)
    for bad in (good[:-3], good[: len(good) // 2], bytes_of(b"nonsense and more nonsense")):
        with pytest.raises(InflateError):
            inflater.inflate(codec, bad)
    assert inflater.inflated().tobytes() == b"good" * 100


def test_memory_of_a_giant_is_given_back() -> None:
    inflater = Inflater(capacity=1000)
    inflater.inflate(4, bytes_of(COMPRESS[4](bytes(1_000_000))))
    inflater.clear()
    assert len(inflater._buffer) == 1000
