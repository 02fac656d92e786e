"""Rules: what happens to records and topic names between fetch and produce.

Invariant: a link's rules are an ordered tuple of pure functions on batches of records, each of which
pickles. Each built-in rule is one file of this package that declares

    ORDER: int                                 its place in the tuple
    def build(link, ids) -> Rule | None        the rule of a link, or None if the link does not want it
    LISTED = True                              only if a link names it under ``rules:``, with options

so a new rule is a new file and nothing else; the options of one that is listed stand in ``config/built_in_rules.py``, where a file is judged.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from isthmus.errors import ConfigError
from isthmus.records.rule import Rule

__all__ = ["Identities", "Rule", "compile_rules", "destination_topic", "load_built_in"]


class Identities(NamedTuple):
    """All cluster ids that a link's sites ever had, oldest first: the last is the present one."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


#: Nobody has asked the sites.
UNKNOWN = Identities()


class Link(Protocol):
    """What rules read of a link's configuration; each rule's file asks for more by attribute."""

    @property
    def rules(self) -> Sequence[str | dict[str, Any]]:
        """Names of users' functions, and built-in rules with their options."""
        ...


@cache
def load_built_in() -> tuple[ModuleType, ...]:
    """Every file of this package that declares a rule, in order."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return tuple(sorted((m for m in modules if hasattr(m, "ORDER")), key=lambda m: (m.ORDER, m.__name__)))


def compile_rules(link: Link, ids: Identities = UNKNOWN) -> tuple[Rule, ...]:
    """The rules of a link, in order. Raises ``ConfigError`` for a rule that cannot be built.

    ``ids`` are needed only to run rules whose headers hold cluster ids, not to build them.
    """
    listed = {module.__name__.rpartition(".")[2] for module in load_built_in() if getattr(module, "LISTED", False)}
    for entry in link.rules:
        if isinstance(entry, str):
            continue
        for name in entry:
            if name not in listed:
                known = ", ".join(sorted(listed)) or "none yet"
                raise ConfigError(
                    f"rules: there is no rule {name!r} that takes options (there are: {known}). A function of"
                    " your own is named as text, module:function."
                )
    built = (module.build(link, ids) for module in load_built_in())
    return tuple(rule for rule in built if rule is not None)


def destination_topic(rules: tuple[Rule, ...], name: str) -> str:
    """What a source topic is called at the destination."""
    for rule in rules:
        name = rule.topic(name)
    return name
