"""What a batch costs, counted and not timed: a slip of two times is caught on any machine, however noisy.

Each bound is what was counted when it was written, with some room, and its reason.
"""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from isthmus.config import Link
from isthmus.records import Transcoder, stamp
from isthmus.rules import compile_rules

PLAIN = Link(name="l", source="a", target="b", topics=["t"])
UNTOUCHED = Link(name="l", source="a", target="b", topics=["t"], headers="off")
BOTH_WAYS = Link(name="l", source="a", target="b", topics=["t"], loop="returning")


def fetched(batches: int, records: int, size: int = 100) -> bytes:
    """What one fetch of one partition may hold."""
    whole = bytearray()
    for number in range(batches):
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1 << 30,
        )  # fmt: skip
        for index in range(records):
            builder.append(index, 1_700_000_000_000 + index, None, bytes(size), [])
        batch = bytearray(builder.build())
        batch[0:8] = (number * records).to_bytes(8, "big")
        whole += batch
    return bytes(whole)


def calls_of(work) -> int:
    """Calls of Python and C functions while ``work`` runs."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def feeding(link, data):
    transcoder = Transcoder(compile_rules(link))

    def feed():
        return transcoder.feed(data, topic="t", partition=0, position=0)

    feed()  # scratch buffers grow to their size once
    return feed


@pytest.mark.parametrize("link", [PLAIN, UNTOUCHED, BOTH_WAYS], ids=["offset header", "untouched", "both ways"])
def test_no_python_a_record(link):
    few, many = feeding(link, fetched(4, 100)), feeding(link, fetched(4, 1600))
    # Sixteen times the records in as many batches may not mean one more call, but for an outgoing batch more or two.
    assert calls_of(many) <= calls_of(few) + 60


def test_small_batches_cost_no_python_each():
    few, many = feeding(PLAIN, fetched(16, 1)), feeding(PLAIN, fetched(4096, 1))
    per_batch = (calls_of(many) - calls_of(few)) / 4080
    # Checking the CRC of a batch is one call into C and a slice; anything more is a loop that came back to Python.
    assert per_batch < 8


def test_a_batch_is_written_once():
    data = fetched(8, 1000)
    feed = feeding(PLAIN, data)
    tracemalloc.start()
    copied = feed()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    out = sum(len(batch.payload) for batch in copied.batches)
    # The outgoing payloads, and columns of the records in them (11 numbers a record), held at most twice over.
    assert peak < 1.2 * out + 2 * 11 * 8 * 8000


def test_stamping_touches_the_batch_in_place():
    batch = feeding(PLAIN, fetched(1, 5000))().batches[0]
    tracemalloc.start()
    stamp(batch.payload, 1, 2, 3, True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000 < len(batch.payload)


def test_outgoing_batches_are_full():
    copied = feeding(PLAIN, fetched(400, 100))()
    sizes = np.array([len(batch.payload) for batch in copied.batches])
    # A request takes one batch a partition: thin ones would multiply requests. Only the last of a group may be thin.
    assert np.median(sizes) > 900_000
    assert len(sizes) <= 1.3 * sizes.sum() / 950_000 + 1
    assert sizes.sum() < 1.4 * 400 * 100 * 110
