"""The one module that writes to the terminal.

Invariant: results go to stdout and everything else (errors, notes, progress) to stderr, so a pipe only
ever carries results. With ``--json`` stdout is one JSON document, errors included. Text of users is
never read as markup or as names of emoji, and lines are not wrapped: a place in a file must stay clickable and greppable. What a terminal
would obey (a name, a message, an answer of a registry may hold it) is shown and not sent, in JSON too.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from isthmus.errors import ConfigError, Interrupted, IsthmusError

if TYPE_CHECKING:  # rich costs start-up time, so it is imported by the functions that print
    from rich.console import Console
    from rich.table import Table

DEBUG_VARIABLE = "ISTHMUS_DEBUG"
# Off a terminal rich assumes 80 columns and would cut tables; a log or a pipe has no such limit.
_PIPE_WIDTH = 400


@lru_cache(maxsize=2)
def console(*, stderr: bool = False) -> Console:
    """The console of stdout or stderr."""
    from rich.console import Console
    from rich.segment import Segment

    class Safe(Console):
        """Whatever is printed, by whichever way, has passed ``safe``; control of the terminal is rich's own."""

        def render(self, *args: Any, **kwargs: Any) -> Any:
            for segment in super().render(*args, **kwargs):
                yield segment if segment.control else Segment(safe(segment.text), segment.style)

    # The terminal's own size is looked at each time; a COLUMNS from its start would outlive a resize.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    plain: dict[str, Any] = {
        "stderr": stderr, "highlight": False, "markup": False, "emoji": False, "_environ": environment,
    }  # fmt: skip
    made = Safe(**plain)
    return made if made.is_terminal else Safe(**plain, width=_PIPE_WIDTH)


# C0 but for tabs and ends of lines, DEL, C1, what turns the direction of writing, odd ends of lines, halves of characters.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


_NUMBER = re.compile(r"-|-?[0-9][0-9.,]*")


def safe(text: str) -> str:
    """The same with each character that a terminal would obey written out."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _json(data: Any, indent: int | None = None) -> str:
    text = json.dumps(data, indent=indent, default=str, ensure_ascii=False)
    # What is left of such characters stands inside strings, where JSON has its own way to write them.
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def emit(data: Any, json_mode: bool) -> None:
    """Print a result.

    Text is printed as it is, a mapping as two columns, a list of mappings as a table, and anything else
    as rich prints it. With ``json_mode`` it is one JSON document.
    """
    if json_mode:
        sys.stdout.write(_json(data, indent=2) + "\n")
    elif isinstance(data, str):
        console().print(safe(data), soft_wrap=True)
    elif isinstance(data, Mapping):
        console().print(_columns([[str(key), _cell(value)] for key, value in data.items()]))
    elif isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        console().print(table(data))
    else:
        console().print(data, soft_wrap=True)


def emit_line(data: Any) -> None:
    """Print one JSON document on one line: for verbs that go on reporting, and for errors, which may come after such lines."""
    sys.stdout.write(_json(data) + "\n")
    sys.stdout.flush()


def write(text: str) -> None:
    """Print text to be read by other programs, as it is."""
    sys.stdout.write(text)


def note(text: str) -> None:
    """Say something that is not a result."""
    console(stderr=True).print(safe(text), soft_wrap=True)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Table:
    """Rows as a table without lines, its columns in the given order or in that of the first row."""
    names = list(columns or (rows[0] if rows else ()))
    return _columns([[_cell(row.get(name)) for name in names] for row in rows], names)


def _columns(rows: list[list[str]], header: Sequence[str] = ()) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD if header else None, show_header=bool(header), pad_edge=False)
    for number in range(len(header or (rows[0] if rows else ()))):
        # A number is never broken: half of it would be another number.
        whole = bool(header) and all(_NUMBER.fullmatch(row[number]) for row in rows)
        style = "bold" if number == 0 else ""
        made.add_column(header[number] if header else "", style=style, overflow="fold", no_wrap=whole)
    for row in rows:
        made.add_row(*[Text(cell) for cell in row])
    return made


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(str(value))


def print_error(error: IsthmusError, json_mode: bool) -> None:
    """An error that we meant: a clean message, no traceback."""
    _traceback_if_wanted()
    if json_mode:
        emit_line(error.to_json())
        return
    if isinstance(error, Interrupted):  # what the user asked for is no error
        note(error.message)
        return
    lines = error.message.splitlines() or [type(error).__name__]
    if isinstance(error, ConfigError) and error.mistakes:
        for line in lines:
            note(line)
        count = len(error.mistakes)
        _red(f"{count} mistake{'s' if count > 1 else ''}")
        return
    _red(f"error: {lines[0]}")
    for line in lines[1:]:
        note(line)


def print_unexpected(error: BaseException, json_mode: bool) -> None:
    """An error that nobody foresaw: one line, and how to see more."""
    _traceback_if_wanted()
    first = (str(error).splitlines() or [""])[0]
    text = f"unexpected {type(error).__name__}" + (f": {first}" if first else "")
    if json_mode:
        emit_line({"error": "Unexpected", "message": text})
    else:
        _red(f"error: {text}")
    if not _debugging():
        note(f"run with {DEBUG_VARIABLE}=1 for the traceback")


def print_usage_error(error: Any, json_mode: bool) -> None:
    """A mistake on the command line, as Typer raises it."""
    if type(error).__name__ == "NoArgsIsHelpError":  # it has printed the help already
        return
    if json_mode:
        emit_line({"error": "UsageError", "message": error.format_message()})
        return
    context = getattr(error, "ctx", None)
    if context is not None:
        console(stderr=True).print(context.get_usage(), soft_wrap=True)
        note(f"Try '{context.command_path} --help'.")
    _red(f"error: {error.format_message()}")


def _red(text: str) -> None:
    console(stderr=True).print(safe(text), style="red", soft_wrap=True)


def _debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def _traceback_if_wanted() -> None:
    # The standard traceback, because it never prints the values of variables.
    if _debugging():
        traceback.print_exc(file=sys.stderr)


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """A bar on stderr while the block runs, on a terminal only; call what it yields with each advance."""
    if not console(stderr=True).is_terminal:
        yield lambda _: None
        return
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(safe(description)), total=total)
        yield lambda amount: bar.advance(task, amount)
