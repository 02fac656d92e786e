r"""Which topics a link copies.

Invariant: an entry is a plain name, or a regular expression between slashes (``/orders\..*/``) that must
match the whole name. Internal topics never match, whatever the entries say. Excluding wins.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from isthmus.config.base import Model, empty_if_nothing
from isthmus.config.mistakes import wrong
from isthmus.config.names import is_internal, topic_problem


def is_pattern(entry: str) -> bool:
    """Whether an entry is a regular expression rather than a name."""
    return len(entry) > 1 and entry.startswith("/") and entry.endswith("/")


@lru_cache(maxsize=4096)
def _compiled(entry: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "possible nested set": legal today
        return re.compile(entry[1:-1])


def _entry(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong("expected a topic's name, or a regular expression between slashes")
    if is_pattern(value):
        try:
            _compiled(str(value))
        except re.error as error:
            at = f" at character {error.pos + 1}" if error.pos is not None else ""
            raise wrong(f"bad regular expression{at}: {error.msg}", found=False) from None
        if value == "//":
            raise wrong("empty regular expression", 'every topic is "/.*/"', found=False)
        return str(value)
    problem = topic_problem(value)
    if problem:
        hint = ""
        if set(value) & set("/*?[](|^$+"):
            hint = 'a regular expression stands between slashes: "/orders-.*/"'
        raise wrong(problem, hint)
    return str(value)


def _entries(value: Any) -> Any:
    """One entry may stand without a list around it."""
    return [value] if isinstance(value, str) else value


Entry = Annotated[str, BeforeValidator(_entry), WithJsonSchema({"type": "string", "title": "topic"})]
Entries = Annotated[list[Entry], BeforeValidator(_entries, json_schema_input_type=list[Entry] | str)]


class Topics(Model):
    r"""Topics to copy. `topics: [a, b]` is short for `topics: {include: [a, b]}`.

    An entry is a name, or a regular expression between slashes (`/orders\..*/`) that must match the
    whole name. Internal topics (`__*` and `_isthmus.*`) are never copied.
    """

    include: Entries = Field(description="Topics to copy.", min_length=1)
    exclude: Annotated[Entries, BeforeValidator(empty_if_nothing)] = Field(
        default=[], description="Topics to leave out, although `include` matches them."
    )

    def matches(self, name: str) -> bool:
        """Whether the link copies the source topic of this name."""
        if is_internal(name):
            return False
        return self._any(self.include, name) and not self._any(self.exclude, name)

    def named(self) -> list[str]:
        """The topics that are included by name and not excluded."""
        return [entry for entry in self.include if not is_pattern(entry) and self.matches(entry)]

    @staticmethod
    def _any(entries: list[str], name: str) -> bool:
        return any(
            _compiled(entry).fullmatch(name) is not None if is_pattern(entry) else entry == name for entry in entries
        )


def topics_input(value: Any) -> Any:
    """The short forms: a list, or one entry."""
    return {"include": value} if isinstance(value, (list, str)) else value
