"""The exact offset map against a plain dictionary of what was copied where."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine.offset_map import (
    CHUNK_BYTES,
    CHUNK_RUNS,
    ChunkKey,
    ChunkWriter,
    build_maps,
    decode_chunk,
    encode_chunk,
    join_runs,
)

SOURCE, TARGET = uuid.UUID(int=1), uuid.UUID(int=2)


@st.composite
def histories(draw):
    """Transactions of one partition: kept source offsets of each, and local records or markers in between."""
    position, target = draw(st.integers(0, 1000)), draw(st.integers(0, 1000))
    transactions = []
    for _ in range(draw(st.integers(1, 12))):
        start = position
        batches = []
        for _ in range(draw(st.integers(0, 4))):
            kept = []
            for _ in range(draw(st.integers(1, 8))):
                position += draw(st.sampled_from([0, 0, 0, 0, 1, 7]))  # a hole now and then
                kept.append(position)
                position += 1
            batches.append((kept, target))
            target += len(kept) + draw(st.sampled_from([0, 0, 3]))  # somebody else's records
        position += draw(st.integers(0, 2))  # control records, or dropped ones, at the end
        transactions.append((start, position, batches, draw(st.sampled_from(["commit"] * 4 + ["abort", "new lease"]))))
        target += 1  # the commit marker
    return transactions


def runs_of(kept, base):
    rows = []
    for index, offset in enumerate(kept):
        if rows and rows[-1][0] + rows[-1][2] == offset:
            rows[-1][2] += 1
        else:
            rows.append([offset, base + index, 1])
    return np.array(rows, np.int64)


@given(histories())
def test_every_offset_is_found_where_it_was_put(transactions):
    writer = ChunkWriter("a/topic", 3, SOURCE, TARGET)
    log, truth, end = [], {}, None
    retry = None
    for start, position, batches, fate in transactions:
        if retry is not None:
            start = retry  # what was aborted is copied again with the next
        if fate == "new lease":
            writer = ChunkWriter("a/topic", 3, SOURCE, TARGET)
        parts = [runs_of(kept, base) for kept, base in batches]
        if fate == "abort":
            if parts:
                writer.stage(parts, start, position)
            writer.forget()
            retry = start
            continue
        retry = None
        if parts:
            log.extend(writer.stage(parts, start, position))
            writer.committed()
        for kept, base in batches:
            for index, offset in enumerate(kept):
                truth[offset] = base + index
                end = base + index + 1
    maps = build_maps(log)
    if not truth:
        assert not maps or not len(maps["a/topic", 3].runs)
        return
    found = maps["a/topic", 3]
    assert found.source_id == SOURCE
    assert found.target_id == TARGET
    offsets = np.arange(max(0, min(truth) - 3), max(truth) + 4)
    answers, exact, copied = found.translate_many(offsets)
    ordered = sorted(truth)
    for offset, answer, was_exact, was_copied in zip(offsets, answers, exact, copied, strict=True):
        later = [o for o in ordered if o >= offset]
        assert was_exact == (offset in truth)
        assert was_copied == bool(later)
        assert answer == (truth[later[0]] if later else end)


@given(
    st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(1, 2**30)), max_size=50),
    st.integers(0, 2**50),
)
def test_a_chunk_survives_its_encoding(gaps, first):
    rows, source, target = [], first, 0
    for a, b, length in gaps:
        rows.append((source + a, target + b, length))
        source, target = rows[-1][0] + length, rows[-1][1] + length
    runs = np.array(rows, np.int64).reshape(-1, 3)
    chunk = decode_chunk(encode_chunk(runs, first, source + 5, TARGET))
    assert (chunk.runs == runs).all()
    assert (chunk.first, chunk.next_offset, chunk.target_id) == (first, source + 5, TARGET)


def test_runs_that_continue_each_other_are_joined():
    joined = join_runs([np.array([[0, 10, 5]]), np.array([[5, 15, 5], [10, 21, 1]])])
    assert joined.tolist() == [[0, 10, 10], [10, 21, 1]]


def test_a_chunk_is_closed_when_it_is_long():
    writer = ChunkWriter("t", 0, SOURCE, TARGET)
    keys = set()
    for number in range(3 * CHUNK_RUNS):
        ((key, _),) = writer.stage([np.array([[number, 2 * number, 1]])], number, number + 1)
        writer.committed()
        keys.add(key)
    assert len(keys) == 3


def test_a_reset_to_an_earlier_offset_means_the_last_copy():
    first = ChunkWriter("t", 0, SOURCE, TARGET)
    log = first.stage([np.array([[0, 0, 100]])], 0, 100)
    again = ChunkWriter("t", 0, SOURCE, TARGET)
    log.extend(again.stage([np.array([[40, 101, 60]])], 40, 100))
    found = build_maps(log)["t", 0]
    assert [found.translate(o).offset for o in (0, 39, 40, 99, 100)] == [0, 39, 101, 160, 161]
    assert found.next_offset == 100


def test_a_recreated_source_topic_starts_its_own_map():
    old = ChunkWriter("t", 0, SOURCE, TARGET)
    log = old.stage([np.array([[0, 0, 100]])], 0, 100)
    new = ChunkWriter("t", 0, uuid.UUID(int=9), TARGET)
    log.extend(new.stage([np.array([[0, 101, 7]])], 0, 7))
    found = build_maps(log)["t", 0]
    assert found.source_id == uuid.UUID(int=9)
    assert found.translate(3).offset == 104
    assert not found.translate(50).copied


def test_deleted_chunks_are_gone():
    writer = ChunkWriter("t", 0, SOURCE, TARGET)
    ((key, value),) = writer.stage([np.array([[0, 0, 1]])], 0, 1)
    assert build_maps([(key, value), (key, None)]) == {}


def test_topics_may_contain_anything_kafka_allows_and_slashes_too():
    key = ChunkKey("a/b.c-d_e", 12, SOURCE, 34)
    assert ChunkKey.decode(key.encode()) == key


def test_a_newer_form_is_refused_by_name():
    with pytest.raises(ValueError, match="form 9"):
        decode_chunk(b"\x09" + bytes(60))


def test_what_is_too_large_for_a_record_becomes_several_that_read_as_one():
    random = np.random.default_rng(1)
    gaps = random.integers(1, 2**40, (100_000, 2))
    lengths = random.integers(1, 2**16, 100_000)
    runs = np.column_stack((np.cumsum(gaps[:, 0]), np.cumsum(gaps[:, 1]), lengths)).astype(np.int64)
    runs[:, :2] += np.concatenate(([0], np.cumsum(lengths[:-1])))[:, None]
    end = int(runs[-1, 0] + runs[-1, 2])
    # What was there before lies under all of it, also where the new copy has holes.
    log = ChunkWriter("t", 0, SOURCE, TARGET).stage([np.array([[0, 0, 10]]), np.array([[20, 12, end]])], 0, end + 20)
    writer = ChunkWriter("t", 0, SOURCE, TARGET)
    lines = writer.stage([runs], 10, end)
    assert len(lines) > 10
    assert max(len(key) + len(value) for key, value in lines) <= CHUNK_BYTES + 100
    found = build_maps(log + lines)["t", 0]
    assert found.runs.tolist() == [[0, 0, 10], *runs.tolist()]
    assert found.next_offset == end
    # The next transaction begins a chunk of its own, and so does one that is reset into the middle.
    writer.committed()
    (more,) = writer.stage([np.array([[end, 1 << 60, 1]])], end, end + 1)
    assert build_maps([*log, *lines, more])["t", 0].next_offset == end + 1
    middle = int(runs[50_000, 0])
    (again,) = ChunkWriter("t", 0, SOURCE, TARGET).stage([np.array([[middle, 1 << 60, 1]])], middle, middle + 1)
    found = build_maps([*log, *lines, again])["t", 0]
    assert found.runs.tolist() == [[0, 0, 10], *runs[:50_000].tolist(), [middle, 1 << 60, 1]]
