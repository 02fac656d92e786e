"""Choosing links by name, with an error that says what there is."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.config import Config, Link
from isthmus.errors import UsageError


def chosen_links(config: Config, names: Sequence[str] | None) -> list[Link]:
    """The named links, or all."""
    unknown = [name for name in names or [] if name not in config.links]
    if unknown:
        known = ", ".join(config.links) or "none"
        raise UsageError(f"no link named {', '.join(unknown)} in the configuration; there are: {known}")
    return [config.links[name] for name in (names or config.links)]
