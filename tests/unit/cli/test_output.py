"""What reaches the terminal: nothing that it would obey, nothing that rich would read as markup or as an emoji."""

from __future__ import annotations

import io
import json

import pytest

from isthmus.cli import output
from isthmus.cli.link_table import link_table
from isthmus.engine.snapshot import LinkState, PartitionState
from isthmus.errors import IsthmusError

EVIL = "a:b:smile: [red]x[/red] \x1b[2J\x1b]0;title\x07 \x9b31m \x08 \u202e"
SHOWN = "a:b:smile: [red]x[/red] \\x1b[2J\\x1b]0;title\\x07 \\x9b31m \\x08 \\u202e"


@pytest.fixture(autouse=True)
def _fresh():
    output.console.cache_clear()
    yield
    output.console.cache_clear()


def test_text_and_tables(capsys):
    output.emit(EVIL, json_mode=False)
    output.emit({"name": EVIL}, json_mode=False)
    output.emit([{"name": EVIL}], json_mode=False)
    output.note(EVIL)
    output.print_error(IsthmusError(EVIL), json_mode=False)
    out, err = capsys.readouterr()
    assert (out.count(SHOWN), err.count(SHOWN)) == (3, 2)
    assert not any(ord(c) in (7, 8, 27, 0x9B, 0x202E) for c in out + err)


def test_whatever_is_printed_past_them(capsys):
    fault = PartitionState("t", 0, "t", 1, 2, 1, fault="RuleFailed", message=EVIL)
    output.console().print(link_table([LinkState("l", "a", "b", "running", partitions=[fault], trouble=[EVIL])]))
    out, _ = capsys.readouterr()
    assert "\\x1b[2J" in out
    assert not any(c in out for c in "\x1b\x07\x9b\u202e")


def test_the_colours_of_a_terminal_stay(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    console = output.console()
    monkeypatch.setattr(console, "file", stream)
    console.print(EVIL, style="red")
    assert stream.getvalue().startswith("\x1b[31m")
    assert stream.getvalue().count("\x1b") == 2


@pytest.mark.parametrize("emit", [output.emit_line, lambda data: output.emit(data, json_mode=True)])
def test_json_says_the_same_and_holds_no_controls(capsys, emit):
    emit({EVIL: [EVIL, "ü", "\ud800"]})
    out, _ = capsys.readouterr()
    assert json.loads(out) == {EVIL: [EVIL, "ü", "\ud800"]}
    assert "ü" in out
    assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in out)
