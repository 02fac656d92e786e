"""The template that names a topic at its destination.

Invariant: the only variables are ``{topic}``, ``{source}``, ``{target}`` and ``{link}``, and everything
else is copied as it stands. With ``{topic}`` in it, two source topics never get the same name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from isthmus.config.mistakes import did_you_mean, wrong
from isthmus.config.names import INTERNAL_PREFIXES

VARIABLES = ("topic", "source", "target", "link")
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_LITERAL = re.compile(r"[a-zA-Z0-9._-]*")


def _template(value: Any) -> str:
    if not isinstance(value, str) or value == "":
        raise wrong('expected a template such as "{source}.{topic}"')
    for name in _VARIABLE.findall(value):
        if name not in VARIABLES:
            raise wrong("unknown variable in the template", did_you_mean(name, VARIABLES))
    rest = _VARIABLE.sub("", value)
    if "{" in rest or "}" in rest:
        raise wrong("a brace without its partner", 'variables look like "{topic}"')
    if not _LITERAL.fullmatch(rest):
        raise wrong('a topic\'s name has letters, digits, ".", "_" and "-" only')
    if value.startswith(INTERNAL_PREFIXES):
        raise wrong("names that begin with __ or _isthmus. belong to Kafka and Isthmus")
    return str(value)


def fill(template: str, *, topic: str, source: str, target: str, link: str) -> str:
    """The template with its variables filled in."""
    values = {"topic": topic, "source": source, "target": target, "link": link}
    return _VARIABLE.sub(lambda match: values[match[1]], template)


Template = Annotated[str, BeforeValidator(_template)]
