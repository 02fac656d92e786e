"""Helpers that load a configuration from text, as the tests write it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.config import Config, Mistake, load
from isthmus.errors import ConfigError

SITES = """\
sites:
  a: {bootstrap: "a:9092"}
  b: {bootstrap: "b:9092"}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write isthmus.yaml into a fresh directory."""

    def write_file(text: str) -> Path:
        path = tmp_path / "isthmus.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def good(write: Callable[[str], Path]) -> Callable[[str], Config]:
    return lambda text: load(write(text))


@pytest.fixture
def mistakes(write: Callable[[str], Path]) -> Callable[[str], list[Mistake]]:
    """All mistakes of a configuration that must have some."""

    def find(text: str) -> list[Mistake]:
        path = write(text)
        with pytest.raises(ConfigError) as caught:
            load(path)
        found = caught.value.mistakes
        assert all(set(m) == {"file", "line", "column", "path", "problem", "hint"} for m in found)
        assert all(m["file"] == str(path) for m in found)
        return found  # type: ignore[return-value]

    return find


@pytest.fixture
def lines(mistakes: Callable[[str], list[Mistake]]) -> Callable[[str], list[str]]:
    """The mistakes as ``line:column path: problem; hint``."""

    def find(text: str) -> list[str]:
        return [
            f"{m['line']}:{m['column']} {m['path']}: {m['problem']}" + (f"; {m['hint']}" if m["hint"] else "")
            for m in mistakes(text)
        ]

    return find


@pytest.fixture
def site(lines: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The mistakes of a site whose body begins on line 3 at column 5."""
    return lambda body: lines("sites:\n  a:\n" + textwrap.indent(textwrap.dedent(body), "    "))


@pytest.fixture
def link(lines: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The mistakes of a link whose body begins on line 8 at column 5 (from, to and topics are given)."""

    def find(body: str, topics: str = "topics: [x]") -> list[str]:
        head = SITES + "links:\n  l:\n    from: a\n    " + ("to: b\n" if "\nto:" not in "\n" + body else "\n")
        head += f"    {topics}\n"
        return lines(head.replace("    \n", "") + textwrap.indent(textwrap.dedent(body), "    "))

    return find
