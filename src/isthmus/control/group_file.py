"""Positions of groups as files: CSV and JSON, read and written.

Invariant: what was written is read back the same. CSV has the columns of Kafka's own tool (group, topic, partition, offset)
and one more for metadata; its heading may be missing. Names and metadata are other people's words: a cell that a spreadsheet would take for a formula
begins with an apostrophe, which is taken away again when it is read.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

# What a formula begins with, for one spreadsheet or another; none is empty.
_FORMULA = tuple("=+-@\t\r\n|%")
COLUMNS = ("group", "topic", "partition", "offset", "metadata")


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One committed offset of one group."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""


def to_csv(entries: Iterable[Entry]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(e.group), _cell(e.topic), e.partition, e.offset, _cell(e.metadata)] for e in entries)
    return out.getvalue()


def _formula(text: str) -> bool:
    return text.lstrip("'")[:1] in _FORMULA


def _cell(text: str) -> str:
    return f"'{text}" if text and _formula(text) else text


def _text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _formula(cell) else cell


def to_json(entries: Iterable[Entry]) -> str:
    return json.dumps([asdict(entry) for entry in entries], indent=2, ensure_ascii=False) + "\n"


def read_entries(text: str) -> list[Entry]:
    """Entries of a file of either form; ``ValueError`` names the line, or the item, that is wrong."""
    if text.lstrip().startswith(("[", "{")):
        return _read_json(text)
    found = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or (number == 1 and row[0].strip() == COLUMNS[0]):
            continue
        if not 4 <= len(row) <= 5:
            raise ValueError(f"line {number}: expected {','.join(COLUMNS)}")
        group, topic, partition, offset = (cell.strip() for cell in row[:4])
        found.append(_entry(f"line {number}", _text(group), _text(topic), partition, offset, *map(_text, row[4:])))
    return found


def _read_json(text: str) -> list[Entry]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    if not isinstance(document, list):
        raise ValueError("expected a list of positions")
    found = []
    for number, item in enumerate(document, 1):
        if not isinstance(item, dict) or not set(COLUMNS[:4]) <= item.keys() <= set(COLUMNS):
            raise ValueError(f"item {number}: expected {', '.join(COLUMNS)}")
        group, topic, partition, offset = (item[name] for name in COLUMNS[:4])
        found.append(_entry(f"item {number}", group, topic, partition, offset, item.get("metadata") or ""))
    return found


def _entry(where: str, group: object, topic: object, partition: object, offset: object, metadata: object = "") -> Entry:
    if not group or not topic or not isinstance(group, str) or not isinstance(topic, str):
        raise ValueError(f"{where}: a group and a topic are needed")
    numbers = []
    for name, value in (("partition", partition), ("offset", offset)):
        if isinstance(value, bool) or not str(value).isdecimal():
            raise ValueError(f"{where}: {name} must be a whole number, not {value!r}")
        numbers.append(int(str(value)))
    return Entry(group, topic, numbers[0], numbers[1], str(metadata))
