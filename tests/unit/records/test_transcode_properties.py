"""Whatever a log may hold, ``feed`` copies exactly that, and others can read it.

The expected records come from plain Python; what was written is read back by three readers that are not
ours (see batch_tools).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from batch_tools import (
    HEAD,
    NAMES,
    READERS,
    Rec,
    make,
    make_aiokafka,
    make_kafka_python,
    marker,
    renumbered,
    runs_of,
    with_offset_header,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.records import Copied, Transcoder, stamp
from isthmus.rules.offset_header import OffsetHeader

NAME = "isthmus-offset"
WITH_HEADER = (OffsetHeader(NAME),)

pieces = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=300))
headers = st.lists(
    st.tuples(st.text(max_size=8).map(str.encode), st.one_of(st.none(), st.binary(max_size=9))), max_size=4
).map(tuple)
times = st.one_of(
    st.just(-1),
    st.integers(1_700_000_000_000, 1_700_000_100_000),
    st.integers(-1, (1 << 62)),
)


@dataclass
class Log:
    """Fetched bytes, and what has to be copied of them."""

    data: bytes = b""
    records: list[Rec] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    aborted_records: int = 0
    end: int = 0


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(end=draw(st.sampled_from([0, 3, 1 << 40])))
    open_aborted: set[int] = set()
    for _ in range(draw(st.integers(0, 6))):
        log.end += draw(st.sampled_from([0, 0, 0, 2]))  # compaction may take whole batches
        kind = draw(st.sampled_from(["data", "data", "data", "aborted", "marker", "empty"]))
        codec = draw(st.integers(0, 4))
        producer = draw(st.integers(1, 3))
        if kind == "marker":
            commit = producer not in open_aborted
            open_aborted.discard(producer)
            log.data += marker(log.end, producer, commit)
            log.end += 1
            continue
        if kind == "empty":
            log.data += make([], base_offset=log.end, last_offset=log.end + 2)
            log.end += 3
            continue
        holes = draw(st.booleans())
        records = []
        base = offset = log.end
        for _ in range(draw(st.integers(1, 12))):
            if holes:
                offset += draw(st.integers(0, 2))
            records.append(Rec(offset, draw(times), draw(pieces), draw(pieces), draw(headers)))
            offset += 1
        log.end = last = offset
        if holes:
            log.end = last = offset + draw(st.integers(0, 2))
        log_append = draw(st.sampled_from([None, None, None, 1_700_000_000_123]))
        transactional = kind == "aborted" or draw(st.booleans())
        if kind == "aborted" and producer not in open_aborted:
            open_aborted.add(producer)
            log.aborted.append((producer, base))
        log.data += make(
            records,
            codec=codec,
            base_offset=base,
            last_offset=last - 1,
            log_append_time=log_append,
            attributes=0x10 if transactional else 0,
            producer=(producer, 0, 0) if transactional else (-1, -1, -1),
        )
        if transactional and producer in open_aborted:
            log.aborted_records += len(records)
        else:
            log.records += [rec if log_append is None else replace(rec, timestamp=log_append) for rec in records]
    return log


def check(copied: Copied, expected: list[Rec], max_bytes: int, transactional: bool = True) -> None:
    """Everything that holds for each outcome without a fault."""
    assert copied.fault is None
    assert copied.records == len(expected)
    at = 0
    before = -1
    for number, batch in enumerate(copied.batches):
        stamp(batch.payload, 77, 3, number, transactional)
        payload = batch.payload.tobytes()
        assert len(payload) <= max_bytes
        part = expected[at : at + batch.count]
        (base, _, epoch, magic, _, attributes, last, base_ts, max_ts, pid, pepoch, seq, count) = HEAD.unpack_from(
            payload
        )
        assert (base, epoch, magic, last, count) == (0, -1, 2, batch.count - 1, batch.count)
        assert (pid, pepoch, seq) == (77, 3, number)
        assert attributes & ~7 == (0x10 if transactional else 0)
        assert base_ts == part[0].timestamp
        assert max_ts == max(rec.timestamp for rec in part)
        for read in READERS:
            assert read(payload) == renumbered(part)
        assert batch.runs.tolist() == runs_of([rec.offset for rec in part])
        assert int(batch.runs[:, 1].sum()) == batch.count
        at += batch.count
        assert part[-1].offset < batch.next_offset <= copied.next_offset
        assert at == len(expected) or batch.next_offset <= expected[at].offset
        assert batch.next_offset > before
        before = batch.next_offset
    assert at == len(expected)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    log=logs(),
    name=st.sampled_from(["keep", *NAMES]),
    header=st.booleans(),
    skip=st.integers(0, 30),
    max_bytes=st.sampled_from([1_048_588, 3000, 1200]),
)
def test_copies_exactly_what_the_log_holds(log: Log, name: str, header: bool, skip: int, max_bytes: int) -> None:
    first = log.records[0].offset if log.records else 0
    position = min(first + skip, log.end) if skip else 0
    transcoder = Transcoder(WITH_HEADER if header else (), compression=name)
    expected = [rec for rec in log.records if rec.offset >= position]
    if header:
        expected = with_offset_header(expected, NAME.encode())
    for _ in range(2):  # the second time, scratch memory holds the first one's leavings
        copied = transcoder.feed(
            log.data, topic="t", partition=1, position=position, aborted=log.aborted, max_bytes=max_bytes
        )
        check(copied, expected, max_bytes)
        assert copied.next_offset == (max(log.end, position) if log.data else position)
        assert copied.source_bytes == len(log.data)
        assert copied.aborted == log.aborted_records
        assert copied.dropped == copied.skipped == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=logs(), cut=st.integers(0, 200), header=st.booleans())
def test_an_incomplete_batch_at_the_end_is_left_for_the_next_fetch(log: Log, cut: int, header: bool) -> None:
    """Feeding what came, then again from ``next_offset``, loses and doubles nothing."""
    transcoder = Transcoder(WITH_HEADER if header else ())
    expected = with_offset_header(log.records, NAME.encode()) if header else log.records
    data = log.data[: max(0, len(log.data) - cut)]
    one = transcoder.feed(data, topic="t", partition=1, position=0, aborted=log.aborted)
    other = transcoder.feed(log.data, topic="t", partition=1, position=one.next_offset, aborted=log.aborted)
    assert one.fault is other.fault is None
    done = [batch for copied in (one, other) for batch in copied.batches]
    offsets = [offset + step for batch in done for offset, n in batch.runs.tolist() for step in range(n)]
    assert offsets == [rec.offset for rec in expected]


@pytest.mark.parametrize("maker", [make_kafka_python, make_aiokafka])
@pytest.mark.parametrize("codec", range(5))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_reads_what_other_clients_write(maker: object, codec: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 20))
    records = [
        Rec(
            9 + i,
            data.draw(st.integers(0, 1 << 45)),
            data.draw(pieces),
            data.draw(pieces),
            data.draw(headers),
        )
        for i in range(count)
    ]
    batch = maker(records, codec)  # type: ignore[operator]
    for rules in ((), WITH_HEADER):
        copied = Transcoder(rules).feed(batch, topic="t", partition=0, position=0)
        expected = with_offset_header(records, NAME.encode()) if rules else records
        if not rules:  # a maker may leave base_timestamp 0 in a batch that passes unopened
            expected = records
            stamp(copied.batches[0].payload, 1, 1, 1, True)
            assert READERS[0](copied.batches[0].payload.tobytes()) == renumbered(expected)
        else:
            check(copied, expected, 1_048_588)
