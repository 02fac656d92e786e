"""The built-in rules that a link may name under ``rules:``, and the options of each, so that a file is judged without loading a rule.

Invariant: these are the files of ``isthmus.rules`` that declare ``LISTED``, with the options that they take; a rule reads its own from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

POLICIES = ("stop", "pass", "skip")
STYLES = ("site", "cluster", "provenance")


class Option(NamedTuple):
    """What an option may be: in words, as a test of YAML values, and for editors."""

    expected: str
    fits: Callable[[Any], bool]
    schema: dict[str, Any]


def _one_of(*words: str) -> Option:
    return Option(f"expected one of {', '.join(words)}", lambda value: value in words, {"enum": list(words)})


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_list_of_ids(value: Any) -> bool:
    return _is_name(value) or (isinstance(value, list) and all(_is_name(each) for each in value))


_SWITCH = Option("expected true or false", lambda value: isinstance(value, bool), {"type": "boolean"})
_NAME = Option("expected a name", _is_name, {"type": "string", "minLength": 1})
_NAME_OR_OFF = Option(
    "expected the key of a header, or off",
    lambda value: value in (None, False) or isinstance(value, str),
    {"anyOf": [{"type": "string"}, {"const": False}, {"type": "null"}]},
)
_IDS = Option(
    "expected a list of cluster ids, oldest first",
    _is_list_of_ids,
    {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string", "minLength": 1}}]},
)

BUILT_IN: dict[str, dict[str, Option]] = {
    "schema_ids": {"keys": _SWITCH, "values": _SWITCH, "unknown": _one_of(*POLICIES)},
    "invert": {
        "lost": _NAME,
        "survivor": _NAME,
        "header": _NAME,
        "value": _one_of(*STYLES),
        "offset": _NAME_OR_OFF,
        "lost_ids": _IDS,
        "survivor_ids": _IDS,
    },
}


def built_in_schema() -> dict[str, Any]:
    """A built-in rule with its options, as JSON Schema."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {
            name: {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": {key: option.schema for key, option in options.items()},
            }
            for name, options in BUILT_IN.items()
        },
    }
