"""The rules of a link as they are written; the rules themselves live in ``isthmus.rules``.

Invariant: a rule is ``module:function``, or one built-in name with its options; the options are plain
YAML values.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from isthmus.config.mistakes import wrong
from isthmus.config.scalar import typed

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_BUILT_IN = re.compile(r"[a-z][a-z0-9_-]*")
_EXPECTED = "expected module:function, or a built-in rule with its options"


def _rule(value: Any) -> str | dict[str, dict[str, Any]]:
    if isinstance(value, str):
        if _FUNCTION.fullmatch(value):
            return str(value)
        hint = "a built-in rule is a key with its options below it" if _BUILT_IN.fullmatch(value) else ""
        raise wrong(_EXPECTED, hint)
    if not isinstance(value, dict):
        raise wrong(_EXPECTED)
    if len(value) != 1:
        raise wrong("expected one rule in each entry of the list", "begin each rule with its own dash", found=False)
    ((name, options),) = value.items()
    if not isinstance(name, str) or not _BUILT_IN.fullmatch(name):
        raise wrong(_EXPECTED, found=False, at=(name,))
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise wrong("expected the rule's options as a mapping", at=(name,))
    return {str(name): typed(options)}


Rule = Annotated[
    str | dict[str, dict[str, Any]],
    BeforeValidator(_rule),
    WithJsonSchema(
        {
            "title": "rule",
            "anyOf": [
                {"type": "string", "pattern": f"^{_FUNCTION.pattern}$"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": {"type": ["object", "null"]},
                },
            ],
        }
    ),
]
