"""The rules of a link as they are written; the rules themselves live in ``isthmus.rules``.

Invariant: a rule is ``module:function``, or one built-in name with options that it has (built_in_rules.py); the options are plain
YAML values. No rule is loaded to find that out.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from isthmus.config.built_in_rules import BUILT_IN, built_in_schema
from isthmus.config.mistakes import Problem, did_you_mean, several, wrong
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
    known = BUILT_IN.get(str(name))
    if known is None:
        hint = did_you_mean(name, BUILT_IN)
        raise several([Problem((str(name),), "there is no such rule", hint, at_key=True)])
    plain = typed(options)
    problems = [
        Problem((str(name), key), "unknown option", did_you_mean(key, known), at_key=True)
        if key not in known
        else Problem((str(name), key), known[key].expected)
        for key, option in plain.items()
        if key not in known or not known[key].fits(option)
    ]
    if problems:
        raise several(problems)
    return {str(name): plain}


Rule = Annotated[
    str | dict[str, dict[str, Any]],
    BeforeValidator(_rule),
    WithJsonSchema(
        {
            "title": "rule",
            "anyOf": [
                {"type": "string", "pattern": f"^{_FUNCTION.pattern}$"},
                built_in_schema(),
            ],
        }
    ),
]
