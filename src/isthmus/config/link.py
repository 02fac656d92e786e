"""A link: one-way replication from one site to another.

Invariant: everything a task needs to know about its work stands in one frozen, picklable ``Link``; what
can be judged without asking a broker was judged when it was built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from isthmus.config.base import Model, empty_if_nothing
from isthmus.config.loop import Loop, loop_input, wants_loop
from isthmus.config.mistakes import Problem, several, wrong
from isthmus.config.names import Name, topic_problem
from isthmus.config.origin import Origin, origin_input
from isthmus.config.patterns import is_pattern
from isthmus.config.quantities import (
    Count,
    Duration,
    Offset,
    Partition,
    Rate,
    ReplicationFactor,
    Size,
    Switch,
    Timestamp,
)
from isthmus.config.rename import Template, fill
from isthmus.config.rules import Rule
from isthmus.config.scalar import as_switch
from isthmus.config.spark import SparkOptions
from isthmus.config.sync import Sync
from isthmus.config.topics import Entry, Topics, topics_input
from isthmus.errors import ConfigError

OFFSET_HEADER = "isthmus-offset"


def _header(value: Any) -> Any:
    """``off`` turns a header off and ``on`` gives it its usual name."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return OFFSET_HEADER if switch else None
    if value == "":
        raise wrong("expected a header's key, or off", found=False)
    return value


def _headers(value: Any) -> Any:
    if value is None:  # a heading with nothing below it
        return Headers()
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return Headers() if switch else Headers(offset=None)
    return value


class Headers(Model):
    """Headers that the link adds to each record."""

    offset: Annotated[str | None, BeforeValidator(_header, json_schema_input_type=str | Switch | None)] = Field(
        default=OFFSET_HEADER,
        description="Key of the header that carries the record's offset at the source; `off` adds none.",
        max_length=249,
    )


def _sync(value: Any) -> Any:
    return Sync() if value is None else value  # a heading with nothing below it


class StartTimestamp(Model):
    """Start at the first record that is not older than a moment."""

    timestamp: Timestamp = Field(description="ISO-8601 time with its zone, such as `2026-01-31T08:00:00Z`.")


class StartOffsets(Model):
    """Start at given offsets; partitions that are not named start at the earliest record."""

    offsets: dict[str, dict[Partition, Offset]] = Field(description="`{topic: {partition: offset}}`.")


START_TAGS = ("<word>", "<timestamp>", "<offsets>")


def _start_tag(value: Any) -> str | None:
    if isinstance(value, str):
        return START_TAGS[0]
    if isinstance(value, StartTimestamp) or (isinstance(value, dict) and set(value) == {"timestamp"}):
        return START_TAGS[1]
    if isinstance(value, StartOffsets) or (isinstance(value, dict) and set(value) == {"offsets"}):
        return START_TAGS[2]
    return None


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag(START_TAGS[0])]
    | Annotated[StartTimestamp, Tag(START_TAGS[1])]
    | Annotated[StartOffsets, Tag(START_TAGS[2])],
    Discriminator(
        _start_tag,
        custom_error_type="start",
        custom_error_message="expected earliest, latest, {timestamp: TIME} or {offsets: {TOPIC: {PARTITION: OFFSET}}}",
    ),
]

Compression = Literal["keep", "none", "gzip", "snappy", "lz4", "zstd"]


class Link(Model):
    """One-way replication from one site to another."""

    name: Name = Field(description="The key under which the link stands.")
    source: str = Field(
        validation_alias="from", serialization_alias="from", description="Name of the site to read from."
    )
    target: str = Field(validation_alias="to", serialization_alias="to", description="Name of the site to write to.")
    topics: Annotated[Topics, BeforeValidator(topics_input, json_schema_input_type=Topics | list[Entry] | str)] = Field(
        description="Topics to copy; a list is short for `include`."
    )
    rename: Template = Field(
        default="{topic}",
        description="Name of a topic at the target. Variables: `{topic}`, `{source}`, `{target}`, `{link}`. "
        "It contains `{topic}` unless exactly one topic is included by name.",
    )
    start: Start = Field(
        default="earliest",
        description="Where partitions start that exist when the link first runs (topics that appear later are "
        "copied from their first record): `earliest`, `latest`, "
        "`{timestamp: TIME}` or `{offsets: {TOPIC: {PARTITION: OFFSET}}}`.",
    )
    rate_limit: Rate | None = Field(
        default=None,
        description="Most bytes a second that the link reads, all tasks together: a number, `10 MB/s` or "
        "`64MiB`. Left out means no limit.",
    )
    commit_interval: Duration = Field(
        default=1.0,
        description="The longest that a transaction stays open under load; the target's readers wait for it.",
    )
    compression: Compression = Field(
        default="keep", description="Compression at the target; `keep` keeps each batch as it came."
    )
    headers: Annotated[Headers, BeforeValidator(_headers, json_schema_input_type=Headers | Switch)] = Field(
        default=Headers(), description="Headers that the link adds to each record; `off` adds none."
    )
    origin: Annotated[
        Origin | None, BeforeValidator(origin_input, json_schema_input_type=Origin | Switch | str | None)
    ] = Field(
        default=None,
        description="Stamps where each record was born: `on`, `off`, a header's key, or both parts. Left out, it is on where "
        "`loop` is set and off otherwise.",
    )
    loop: Annotated[
        Loop | None,
        BeforeValidator(loop_input, json_schema_input_type=Loop | Literal["returning", "foreign"] | Switch | None),
    ] = Field(
        default=None,
        description="Leaves out records that would go round: `returning` (pairs, rings, from a hub), `foreign` (meshes, to a hub) "
        "or `off`. See [Active-active](active-active.md).",
    )
    rules: Annotated[list[Rule], BeforeValidator(empty_if_nothing)] = Field(
        default=[],
        description="Rules that change or drop records, in order: `module:function`, or a built-in rule with "
        "its options.",
    )
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once",
        description="`at-least-once` does without transactions; a crash may then repeat records.",
    )
    on_corrupt: Literal["stop", "skip"] = Field(
        default="stop",
        description="What to do with a batch whose checksum is wrong: stop its partition, or leave it out.",
    )
    max_inflated: Size = Field(
        default=512 << 20,
        description="Most bytes that one compressed batch may become; a larger one stops its partition, whatever it claims to hold. A task needs memory for it.",
    )
    tasks: Count | None = Field(
        default=None, description="Parallel tasks. Left out means one for each of Spark's cores."
    )
    lease: Duration = Field(
        default=300.0, description="How long a task holds its partitions before the work is dealt out anew."
    )
    replication_factor: ReplicationFactor | None = Field(
        default=None,
        description="Replicas of topics that the link creates. Left out means the source's, at most the "
        "number of brokers.",
    )
    sync: Annotated[Sync, BeforeValidator(_sync)] = Field(
        default=Sync(), description="What follows the data besides the records, and how often it is compared."
    )
    spark: SparkOptions = Field(
        default={}, description="Spark options of this link; they win over the common ones.", repr=False
    )

    def destination_topic(self, name: str) -> str:
        """The name at the target of the source topic ``name``."""
        topic = self.renamed(name)
        problem = topic_problem(topic)
        if problem:
            raise ConfigError(f'link {self.name}: topic "{name}" would be renamed to "{topic}": {problem}')
        return topic

    def renamed(self, name: str) -> str:
        """The same, whether or not a topic may be called so: of a topic that was found at the source, only the site tells its name."""
        return fill(self.rename, topic=name, source=self.source, target=self.target, link=self.name)

    @model_validator(mode="before")
    @classmethod
    def _fill_origin(cls, data: Any) -> Any:
        return fill_origin(data)

    @model_validator(mode="after")
    def _check(self) -> Link:
        problems = check_link(self.__dict__)
        if problems:
            raise several(problems)
        return self


def fill_origin(data: Any) -> Any:
    """A loop rule needs origins: they are on where nothing is said of them."""
    if isinstance(data, dict) and "origin" not in data and wants_loop(data.get("loop")):
        return {**data, "origin": Origin()}
    return data


def check_link(link: Mapping[str, Any]) -> list[Problem]:
    """What the fields of a link must satisfy together.

    Takes the fields by name and judges those that are there, so that a link with one bad field is still
    checked for its other mistakes.
    """
    return [*_check_rename(link), *_check_start(link), *_check_times(link), *_check_origin(link)]


def _check_rename(link: Mapping[str, Any]) -> list[Problem]:
    topics, rename = link.get("topics"), link.get("rename")
    if topics is None or rename is None:
        return []
    if "{topic}" not in rename and (len(topics.include) > 1 or is_pattern(topics.include[0])):
        return [Problem(("rename",), "every topic would get the same name", "put {topic} in it")]
    if not {"name", "source", "target"} <= set(link):
        return []
    problems = []
    for number, topic in enumerate(topics.include):
        if is_pattern(topic):
            continue
        renamed = fill(rename, topic=topic, source=link["source"], target=link["target"], link=link["name"])
        problem = topic_problem(renamed)
        if problem:
            problems.append(Problem(("topics", "include", number), f'would be renamed to "{renamed}": {problem}'))
    return problems


def _check_start(link: Mapping[str, Any]) -> list[Problem]:
    topics, start = link.get("topics"), link.get("start")
    if topics is None or not isinstance(start, StartOffsets):
        return []
    return [
        Problem(("start", "offsets", topic), "the link does not copy this topic", 'see its "topics"', at_key=True)
        for topic in start.offsets
        if not topics.matches(topic)
    ]


def _check_times(link: Mapping[str, Any]) -> list[Problem]:
    lease, interval = link.get("lease"), link.get("commit_interval")
    if lease is None or interval is None or interval <= lease:
        return []
    place = "lease" if lease != Link.model_fields["lease"].default else "commit_interval"
    return [Problem((place,), "a lease must be at least as long as the commit interval")]


def _check_origin(link: Mapping[str, Any]) -> list[Problem]:
    origin, loop = link.get("origin"), link.get("loop")
    if loop is not None and "origin" in link and origin is None:
        return [
            Problem(("origin",), "a loop rule needs to know where records were born", "leave origin out, or set it")
        ]
    headers = link.get("headers")
    if origin is not None and headers is not None and origin.header == headers.offset:
        return [Problem(("origin",), "the header of the offset has this key", "give one of them another")]
    return []
