"""Positions against the plain definition: the first copied record at or after the committed offset."""

from __future__ import annotations

import csv
import io
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.control.group_file import Entry, read_entries, to_csv, to_json
from isthmus.control.translation import Position, Search, Target, by_map, maps_between, source_offset
from isthmus.engine.offset_map import ChunkWriter
from isthmus.kafka.cluster import NO_ID
from isthmus.kafka.peek import Seen

HEADER = "isthmus-offset"


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(source, destination) offsets of copied records: both ascend, with holes on either side."""
    steps = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=60))
    source = target = -1
    pairs = []
    for here, there in steps:
        source, target = source + here, target + there
        pairs.append((source, target))
    return pairs


def expected(pairs: list[tuple[int, int]], offset: int) -> tuple[int | None, bool]:
    later = [(s, t) for s, t in pairs if s >= offset]
    return (later[0][1], later[0][0] == offset) if later else (None, False)


@given(logs(), st.data())
def test_by_map(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    ids = {("t", 0): (uuid.UUID(int=1), uuid.UUID(int=2))}
    writer = ChunkWriter("t", 0, *ids["t", 0])
    runs = [np.array([[s, t, 1]], np.int64) for s, t in pairs]
    records: list[tuple[bytes | None, bytes | None]] = [*writer.stage(runs, 0, pairs[-1][0] + 1)]
    # Copies of the same partition in another topic, and of another topic of the same name, say nothing of this one.
    for strange in ((uuid.UUID(int=1), uuid.UUID(int=9)), (uuid.UUID(int=8), uuid.UUID(int=2))):
        other = ChunkWriter("t", 0, *strange)
        records.extend(other.stage([np.array([[0, 0, 1000]], np.int64)], 0, 1000))
    known = maps_between(records, ids)["t", 0]
    offsets = list(range(pairs[-1][0] + 3))
    end = pairs[-1][1] + data.draw(st.integers(1, 5))
    start = data.draw(st.integers(0, pairs[-1][1]))
    for offset, found in zip(offsets, by_map(known, Target(start, end), offsets), strict=True):
        place, exact = expected(pairs, offset)
        if place is None:
            # Behind the last copied record, and not behind what may still come.
            assert found == Position(max(start, pairs[-1][1] + 1), "map", False, False)
        else:
            assert found == Position(max(start, place), "map", exact and place >= start, True)


def test_by_map_where_nothing_is_copied() -> None:
    assert by_map(None, Target(5, 9), [0, 7]) == [Position(9, "map", False, False)] * 2
    assert maps_between([(b"t/0/" + NO_ID.hex.encode() + b"/0", None)], {}) == {}


@given(logs(), st.integers(1, 7), st.data())
def test_by_header(pairs: list[tuple[int, int]], batch: int, data: st.DataObject) -> None:
    """However large batches are, and wherever it starts, the search ends at the right place."""
    end = pairs[-1][1] + data.draw(st.integers(1, 6))
    start = data.draw(st.integers(0, min(2, end)))
    pairs = [(s, t) for s, t in pairs if t >= start]
    records = [Seen(t, 0, ((b"other", None), (HEADER.encode(), s.to_bytes(8, "big")))) for s, t in pairs]
    last = pairs[-1][0] if pairs else 0
    wanted = data.draw(st.integers(0, last + 3))
    search = Search.by_header(wanted, HEADER, Target(start, end), data.draw(st.integers(start, end)))
    looks = 0
    while search.answer is None:
        looks += 1
        assert looks < 60
        assert not search.lost
        # A batch that covers the place, the records of which may begin before it, or nothing when there is no more.
        first = search.at - search.at % batch
        inside = [r for r in records if first <= r.offset < first + batch]
        search.show(inside, min(first + batch, end) if search.at < end else search.at)
    place, exact = expected(pairs, wanted)
    if place is None:
        assert not search.answer.copied
        assert (pairs[-1][1] if pairs else start - 1) < search.answer.offset <= end
    else:
        assert search.answer == Position(place, "header", exact, True)


def test_headers_that_lead_nowhere() -> None:
    search = Search.by_header(5, HEADER, Target(0, 10), 3)
    search.show([Seen(3, 0, ())], 4)
    assert search.lost
    assert source_offset(Seen(0, 0, ((HEADER.encode(), b"12345678"),)), HEADER) == 12345678
    assert source_offset(Seen(0, 0, ((HEADER.encode(), b"odd"),)), HEADER) is None
    assert source_offset(Seen(0, 0, ((HEADER.encode(), None), (b"x", b"7"))), HEADER) is None


@given(
    st.lists(
        st.builds(
            Entry,
            st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1)
            | st.sampled_from(["=1+1", "'=1", "''-x", "'x", "@sum", "+1", "-1"]),
            st.from_regex(r"[a-z.]{1,9}", fullmatch=True),
            st.integers(0, 9),
            st.integers(0, 2**63 - 1),
            st.text(st.characters(exclude_categories=["Cs", "Cc"])),
        ).filter(lambda entry: entry.group != "group"),
        max_size=5,
    )
)
def test_files_are_read_as_they_were_written(entries: list[Entry]) -> None:
    assert read_entries(to_csv(entries)) == entries
    cells = [cell for row in csv.reader(io.StringIO(to_csv(entries))) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "|", "%"))]
    assert read_entries(to_json(entries)) == entries


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g,t,0", "line 1: expected"),
        ("group,topic,partition,offset\ng,t,0,-1\n", "line 2: offset"),
        ("g,,0,1", "line 1: a group and a topic"),
        ('[{"group": "g"}]', "item 1: expected"),
        ('[{"group": "g", "topic": "t", "partition": true, "offset": 1}]', "item 1: partition"),
        ('{"a": 1}', "expected a list"),
        ("[1,\n", "line 2"),
    ],
)
def test_files_that_are_wrong_say_where(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_entries(text)


# -- what is told of a position -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (Position(7, "map", True, True), "that record"),
        (Position(7, "map", False, True), "the next record"),
        (Position(7, "map", False, False), "the end"),
        (Position(7, "header", False, True), "the next record"),
        (Position(7, "timestamp", False, True), "at or before"),
        (Position(7, "timestamp", False, False), "the end"),
        (Position(7, "two-way", True, True), "that record"),
        (Position(7, "two-way", False, False), "the first unread"),
    ],
)
def test_what_it_lands_on(position: Position, words: str) -> None:
    assert position.lands_on == words
