"""Built-in rules that a link names under ``rules:``, with their options.

Invariant: a rule stands there once, and has no option that it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from isthmus.errors import ConfigError


class Lists(Protocol):
    """A link, as far as its list of rules goes."""

    @property
    def rules(self) -> Sequence[str | dict[str, Any]]: ...


def is_listed(link: Lists, name: str) -> bool:
    """Whether the link names the rule."""
    return any(isinstance(entry, dict) and name in entry for entry in link.rules)


def options_of(link: Lists, name: str, known: Collection[str]) -> dict[str, Any] | None:
    """The options of a rule that the link names, None if it does not. Raises ``ConfigError``."""
    found = [entry[name] for entry in link.rules if isinstance(entry, dict) and name in entry]
    if not found:
        return None
    if len(found) > 1:
        raise ConfigError(f"rules: {name} stands there twice")
    options = dict(found[0])
    for option in options:
        if option not in known:
            raise ConfigError(f"rules: {name} has no option {option!r}; it has {', '.join(known)}")
    return options
