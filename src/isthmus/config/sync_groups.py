r"""Which consumer groups follow the data of a link, and how often they are compared.

Invariant: an entry is a group's name, or a regular expression between slashes that must match the whole name. Groups
of Isthmus itself never match. Excluding wins.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from isthmus.config.base import Model, empty_if_nothing
from isthmus.config.names import is_internal
from isthmus.config.patterns import entry_of, matches_any, one_or_many
from isthmus.config.quantities import Duration, Switch
from isthmus.config.scalar import as_switch

GroupEntry = Annotated[str, BeforeValidator(entry_of("group")), WithJsonSchema({"type": "string", "title": "group"})]
GroupEntries = Annotated[list[GroupEntry], BeforeValidator(one_or_many, json_schema_input_type=list[GroupEntry] | str)]


class SyncGroups(Model):
    """Consumer groups whose positions are kept at the destination too, translated."""

    enabled: Switch = Field(default=True, description="Keep positions in step. `groups: off` is short for `false`.")
    interval: Duration = Field(
        default=10.0,
        description="How often `isthmus run` translates and writes positions; less often where that would take more than a tenth of the time. "
        "What a group has read since the last time, it reads again after an emergency.",
    )
    include: GroupEntries = Field(
        default=["/.*/"], description="Groups that follow: names, or regular expressions between slashes.", min_length=1
    )
    exclude: Annotated[GroupEntries, BeforeValidator(empty_if_nothing)] = Field(
        default=[], description="Groups to leave out, although `include` matches them."
    )
    only_empty: Switch = Field(
        default=True,
        description="Only groups without members at the source, whose position does not move. `false` takes every group "
        "that is not dead.",
    )

    def matches(self, name: str) -> bool:
        """Whether the group of this name follows."""
        if is_internal(name):
            return False
        return matches_any(self.include, name) and not matches_any(self.exclude, name)


def groups_input(value: Any) -> Any:
    """``groups: off`` turns it off, a list is short for ``include``, a heading with nothing below it is the default."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return SyncGroups(enabled=switch)
    if value is None:
        return SyncGroups()
    return {"include": value} if isinstance(value, (list, str)) else value
