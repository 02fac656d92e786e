"""Options for Spark, passed on as they are.

Invariant: every key begins with ``spark.``; anything else would be ignored by Spark without a word.
Values that look like credentials are masked when the configuration is printed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from isthmus.config.mistakes import Problem, several, wrong
from isthmus.config.secret import MASK

_OPTION = re.compile(r"spark(\.[A-Za-z0-9_-]+)+")
# The same words as Spark's own spark.redaction.regex.
_CREDENTIAL = re.compile(r"(?i)secret|password|token|access[.]?key")


def _options(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong("expected a mapping of Spark options such as spark.executor.memory: 2g")
    problems, options = [], {}
    for key, item in value.items():
        if not isinstance(key, str) or not _OPTION.fullmatch(key):
            if isinstance(item, dict):
                hint = "options are flat: spark.executor.memory: 2g"
            else:
                hint = f'did you mean "spark.{key}"?' if _OPTION.fullmatch(f"spark.{key}") else ""
            problems.append(Problem((key,), 'a Spark option begins with "spark."', hint, at_key=True))
        elif isinstance(item, bool):
            options[str(key)] = str(item).lower()  # Spark speaks Java
        elif isinstance(item, (str, int, float)):
            options[str(key)] = str(item)
        else:
            problems.append(Problem((key,), "expected one value", "options are flat: spark.executor.memory: 2g"))
    if problems:
        raise several(problems)
    return options


def is_credential(option: str) -> bool:
    """Whether an option's value is nobody else's business, by its name."""
    return _CREDENTIAL.search(option) is not None


def masked(options: dict[str, str]) -> dict[str, str]:
    """The options as they may be printed."""
    return {key: MASK if is_credential(key) else value for key, value in options.items()}


SparkOptions = Annotated[
    dict[str, str],
    BeforeValidator(_options),
    PlainSerializer(masked, return_type=dict[str, str]),
    WithJsonSchema(
        {
            "type": "object",
            "title": "Spark options",
            "patternProperties": {r"^spark\.": {"type": ["string", "number", "boolean"]}},
            "additionalProperties": False,
        }
    ),
]
