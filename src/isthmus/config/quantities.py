"""Numbers as people write them: durations, byte rates, counts and switches.

Invariant: a quantity is never guessed. A duration in the file names its unit, a rate is in bytes, and
what is negative, zero or out of range is refused here rather than by a broker later. From Python code a
bare number is fine: seconds, or bytes a second.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from isthmus.config.mistakes import wrong
from isthmus.config.scalar import as_integer, as_switch

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
_BYTES = {
    "": 1, "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*(?:/\s*s)?")


def parse_duration(value: Any) -> float:
    """Seconds from ``500ms``, ``30s``, ``5m``, ``1h30m`` or ``2d``."""
    seconds: float | None = None
    hint = ""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        text = value.strip()
        if text.startswith("-"):
            raise wrong("must be more than 0")
        if _DURATION.fullmatch(text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
        elif _NUMBER.fullmatch(text):
            hint = 'name the unit, as in "30s" or "500ms"'
    if seconds is None or not math.isfinite(seconds):
        raise wrong("expected a duration such as 500ms, 30s, 5m or 1h30m", hint)
    if seconds <= 0:
        raise wrong("must be more than 0")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that :func:`parse_duration` reads back: ``90`` is ``1m30s``."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    rest, text = milliseconds // 1000, ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text


def parse_rate(value: Any) -> int:
    """Bytes a second from ``1000000``, ``10 MB/s`` or ``64MiB``."""
    hint = ""
    rate: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        rate = float(value)
    elif isinstance(value, str):
        if value.strip().startswith("-"):
            raise wrong("must be more than 0", "leave it out for no limit")
        match = _RATE.fullmatch(value.strip())
        if match and match[2] in _BYTES:
            rate = float(match[1]) * _BYTES[match[2]]
        elif match:
            hint = "units are B, kB, MB, GB, KiB, MiB and GiB: bytes, not bits"
    if rate is None or not math.isfinite(rate):
        raise wrong('expected bytes a second such as 1000000, "10 MB/s" or "64MiB"', hint)
    if rate < 1:
        raise wrong("must be more than 0", "leave it out for no limit")
    return int(rate)


def parse_size(value: Any) -> int:
    """Bytes from ``1000000``, ``10 MB`` or ``64MiB``."""
    if isinstance(value, str) and "/" in value:
        raise wrong('expected bytes such as 1000000, "10 MB" or "64MiB"')
    return parse_rate(value)


def _whole(minimum: int, maximum: int) -> Any:
    def parse(value: Any) -> int:
        number = as_integer(value.strip()) if isinstance(value, str) else value
        if not isinstance(number, int) or isinstance(number, bool):
            raise wrong("expected a whole number")
        if number < minimum:
            raise wrong(f"must be {minimum} or more")
        if number > maximum:
            raise wrong(f"must be {maximum} or less")
        return number

    return parse


def _switch(value: Any) -> bool:
    switch = as_switch(value) if isinstance(value, str) else value
    if not isinstance(switch, bool):
        raise wrong("expected true or false")
    return switch


def parse_timestamp(value: Any) -> datetime:
    """A moment from ISO-8601 text with its zone."""
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise wrong("expected an ISO-8601 time with its zone such as 2026-01-31T08:00:00Z")
    if moment.tzinfo is None:
        raise wrong("the time has no zone", 'add "Z" for UTC or an offset such as "+02:00"')
    return moment


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": rf"^(?:{_DURATION_PART.pattern})+$", "title": "duration"}),
]
Rate = Annotated[
    int,
    BeforeValidator(parse_rate),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {
                    "type": "string",
                    "pattern": r"^[0-9]+(\.[0-9]+)?\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)?\s*(/\s*s)?$",
                },
            ],
            "title": "bytes a second",
        }
    ),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)?$"},
            ],
            "title": "bytes",
        }
    ),
]
SWITCH_SCHEMA: dict[str, Any] = {"enum": [True, False, "on", "off", "yes", "no"], "title": "true or false"}
Switch = Annotated[bool, BeforeValidator(_switch), WithJsonSchema(SWITCH_SCHEMA)]
Timestamp = Annotated[
    datetime,
    BeforeValidator(parse_timestamp),
    WithJsonSchema({"type": "string", "format": "date-time", "title": "ISO-8601 time with zone"}),
]

# Kafka counts partitions, replicas and offsets in signed 32, 16 and 64 bit numbers.
Count = Annotated[
    int,
    BeforeValidator(_whole(1, 2**31 - 1)),
    WithJsonSchema({"type": "integer", "minimum": 1, "title": "whole number"}),
]
ReplicationFactor = Annotated[
    int,
    BeforeValidator(_whole(1, 2**15 - 1)),
    WithJsonSchema({"type": "integer", "minimum": 1, "title": "whole number"}),
]
Partition = Annotated[int, BeforeValidator(_whole(0, 2**31 - 1)), WithJsonSchema({"type": "integer", "minimum": 0})]
Offset = Annotated[
    int,
    BeforeValidator(_whole(0, 2**63 - 1)),
    WithJsonSchema({"type": "integer", "minimum": 0, "title": "whole number"}),
]
