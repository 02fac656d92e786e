"""``${VAR}`` and ``${VAR:-default}`` in a scalar; ``$${`` stands for a literal ``${``.

Invariant: expansion never fails half way: it returns the text and every problem it met. As in a shell,
``:-`` also replaces a variable that is set but empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<bad>\$\{)")


def expand(text: str, environment: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """The expanded text and its problems as (problem, hint)."""
    problems: list[tuple[str, str]] = []

    def replace(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["bad"]:
            problems.append(("bad variable reference", "write ${NAME} or ${NAME:-default}, or $${ for a plain ${"))
            return ""
        if name is None:
            return "${"
        if default is not None:
            return environment.get(name) or default
        if name not in environment:
            problems.append((f"variable {name} is not set", f"set it, or write ${{{name}:-default}}"))
            return ""
        return environment[name]

    return _REFERENCE.sub(replace, text), problems
