"""What the answers of a schema registry look like: each is read by one of these, or it is an error that says what was expected.

Invariant: what is read here is what it is taken for: text that can be written again, numbers that fit where they go. Everything else raises
``ValueError``, which the client (registry.py) turns into an error that names the registry and the request.
"""

from __future__ import annotations

import re
from typing import Any

# Ids stand in records as four bytes with a sign.
_MOST = 1 << 31
_SETTING = re.compile("[A-Z_]{0,40}")


def setting(_: str, value: Any) -> str:
    """A mode or a compatibility level that was written down; empty for none of its own."""
    if not isinstance(value, str) or not _SETTING.fullmatch(value):
        raise ValueError(f"no mode and no level: {str(value)[:40]!r}")
    return value


def anything(value: Any) -> Any:
    """An answer that nobody looks at."""
    return value


def member(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"an object with {name!r} was expected, and this is {_kind(value)}")
    return value.get(name)


def text(value: Any, what: str) -> str:
    try:
        if isinstance(value, str):
            value.encode()
            return value
    except UnicodeEncodeError:
        pass  # half of a character: nobody can write that again
    raise ValueError(f"{what} should be text, and is {_kind(value)}")


def number(value: Any, what: str) -> int:
    if type(value) is int and 0 <= value < _MOST:
        return value
    raise ValueError(f"{what} should be a number, and is {_kind(value)}")


def several(value: Any, what: str) -> list[Any]:
    if value is None:
        return []  # what some registries say when there are none
    if isinstance(value, list):
        return value
    raise ValueError(f"a list of {what} was expected, and this is {_kind(value)}")


def names(value: Any) -> list[str]:
    """Subjects."""
    return [text(each, "a subject") for each in several(value, "subjects")]


def numbers(value: Any) -> list[int]:
    """Versions of a subject."""
    return [number(each, "a version") for each in several(value, "versions")]


def id_of(value: Any) -> int:
    """The id of a schema."""
    return number(member(value, "id"), "'id'")


def version_of(value: Any) -> int:
    """The version of a subject."""
    return number(member(value, "version"), "'version'")


def place_of(value: Any) -> tuple[str, int]:
    """A subject, and a version of it."""
    return text(member(value, "subject"), "'subject'"), version_of(value)


def places(value: Any) -> list[tuple[str, int]]:
    """Where a schema is used."""
    return [place_of(each) for each in several(value, "subjects with versions")]


def schema_of(value: Any) -> tuple[str, str]:
    """The type of a schema, and the schema."""
    kind = member(value, "schemaType")
    return text("AVRO" if kind is None else kind, "'schemaType'"), text(member(value, "schema"), "'schema'")


def mode(value: Any) -> str:
    return _word(value, "mode")


def level(value: Any) -> str:
    return _word(value, "compatibilityLevel")


def is_compatible(value: Any) -> bool:
    return member(value, "is_compatible") is not False


def _word(value: Any, name: str) -> str:
    found = text(member(value, name), repr(name))
    if not found or not _SETTING.fullmatch(found):
        raise ValueError(f"{name!r} should be a word such as FULL or READWRITE, and is {found[:40]!r}")
    return found


def _kind(value: Any) -> str:
    """What a value is, in the words of JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {list: "a list", dict: "an object", str: "the text ", int: "the number ", float: "the number "}
    return kinds[type(value)] + ("" if isinstance(value, list | dict) else f"{value!r:.40}")
