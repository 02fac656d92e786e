"""A YAML scalar whose type is decided by the field that receives it.

Invariant: a ``Scalar`` *is* the literal text, so a text field never loses a leading zero, a version
such as ``1.10`` or a topic called ``no``; ``value`` is what YAML 1.2 makes of that text, for the places
that have no type of their own (the options of a rule).
"""

from __future__ import annotations

import re
from typing import Any

# The core schema of YAML 1.2, and the on/off/yes/no of YAML 1.1 only where a field wants a switch.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Scalar(str):
    """Literal text with its YAML value beside it."""

    __slots__ = ("value",)
    value: Any

    @classmethod
    def quoted(cls, text: str) -> Scalar:
        scalar = cls(text)
        scalar.value = text
        return scalar

    @classmethod
    def plain(cls, text: str) -> Scalar | None:
        """What an unquoted scalar means; None for YAML's null."""
        if text in _NULL:
            return None
        scalar = cls(text)
        scalar.value = text
        if text in _BOOLEANS:
            scalar.value = _BOOLEANS[text]
        elif _INTEGER.fullmatch(text):
            scalar.value = as_integer(text)
        elif _FLOAT.fullmatch(text):
            scalar.value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return scalar


def as_integer(text: str) -> int | None:
    """The integer that YAML reads in this text, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    bases = {"0o": 8, "0x": 16}
    return int(text, bases.get(text[:2], 10))


def as_switch(text: str) -> bool | None:
    """The on or off that a person means by this text, or None."""
    return _SWITCHES.get(text.casefold())


def typed(data: Any) -> Any:
    """The same data with every scalar replaced by its YAML value."""
    if isinstance(data, Scalar):
        return data.value
    if isinstance(data, dict):
        return {str(key): typed(item) for key, item in data.items()}
    if isinstance(data, list):
        return [typed(item) for item in data]
    return data
