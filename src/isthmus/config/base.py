"""The base of every model of the configuration.

Invariant: a model never changes after it was checked, takes no key that it does not know, and an error
about it never prints what was given to it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen, strict about keys, silent about input."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
        # Defaults are ours and already of the right type.
        validate_default=False,
    )


def empty_if_nothing(value: Any) -> Any:
    """A list whose items were all taken out, or commented out, is an empty list."""
    return [] if value is None else value
