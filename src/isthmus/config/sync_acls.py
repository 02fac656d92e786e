"""Which ACLs follow the source, and for whom.

Invariant: what a standby must not allow is decided in one place (control/acls.py); this only says whether the
destination is one.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from isthmus.config.base import Model
from isthmus.config.mistakes import wrong
from isthmus.config.patterns import compiled, is_pattern
from isthmus.config.quantities import Duration, Switch
from isthmus.config.scalar import as_switch

AclKind = Literal["topic", "group", "transactional-id"]


def _principals(value: Any) -> Any:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong("expected a mapping of principals", 'such as {"User:alice": "User:alice-dr"}', found=False)
    found: dict[str, str | None] = {}
    for here, there in value.items():
        expression = None
        if is_pattern(str(here)):
            try:
                expression = compiled(str(here))
            except re.error as error:
                raise wrong(f"bad regular expression: {error.msg}", found=False, at=(str(here),)) from None
        elif ":" not in str(here):
            raise wrong("a principal has a type, as in User:alice", found=False)
        off = as_switch(there) if isinstance(there, str) else there
        if there is None or off is False:
            found[str(here)] = None
        elif isinstance(there, str) and ":" in there:
            if expression is not None:
                _check_references(expression, str(here), str(there))
            found[str(here)] = str(there)
        else:
            raise wrong("expected a principal such as User:alice, or off", found=False)
    return found


def _check_references(expression: re.Pattern[str], here: str, there: str) -> None:
    """A new name may only refer to groups that its expression has. Nothing has to match to find that out."""
    try:
        expression.sub(there, "")
    except (re.error, IndexError) as error:
        words = error.msg if isinstance(error, re.error) else str(error)
        count = expression.groups
        has = f"the expression has {count or 'no'} group{'' if count == 1 else 's'}"
        raise wrong(f"bad reference: {words}", has, at=(here,)) from None


class SyncAcls(Model):
    """ACLs of what the link copies. Off unless it is asked for, because it gives people rights."""

    enabled: Switch = Field(default=False, description="Keep ACLs in step. `acls: on` is short for it.")
    interval: Duration = Field(default=300.0, description="How often `isthmus run` compares both sides.")
    standby: Switch = Field(
        default=True,
        description="The destination is a standby: ALLOW WRITE is held back and ALLOW ALL becomes READ until it is promoted.",
    )
    kinds: list[AclKind] = Field(
        default=["topic", "group"], description="Copy the ACLs of these: `topic`, `group`, `transactional-id`."
    )
    principals: Annotated[
        dict[str, str | None],
        BeforeValidator(_principals, json_schema_input_type=dict[str, str | Switch | None] | None),
    ] = Field(
        default={},
        description="Other names of principals at the destination: `{User:alice: User:alice-dr}`. A regular expression between "
        "slashes must match the whole principal and may be referred to (`\\1`); `off` leaves a principal's ACLs out.",
    )

    def principal(self, here: str) -> str | None:
        """A principal's name at the destination; ``None`` leaves its ACLs out. The first entry that matches decides."""
        for entry, there in self.principals.items():
            if entry == here:
                return there
            if is_pattern(entry) and (match := compiled(entry).fullmatch(here)):
                return None if there is None else match.expand(there)
        return here


def acls_input(value: Any) -> Any:
    """``acls: on`` is ACLs with all defaults; a section that is written out is meant to be on."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return SyncAcls(enabled=switch)
    if value is None:
        return SyncAcls()
    if isinstance(value, dict) and "enabled" not in value:
        return {"enabled": True, **value}
    return value
