r"""Which schemas follow the data of a link, and how.

Invariant: an entry is a subject's name, or a regular expression between slashes that must match the whole name. Excluding
wins. The template of a rename holds ``{subject}``, so two subjects never become one.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from isthmus.config.base import Model, empty_if_nothing
from isthmus.config.mistakes import did_you_mean, wrong
from isthmus.config.patterns import entry_of, matches_any, one_or_many
from isthmus.config.quantities import Duration, Switch
from isthmus.config.scalar import as_switch

VARIABLES = ("subject", "source", "target", "link")
_VARIABLE = re.compile(r"\{([^{}]*)\}")


def _template(value: Any) -> str:
    if not isinstance(value, str) or "{subject}" not in value:
        raise wrong("every subject would get the same name", "put {subject} in it")
    for name in _VARIABLE.findall(value):
        if name not in VARIABLES:
            raise wrong("unknown variable in the template", did_you_mean(name, VARIABLES))
    if set("{}") & set(_VARIABLE.sub("", value)):
        raise wrong("a brace without its partner", 'variables look like "{subject}"')
    return str(value)


SubjectEntry = Annotated[
    str, BeforeValidator(entry_of("subject")), WithJsonSchema({"type": "string", "title": "subject"})
]
Entries = Annotated[list[SubjectEntry], BeforeValidator(one_or_many, json_schema_input_type=list[SubjectEntry] | str)]


class SyncSchemas(Model):
    """Schemas of the source site's registry that are kept at the destination's too."""

    enabled: Switch = Field(default=False, description="Copy schemas. `schemas: on` is short for `true`.")
    interval: Duration = Field(default=60.0, description="How often `isthmus run` compares both registries.")
    include: Entries = Field(
        default=["/.*/"], description="Subjects to copy: names, or regular expressions between slashes.", min_length=1
    )
    exclude: Annotated[Entries, BeforeValidator(empty_if_nothing)] = Field(
        default=[], description="Subjects to leave out, although `include` matches them."
    )
    versions: Literal["all", "latest"] = Field(
        default="all", description="Copy every version, or only the newest (and what it refers to)."
    )
    rename: Annotated[str, BeforeValidator(_template)] = Field(
        default="{subject}",
        description="Name at the destination. Variables: `{subject}`, `{source}`, `{target}`, `{link}`.",
    )
    ids: Literal["translate", "keep"] = Field(
        default="translate",
        description="`translate` lets the destination give ids (the rule `schema_ids` puts them into records); `keep` "
        "imports ids and versions as they are, which the destination must support (IMPORT mode).",
    )
    deleted: Literal["skip", "copy"] = Field(
        default="skip",
        description="Soft-deleted versions: leave them out, or copy them and soft-delete them at the destination too.",
    )
    normalize: Switch = Field(default=False, description="Let the destination normalise schemas.")
    compatibility: Switch = Field(
        default=True, description="Copy the compatibility level of subjects on which one is set."
    )
    serverless: Switch = Field(
        default=False, description="The destination takes neither metadata nor rule sets: leave them out."
    )
    standby: Switch = Field(
        default=False,
        description="Keep the destination's registry READONLY for everybody else, where it supports modes, until it is "
        "promoted.",
    )

    def matches(self, subject: str) -> bool:
        """Whether the subject of this name is copied."""
        return matches_any(self.include, subject) and not matches_any(self.exclude, subject)

    def destination(self, subject: str, source: str, target: str, link: str) -> str:
        """What a subject is called at the destination."""
        values = {"subject": subject, "source": source, "target": target, "link": link}
        return _VARIABLE.sub(lambda match: values[match[1]], self.rename)


def schemas_input(value: Any) -> Any:
    """``schemas: on`` copies them, a list is short for ``include``, a heading with nothing below it is the default."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return SyncSchemas(enabled=switch)
    if value is None:
        return SyncSchemas()
    if isinstance(value, (list, str)):
        return {"enabled": True, "include": value}
    # Who writes down how schemas are copied wants them copied.
    return {"enabled": True, **value} if isinstance(value, dict) else value
