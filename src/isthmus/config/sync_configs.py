"""Which settings of topics follow the source.

Invariant: an entry of ``allow`` or ``deny`` is a setting that a link could copy; a misspelt one is refused here rather
than silently never copied.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from isthmus.config.base import Model, empty_if_nothing
from isthmus.config.mistakes import did_you_mean, wrong
from isthmus.config.quantities import Duration, Switch
from isthmus.config.scalar import as_switch

# Settings that mean the same on another cluster. Left out on purpose are those that name brokers (replication
# throttles) or depend on how the cluster is built (tiered storage), and those that decide over the copies'
# timestamps, which the link sets itself (control/settings.py).
SUPPORTED = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.bytes",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
        "write.caching",
    }
)
# What a serverless cluster lets its users set.
SERVERLESS = frozenset({"cleanup.policy", "max.message.bytes", "retention.ms", "write.caching"})


def _setting(value: Any) -> str:
    if not isinstance(value, str) or value not in SUPPORTED:
        hint = did_you_mean(value, sorted(SUPPORTED)) if isinstance(value, str) else ""
        raise wrong("not a setting of a topic that a link copies", hint)
    return str(value)


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else empty_if_nothing(value)


Setting = Annotated[str, BeforeValidator(_setting)]
SettingList = Annotated[list[Setting], BeforeValidator(_one_or_more, json_schema_input_type=list[Setting] | str)]


class SyncConfigs(Model):
    """Settings of topics. Only what is set on a source topic itself is copied; what is not keeps the destination's
    default."""

    enabled: Switch = Field(
        default=True, description="Keep the settings of topics that exist in step. New topics always get them."
    )
    interval: Duration = Field(default=60.0, description="How often `isthmus run` compares both sides.")
    serverless: Switch = Field(
        default=False,
        description="The destination is a serverless cluster: copy only "
        + ", ".join(f"`{k}`" for k in sorted(SERVERLESS))
        + ".",
    )
    allow: SettingList = Field(
        default=[], description="Copy only these settings; none listed means all that are supported."
    )
    deny: SettingList = Field(default=[], description="Never copy these settings.")

    def refuses(self, key: str) -> str:
        """Why a setting is not copied; empty if it is."""
        if key not in SUPPORTED:
            return "not among the settings that a link copies"
        if self.serverless and key not in SERVERLESS:
            return "a serverless destination does not take it"
        if key in self.deny:
            return "denied by sync.configs.deny"
        if self.allow and key not in self.allow:
            return "not in sync.configs.allow"
        return ""


def configs_input(value: Any) -> Any:
    """``configs: off`` turns it off; a heading with nothing below it is the default."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return SyncConfigs(enabled=switch)
    return SyncConfigs() if value is None else value
