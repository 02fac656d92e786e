r"""Which topics a link copies.

Invariant: an entry is a plain name, or a regular expression between slashes (``/orders\..*/``) that must
match the whole name. Internal topics never match, whatever the entries say. Excluding wins. Copies that the link's loop
rule refuses by their names are not matched by expressions either: which these are is no key of the file, but follows from its
other links. A name that is included as such is meant.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema

from isthmus.config.base import Model, empty_if_nothing
from isthmus.config.copies import Copies
from isthmus.config.mistakes import wrong
from isthmus.config.names import is_internal, topic_problem
from isthmus.config.patterns import compiled, is_pattern, matches_any, one_or_many


def _entry(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong("expected a topic's name, or a regular expression between slashes")
    if is_pattern(value):
        try:
            compiled(str(value))
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


Entry = Annotated[str, BeforeValidator(_entry), WithJsonSchema({"type": "string", "title": "topic"})]
Entries = Annotated[list[Entry], BeforeValidator(one_or_many, json_schema_input_type=list[Entry] | str)]


class Topics(Model):
    r"""Topics to copy. `topics: [a, b]` is short for `topics: {include: [a, b]}`.

    An entry is a name, or a regular expression between slashes (`/orders\..*/`) that must match the
    whole name. Internal topics (`__*` and `_isthmus.*`) are never copied.
    """

    include: Entries = Field(description="Topics to copy.", min_length=1)
    exclude: Annotated[Entries, BeforeValidator(empty_if_nothing)] = Field(
        default=[], description="Topics to leave out, although `include` matches them."
    )

    _copies: Copies | None = PrivateAttr(default=None)

    def refusing(self, copies: Copies | None) -> Topics:
        """The same topics without those whose names say that they are copies; None: with them."""
        topics = self.model_copy()
        topics._copies = copies
        return topics

    def matches(self, name: str) -> bool:
        """Whether the link copies the source topic of this name."""
        if is_internal(name) or not matches_any(self.include, name) or matches_any(self.exclude, name):
            return False
        return self._copies is None or name in self.include or self._copies.came_from(name) is None

    def named(self) -> list[str]:
        """The topics that are included by name and not excluded."""
        return [entry for entry in self.include if not is_pattern(entry) and self.matches(entry)]


def topics_input(value: Any) -> Any:
    """The short forms: a list, or one entry."""
    return {"include": value} if isinstance(value, (list, str)) else value
