"""Questions before what cannot be taken back. Only people are asked: a script has decided when it was written, and reads the warning in its log."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isthmus.cli import output

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def on_terminal() -> bool:
    """Whether somebody is there who can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(warning: str, question: str, yes: bool) -> bool:
    """Say the warning; on a terminal, unless ``yes``, ask. Without a terminal nobody is asked, and it goes on."""
    output.note(warning)
    return yes or not on_terminal() or typer.confirm(question, default=False, err=True)
