r"""What a link does with records that were not born at its source.

Invariant: a loop rule only ever leaves records out, by their origin header; ``overrides`` are the exceptions from that, and nothing
else is. An override's expressions must match the whole origin and the whole topic, and both ends of its time range are inside.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from isthmus.config.base import Model
from isthmus.config.mistakes import Problem, did_you_mean, several, wrong
from isthmus.config.patterns import compiled
from isthmus.config.quantities import Switch, parse_timestamp
from isthmus.config.scalar import as_integer, as_switch

LONGEST_TIME = 2**63 - 1
_EXPECTED = "expected off, returning, foreign, or a mapping with drop"
_ONE_LINE = "expected ORIGIN,TOPIC,FROM-TO with times in milliseconds, several separated by semicolons"
_RANGE = re.compile(r"([0-9]{0,18})-([0-9]{0,18})")


def _expression(value: Any) -> str:
    if not isinstance(value, str) or value == "":
        raise wrong("expected a regular expression", 'everything is ".*"')
    try:
        compiled(f"/{value}/")
    except re.error as error:
        at = f" at character {error.pos + 1}" if error.pos is not None else ""
        raise wrong(f"bad regular expression{at}: {error.msg}", found=False) from None
    return str(value)


def _moment(value: Any) -> int:
    """Milliseconds from a number of them, or from ISO-8601 text."""
    number = as_integer(value.strip()) if isinstance(value, str) else value
    if isinstance(number, int) and not isinstance(number, bool):
        if not 0 <= number <= LONGEST_TIME:
            raise wrong("expected a time after 1970")
        return number
    moment: datetime = parse_timestamp(value)
    return int(moment.timestamp() * 1000)


Expression = Annotated[
    str, BeforeValidator(_expression), WithJsonSchema({"type": "string", "title": "regular expression"})
]
Moment = Annotated[
    int,
    BeforeValidator(_moment),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}],
            "title": "ISO-8601 time with zone, or milliseconds",
        }
    ),
]


class Override(Model):
    """Records that are copied although the loop rule would leave them out."""

    origin: Expression = Field(description="Regular expression for the origin: the whole site name, or cluster id.")
    topic: Expression = Field(
        default=".*", description="Regular expression for the topic in which the record was born: the whole name."
    )
    since: Moment | None = Field(
        default=None,
        description="Only records that were first copied at this time or later. Values of the header that hold no time "
        "count with the record's own timestamp.",
    )
    until: Moment | None = Field(
        default=None, description="Only records that were first copied at this time or earlier."
    )

    @model_validator(mode="after")
    def _check(self) -> Override:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise several([Problem(("until",), "ends before it begins")])
        return self

    def matches(self, origin: str, topic: str) -> bool:
        """Whether the expressions match; the times are compared where many are at hand."""
        return all(
            compiled(f"/{expression}/").fullmatch(text) is not None
            for expression, text in ((self.origin, origin), (self.topic, topic))
        )


def overrides_input(value: Any) -> Any:
    """A list of mappings, or one line: ``DC-1,_schemas,-;DC-1,topic1,0-1539634429528``."""
    if value is None:
        return []
    if not isinstance(value, str):
        return value
    hint = "an expression that holds a comma or semicolon needs the long form: a list of {origin, topic, since, until}"
    found = []
    for part in value.split(";"):
        if not part.strip():
            continue
        fields = [field.strip() for field in part.split(",")]
        times = _RANGE.fullmatch(fields[-1])
        if len(fields) != 3 or times is None:
            raise wrong(_ONE_LINE, hint if len(fields) > 3 else "an open range is -")
        found.append(
            Override(
                origin=_expression(fields[0]),
                topic=_expression(fields[1]),
                since=int(times[1]) if times[1] else None,
                until=int(times[2]) if times[2] else None,
            )
        )
    if not found:
        raise wrong(_ONE_LINE)
    return found


class Loop(Model):
    """Which records a link leaves out, so that none goes round."""

    drop: Literal["returning", "foreign"] = Field(
        description="`returning` leaves out what was born at the destination (and what has come home to the source); `foreign` "
        "leaves out everything that was not born at the source."
    )
    same_topic: Switch = Field(
        default=False,
        description="With `returning`: leave a record out only where it would come to the topic in which it was born. Values of "
        "the header that hold no topic count with the topic at the source.",
    )
    overrides: Annotated[
        list[Override], BeforeValidator(overrides_input, json_schema_input_type=list[Override] | str | None)
    ] = Field(
        default=[],
        description="What is copied all the same: a list, or one line such as `DC-1,_schemas,-;DC-1,topic1,0-1539634429528` "
        "(origin, topic, milliseconds).",
    )

    @model_validator(mode="after")
    def _check(self) -> Loop:
        if self.same_topic and self.drop == "foreign":
            raise several([Problem(("same_topic",), "only with drop: returning", "foreign leaves out whole origins")])
        return self


def wants_loop(value: Any) -> bool:
    """Whether what stands under ``loop`` asks for a rule at all."""
    return not (value is None or value is False or (isinstance(value, str) and as_switch(value) is False))


def loop_input(value: Any) -> Any:
    """``loop: returning`` is short for ``{drop: returning}``; ``off`` is none."""
    if not wants_loop(value):
        return None
    if isinstance(value, str):
        if value not in ("returning", "foreign"):
            raise wrong(_EXPECTED, _which(value))
        return {"drop": value}
    if value is True:
        raise wrong(_EXPECTED, _which("on"))
    return value


def _which(value: str) -> str:
    if as_switch(value):
        return "pairs and rings take returning, meshes foreign"
    return did_you_mean(value, ("off", "returning", "foreign"))
