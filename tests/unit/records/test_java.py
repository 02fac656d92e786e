"""Apache Kafka's own Java code and ours read each other's batches.

What Java wrote lies in ``written_by_java`` (made by ``JavaBatches.java write``), so reading it needs no Java.
Letting Java read ours needs Java and the broker's jars, which the sandbox brings.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from batch_tools import NAMES, Rec, make, read_plain, renumbered, with_offset_header

from isthmus.records import Transcoder, stamp
from isthmus.rules.offset_header import OffsetHeader
from isthmus.sandbox import DEFAULT_KAFKA
from isthmus.sandbox.jars import fetch, kafka_jars
from isthmus.sandbox.java import find_java

HERE = Path(__file__).parent


def expected_of_java() -> list[Rec]:
    """What ``JavaBatches.java`` writes."""
    records = []
    for i in range(40):
        key = None if i % 7 == 0 else b"key%d" % i
        value = None if i % 5 == 0 else b"value " * (i % 9 * 10)
        headers = (f"é{i}".encode(), None if i % 3 == 0 else bytes([i, 255])), (b"", b"")
        records.append(Rec(500 + i, 1_700_000_000_000 + i % 4, key, value, headers if i % 2 else ()))
    return records


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compression", ["keep", "none"])
def test_we_read_what_java_wrote(name: str, compression: str) -> None:
    data = (HERE / "written_by_java" / f"java-{name}.batch").read_bytes()
    rules = (OffsetHeader("o"),)
    copied = Transcoder(rules, compression).feed(data, topic="t", partition=0, position=0)
    assert copied.fault is None
    (batch,) = copied.batches
    assert batch.runs.tolist() == [[500, 40]]
    stamp(batch.payload, 1, 1, 1, True)
    assert batch.payload[22] & 7 == (NAMES.index(name) if compression == "keep" else 0)
    assert read_plain(batch.payload.tobytes()) == renumbered(with_offset_header(expected_of_java(), b"o"))


def in_words(codec: str, rec: Rec) -> str:
    def word(piece: bytes | None) -> str:
        return "null" if piece is None else "x" + piece.hex()

    headers = [f"{word(key)}={word(value)}" for key, value in rec.headers]
    return " ".join([codec, str(rec.offset), str(rec.timestamp), word(rec.key), word(rec.value), *headers])


def test_java_reads_what_we_write(tmp_path: Path) -> None:
    java, jars = find_java(), fetch(kafka_jars(DEFAULT_KAFKA)).directory / "lib"
    records = expected_of_java()
    records += [Rec(540 + i, -1, b"k" * i, b"some text " * 50 * i) for i in range(300)]
    lines, files = [], []
    for name in NAMES:
        copied = Transcoder((OffsetHeader("o"),), name).feed(
            make(records), topic="t", partition=0, position=0, max_bytes=200_000
        )
        assert copied.fault is None
        written, offset = b"", 0
        for batch in copied.batches:
            stamp(batch.payload, 1, 1, offset, True)
            written += struct.pack(">q", offset) + batch.payload.tobytes()[8:]  # as a broker numbers them
            offset += batch.count
        files.append(tmp_path / name)
        files[-1].write_bytes(written)
        lines += [in_words(name, rec) for rec in renumbered(with_offset_header(records, b"o"))]
    found = subprocess.run(
        [java, "-cp", f"{jars}/*", HERE / "JavaBatches.java", "read", *files],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == lines
