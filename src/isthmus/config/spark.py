"""Options for Spark, passed on as they are.

Invariants: every key begins with ``spark.``; anything else would be ignored by Spark without a word. Secrets, and values that look like
credentials, are masked when the configuration is printed. Work that leaves this machine, with the sites' passwords in it, goes to a master that knows
us, over lines that nobody can read; or the file says that it may go without.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from isthmus.config.mistakes import Problem, several, wrong
from isthmus.config.names import is_loopback
from isthmus.config.secret import MASK, Secret

_OPTION = re.compile(r"spark(\.[A-Za-z0-9_-]+)+")
# The same words as Spark's own spark.redaction.regex.
_CREDENTIAL = re.compile(r"(?i)secret|password|token|access[.]?key")


MASTER, AUTHENTICATE = "spark.master", "spark.authenticate"
# Each of these keeps what travels between driver and executors from being read.
ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
# An option of our own: the master may do without.
OPEN = "spark.isthmus.open"

Options = dict[str, str | Secret]


def open_master(options: Mapping[str, str | Secret]) -> str:
    """What is missing for work to go to the master, with the sites' passwords in it; empty if nothing is."""
    master = str(options.get(MASTER, "local"))
    if master.startswith("local") or _here(master) or _on(options, OPEN):
        return ""
    missing = [] if _on(options, AUTHENTICATE) else [f"{AUTHENTICATE}: true"]
    if not any(_on(options, each) for each in ENCRYPTED):
        missing.append(f"{ENCRYPTED[0]}: true")
    return " and ".join(missing)


def _here(master: str) -> bool:
    """Whether all masters of a standalone cluster are on this machine."""
    hosts = [address.rpartition(":")[0] or address for address in master.removeprefix("spark://").split(",")]
    return master.startswith("spark://") and all(is_loopback(host) for host in hosts)


def _on(options: Mapping[str, str | Secret], option: str) -> bool:
    return str(options.get(option, "")).lower() == "true"


def _options(value: Any, info: ValidationInfo) -> Options:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong("expected a mapping of Spark options such as spark.executor.memory: 2g")
    problems: list[Problem] = []
    options: Options = {}
    for key, item in value.items():
        if not isinstance(key, str) or not _OPTION.fullmatch(key):
            if isinstance(item, dict):
                hint = "options are flat: spark.executor.memory: 2g"
            else:
                hint = f'did you mean "spark.{key}"?' if _OPTION.fullmatch(f"spark.{key}") else ""
            problems.append(Problem((key,), 'a Spark option begins with "spark."', hint, at_key=True))
        elif isinstance(item, bool):
            options[str(key)] = str(item).lower()  # Spark speaks Java
        elif isinstance(item, Secret):
            options[str(key)] = item
        elif isinstance(item, (str, int, float)):
            options[str(key)] = str(item)
        elif isinstance(item, dict) and set(item) in ({"env"}, {"file"}):
            try:
                options[str(key)] = Secret.of(item, info)
            except PydanticCustomError as error:
                problems += [p._replace(loc=(key, *p.loc)) for p in (error.context or {})["problems"]]
        else:
            problems.append(
                Problem(
                    (key,),
                    "expected one value, {env: NAME} or {file: PATH}",
                    "options are flat: spark.executor.memory: 2g",
                )
            )
    if problems:
        raise several(problems)
    return options


def is_credential(option: str) -> bool:
    """Whether an option's value is nobody else's business, by its name."""
    return _CREDENTIAL.search(option) is not None


def masked(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """The options as they may be printed."""
    return {key: MASK if is_credential(key) else str(value) for key, value in options.items()}


SparkOptions = Annotated[
    Options,
    BeforeValidator(_options),
    PlainSerializer(masked, return_type=dict[str, str]),
    WithJsonSchema(
        {
            "type": "object",
            "title": "Spark options",
            "patternProperties": {
                r"^spark\.": {
                    "anyOf": [
                        {"type": ["string", "number", "boolean"]},
                        {
                            "type": "object",
                            "properties": {"env": {"type": "string"}, "file": {"type": "string"}},
                            "minProperties": 1,
                            "maxProperties": 1,
                            "additionalProperties": False,
                        },
                    ]
                }
            },
            "additionalProperties": False,
        }
    ),
]
