"""Commands of the operator's own that recovery calls: to keep writers away from a site, and to let them in again.

Invariant: a command is a list of words, run without a shell; what it may need is in its environment (``ISTHMUS_SITE``,
``ISTHMUS_OPERATION``), never in its arguments. Of our own environment, where secrets may stand, it gets what every command needs and what the file names.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from isthmus.config.base import Model
from isthmus.config.mistakes import wrong
from isthmus.config.quantities import Duration

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _words(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise wrong(f"expected a command: {error}") from None
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise wrong("expected a command, as text or as a list of words")
    return value


Command = Annotated[list[str] | None, BeforeValidator(_words, json_schema_input_type=list[str] | str | None)]


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise wrong("expected the name of a variable", found=False)
    return str(value)


Variable = Annotated[str, BeforeValidator(_variable), WithJsonSchema({"type": "string", "title": "variable"})]


class Hooks(Model):
    """Commands that keep writers away from a site, and let them in again."""

    fence: Command = Field(
        default=None,
        description="Run to keep clients from writing to the site; ends with 0 when none can write any more.",
    )
    unfence: Command = Field(default=None, description="Run to let clients write to the site again.")
    timeout: Duration = Field(default=120.0, description="How long a command may take.")
    environment: list[Variable] = Field(
        default=[],
        description="Variables that the commands get besides `PATH`, `HOME`, `USER`, the language, the time zone and `TMPDIR`.",
    )
