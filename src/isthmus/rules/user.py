"""Rules that users write: ``module:function``, each on an Arrow record batch.

Invariant: a function is given what the one before it returned, and each result is checked before anything
is written. Only names are pickled; each process imports the functions itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from isthmus.errors import ConfigError
from isthmus.records import faults
from isthmus.records.model import Records
from isthmus.rules import Identities
from isthmus.rules.listed import Lists

#: After the built-in rules that decide whether a record is copied at all, before the offset header.
ORDER = 500

Function = Callable[[Any], Any]


@cache
def load(name: str) -> Function:
    """The function that ``module:function`` names. Raises ``ConfigError``."""
    module_name, separator, function_name = name.partition(":")
    if not (separator and module_name and function_name):
        raise ConfigError(f"rules: {name!r} is not of the form module:function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(
            f"rules: cannot import {module_name!r} of {name!r}: {type(error).__name__}: {error}. It has to be"
            " beside the configuration file or on PYTHONPATH; of the executors too, where they run elsewhere."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"rules: module {module_name!r} has no function {function_name!r}")
    loaded: Function = function
    return loaded


@dataclass(frozen=True)
class UserRules:
    """The functions of one link, in the order given."""

    names: tuple[str, ...]
    touches_records = True

    def topic(self, name: str) -> str:
        """Topics keep their name."""
        return name

    def apply(self, records: Records) -> Records:
        """What the functions make of the records. Raises ``RuleFailed``."""
        # Only here: most links have no such rule, and then no task needs Arrow's time and memory.
        from isthmus.records.arrow import NotRecordsError, from_arrow, to_arrow

        for name in self.names:
            try:
                records = from_arrow(load(name)(to_arrow(records)), records)
            except NotRecordsError as error:
                raise faults.rule_failed(name, records, f"what it returned is unusable: {error}") from error
            except ConfigError as error:
                raise faults.rule_failed(name, records, error.message) from error
            except Exception as error:
                raise faults.rule_failed(name, records, f"{type(error).__name__}: {error}") from error
            if not len(records):
                break
        return records


def build(link: Lists, ids: Identities) -> UserRules | None:
    """The functions that a link names, if any. Imports them, so that a mistake is seen at once."""
    names = tuple(entry for entry in link.rules if isinstance(entry, str))
    for name in names:
        load(name)
    return UserRules(names) if names else None
