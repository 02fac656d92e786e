"""Lengths of time on the command line."""

from __future__ import annotations

from isthmus.config.quantities import parse_duration
from isthmus.errors import UsageError


def seconds_of(option: str, text: str) -> float:
    """The seconds that an option says, or a usage error that names it."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
