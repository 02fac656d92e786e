"""Records become Arrow and come back without a change; what comes back otherwise is checked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from batch_tools import Rec, make, read_plain, renumbered, with_offset_header
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import CorruptBatch
from isthmus.records import Records, Transcoder, decode, from_arrow, stamp, to_arrow
from isthmus.records.arrow import SCHEMA, NotRecordsError
from isthmus.records.model import read_only
from isthmus.records.read import Fetched, Reader
from isthmus.rules.offset_header import OffsetHeader

pieces = st.one_of(st.none(), st.binary(max_size=30))
headers = st.lists(st.tuples(st.binary(max_size=8), pieces), max_size=4).map(tuple)
records_lists = st.lists(
    st.builds(
        Rec,
        offset=st.just(0),
        timestamp=st.integers(-1, 1 << 50),
        key=pieces,
        value=pieces,
        headers=headers,
    ),
    min_size=1,
    max_size=20,
).map(lambda found: renumbered(found))


def indexed(records: list[Rec], **options: object) -> Records:
    data = read_only(np.frombuffer(make(records, **options), np.uint8))
    (group,) = Reader(skip_corrupt=False).groups(Fetched("orders", 3, 0, data))
    assert group.records is not None
    return group.records


def rows_of(records: list[Rec]) -> list[dict]:
    return [
        {
            "offset": rec.offset,
            "timestamp": rec.timestamp,
            "key": rec.key,
            "value": rec.value,
            "headers": [{"key": key, "value": value} for key, value in rec.headers],
        }
        for rec in records
    ]


class ThroughArrow:
    """A rule that goes to Arrow and back."""

    touches_records = True

    def topic(self, name: str) -> str:
        return name

    def apply(self, records: Records) -> Records:
        return from_arrow(to_arrow(records), records)


@given(records=records_lists)
@settings(deadline=None, max_examples=150)
def test_round_trip(records: list[Rec]) -> None:
    batch = to_arrow(indexed(records))
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    assert batch.schema.metadata == {b"topic": b"orders", b"partition": b"3"}
    assert batch.to_pylist() == rows_of(records)
    # A header that a rule has added before goes through too, and others read the outcome.
    rules = (OffsetHeader("o"), ThroughArrow(), OffsetHeader("p"))
    (out,) = Transcoder(rules).feed(make(records), topic="t", partition=0, position=0).batches
    stamp(out.payload, 1, 1, 1, True)
    expected = with_offset_header(with_offset_header(records, b"o"), b"p")
    assert read_plain(out.payload.tobytes()) == expected


@given(records=records_lists, data=st.data())
@settings(deadline=None, max_examples=80)
def test_slices_filters_and_takes_come_back_right(records: list[Rec], data: st.DataObject) -> None:
    before = indexed(records)
    batch = to_arrow(before)
    start = data.draw(st.integers(0, len(records)))
    count = data.draw(st.integers(0, len(records)))
    keep = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    chosen = [rec for rec, kept in zip(records, keep, strict=True) if kept]
    for changed, expected in (
        (batch.slice(start, count), records[start : start + count]),
        (batch.filter(pa.array(keep)), chosen),
        (batch.filter(pa.array(keep)).slice(1), chosen[1:]),
    ):
        back = from_arrow(changed, before)
        assert len(back) == len(expected)
        assert to_arrow(back).to_pylist() == rows_of(expected)


def test_dropped_records_do_not_reach_arrow_and_cannot_come_back() -> None:
    before = indexed([Rec(i) for i in range(4)])
    whole = to_arrow(before)
    dropped = before.with_columns(dropped=np.array([0, 1, 0, 1], np.uint8))
    assert to_arrow(dropped).column("offset").to_pylist() == [0, 2]
    with pytest.raises(NotRecordsError, match="offset 1 was not among"):
        from_arrow(whole, dropped)


def test_arrow_owns_its_memory() -> None:
    data = np.frombuffer(make([Rec(0, value=b"one")]) + make([Rec(1)], codec=1), np.uint8)
    kept = [
        to_arrow(group.records)
        for group in Reader(skip_corrupt=False).groups(Fetched("t", 0, 0, read_only(data)))
        if group.records is not None
    ]
    assert [batch.column("offset").to_pylist() for batch in kept] == [[0], [1]]


def replaced(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    columns = {n: batch.column(n) for n in batch.schema.names}
    columns[name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


HEADERS = SCHEMA.field("headers").type


def test_what_comes_back_is_checked() -> None:
    before = indexed([Rec(5 + i, headers=((b"h", b"v"),)) for i in range(3)], base_offset=5)
    batch = to_arrow(before)
    loose = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    one_null_key = pa.array([[{"key": None, "value": b""}], [], []], loose)
    one_null_header = pa.array([[None], [], []], loose)
    refused = {
        "expected a pyarrow.RecordBatch, found NoneType": None,
        "found Table": pa.Table.from_batches([batch]),
        "expected the columns offset, timestamp, key, value, headers, found key": batch.select(["key"]),
        "found timestamp, offset": batch.select(["timestamp", "offset", "key", "value", "headers"]),
        "column value has type string": replaced(batch, "value", pa.array(["a", "b", "c"])),
        "column offset has type int32": replaced(batch, "offset", pa.array([5, 6, 7], pa.int32())),
        "column headers has type list<item: binary>": replaced(
            batch, "headers", pa.array([[], [], []], pa.list_(pa.binary()))
        ),
        "column offset holds nulls": replaced(batch, "offset", pa.array([5, None, 7])),
        "column timestamp holds nulls": replaced(batch, "timestamp", pa.array([5, None, 7])),
        "column headers holds nulls": replaced(batch, "headers", pa.array([[], None, []], HEADERS)),
        "a header whose key is null": replaced(batch, "headers", one_null_key),
        "a null in place of a header": replaced(batch, "headers", one_null_header),
        "6 comes after 7": batch.take(pa.array([0, 2, 1])),
        "5 comes after 5": batch.take(pa.array([0, 0])),
        "offset 8 was not among": replaced(batch, "offset", pa.array([5, 6, 8])),
        "offset -1 was not among": replaced(batch, "offset", pa.array([-1, 6, 7])),
    }
    for message, wrong in refused.items():
        with pytest.raises(NotRecordsError, match=message):
            from_arrow(wrong, before)


def test_buffers_that_lie_are_refused() -> None:
    before = indexed([Rec(0), Rec(1)])
    batch = to_arrow(before)
    starts = np.array([0, 1 << 30, 5], np.int32)  # pyarrow itself looks at the first and the last only
    lying = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(starts), pa.py_buffer(b"short")])
    with pytest.raises(NotRecordsError, match="not a valid Arrow batch"):
        from_arrow(replaced(batch, "value", lying), before)


def test_columns_may_be_computed() -> None:
    before = indexed([Rec(0, value=b"abc"), Rec(1, value=None), Rec(2, value=b"")])
    batch = to_arrow(before)
    louder = replaced(batch, "value", pc.binary_join_element_wise(batch.column("value"), b"!", b""))
    back = to_arrow(from_arrow(louder, before))
    assert back.column("value").to_pylist() == [b"abc!", None, b"!"]


def test_decode_gives_every_record_and_then_the_fault() -> None:
    records = [Rec(i, key=b"k%d" % i) for i in range(10)]
    good = make(records[:5], codec=2) + make(records[5:])
    found = [row for batch in decode(good, topic="t", partition=0) for row in batch.to_pylist()]
    assert found == rows_of(records)
    found = []
    with pytest.raises(CorruptBatch):  # noqa: PT012
        for batch in decode(good + bytes(100), topic="t", partition=0, position=3):
            found += batch.to_pylist()
    assert found == rows_of(records[3:])
