"""What the settings of a destination topic should be: the one idea of it, for topics to create and topics that exist.

Invariants:
- only what was set on the source topic itself is copied; everything else keeps the destination's default;
- what would make the destination refuse or change records (the *guards*: timestamps and their bounds, the size of a
  record) is secured even where that takes a setting that the source topic does not have;
- nobody else's setting is taken away: one that we did not set is overwritten only by the source's own, and told if it differs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.config.sync_configs import SyncConfigs
from isthmus.control.change import Diff
from isthmus.kafka.admin import TopicConfig

TIMESTAMP_TYPE = "message.timestamp.type"
OLDEST, NEWEST = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
LARGEST = "max.message.bytes"
NO_BOUND = 2**63 - 1
# Thirty years: a site that bounds timestamps by more than that does not bound them.
PRACTICALLY_NO_BOUND = 10**12
# What decides how long records are kept: a difference in these is worth a line of a plan.
WORTH_TELLING = ("cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms")

_NOT_COPIED = {
    TIMESTAMP_TYPE: "copies keep the source's times only with CreateTime",
    OLDEST: "records are copied later than they were written, so the source's bound would refuse old ones",
    "message.timestamp.difference.max.ms": "records are copied later than they were written",
    "leader.replication.throttled.replicas": "names brokers of the source",
    "follower.replication.throttled.replicas": "names brokers of the source",
}
_NOT_COPIED_PREFIXES = {
    "remote.": "tiered storage belongs to the cluster",
    "local.retention.": "tiered storage belongs to the cluster",
    "redpanda.": "belongs to the cluster",
    "confluent.": "belongs to the cluster",
}


@dataclass(slots=True)
class Wanted:
    """What a destination topic should have: ``copied`` from the source topic, ``guards`` at least (or exactly, for the
    timestamp type); ``left`` are the source's settings that are not copied, and why."""

    copied: dict[str, str] = field(default_factory=dict)
    guards: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def remembered(_: str, value: Any) -> dict[str, str]:
    """What we have set on a topic, as it was written down."""
    found = dict(value)
    if not all(isinstance(key, str) and isinstance(each, str) for key, each in found.items()):
        raise TypeError("settings are text")
    return found


@dataclass(slots=True)
class Verdict:
    """How an existing topic differs: what to set or unset (``None``), what is kept though it differs, what of that somebody else
    has set, what cannot be."""

    diff: list[Diff] = field(default_factory=list)
    kept: list[tuple[Diff, str]] = field(default_factory=list)
    foreign: list[tuple[Diff, str]] = field(default_factory=list)
    blocked: list[tuple[Diff, str]] = field(default_factory=list)


def wanted(source: TopicConfig | None, rules: SyncConfigs, replication: int) -> Wanted:
    """``source`` is ``None`` where we may not see the source topic's settings."""
    result = Wanted(guards={TIMESTAMP_TYPE: "CreateTime", OLDEST: str(NO_BOUND)})
    if source is None:
        return result
    for key, value in source.own.items():
        reason = _why_not(key, value, replication) or rules.refuses(key)
        if reason:
            result.left[key] = reason
        else:
            result.copied[key] = value
    for key in (NEWEST, LARGEST):
        if key not in result.copied and key in source.values:
            result.guards[key] = source.values[key]
    return result


def _why_not(key: str, value: str, replication: int) -> str:
    if key in _NOT_COPIED:
        return _NOT_COPIED[key]
    for prefix, reason in _NOT_COPIED_PREFIXES.items():
        if key.startswith(prefix):
            return reason
    if key == "min.insync.replicas" and _number(value) > replication:
        return f"the destination topic has {counted(replication, 'replica')}, and could not be written to"
    return ""


def at_creation(want: Wanted, defaults: Mapping[str, str]) -> dict[str, str]:
    """The settings to create a topic with, where ``defaults`` would hold without (empty: not known)."""
    needed = {
        key: value
        for key, value in want.guards.items()
        if key == TIMESTAMP_TYPE or (key in defaults and not satisfied(key, defaults[key], value))
    }
    return {**needed, **want.copied}


def compare(
    want: Wanted, there: TopicConfig, ours: Mapping[str, str], rules: SyncConfigs, source: TopicConfig | None = None
) -> Verdict:
    """What to change at a topic that exists. ``ours`` is what the link has set on it."""
    verdict = Verdict()
    for key, value in want.copied.items():
        if key not in there.values and there.values:
            verdict.kept.append((Diff(key, None, value), "the destination does not know this setting"))
        elif not same(key, there.own.get(key), value):
            verdict.diff.append(Diff(key, there.own.get(key), value))
    for key, value in want.guards.items():
        effective = there.values.get(key)
        if effective is None or satisfied(key, effective, value):
            continue
        diff = Diff(key, effective, value)
        if key in there.own and ours.get(key) != there.own[key]:
            verdict.blocked.append(
                (diff, f"{_DANGER[key]}; somebody set it on the topic: set it to {value}, or unset it")
            )
        elif key != TIMESTAMP_TYPE and key in rules.deny:
            verdict.blocked.append((diff, f"{_DANGER[key]}; sync.configs.deny keeps the link from setting it"))
        else:
            verdict.diff.append(Diff(key, there.own.get(key), value))
    for key, value in ours.items():
        if key in want.copied or not same(key, there.own.get(key), value):
            continue
        if key in want.guards:
            default = there.defaults.get(key)
            if key == TIMESTAMP_TYPE or default is None or not satisfied(key, default, want.guards[key]):
                continue
        if not rules.refuses(key) or key == OLDEST:
            verdict.diff.append(Diff(key, value, None))
    for key, reason in want.left.items():
        if source is not None and key not in want.guards and not same(key, there.values.get(key), source.own[key]):
            verdict.kept.append((Diff(key, there.own.get(key), source.own[key]), reason))
    if source is not None:
        verdict.foreign = _somebody_elses(want, there, ours, source, {diff.key for diff, _ in verdict.blocked})
        for key in WORTH_TELLING:
            here, at_source = there.values.get(key), source.values.get(key)
            if key in source.own or key in there.own or at_source is None or same(key, here, at_source):
                continue
            verdict.kept.append((Diff(key, here, at_source), "each site keeps its default"))
    return verdict


def given_back(source: TopicConfig, there: TopicConfig, ours: Mapping[str, str]) -> dict[str, str | None]:
    """The guards that hold only for copying, as they should be once the link runs no more; ``None``: unset what we have set."""
    back: dict[str, str | None] = {}
    kind, bound = source.values.get(TIMESTAMP_TYPE), source.own.get(OLDEST)
    if kind and kind != there.values.get(TIMESTAMP_TYPE):
        back[TIMESTAMP_TYPE] = kind
    if bound is not None and bound != there.values.get(OLDEST):
        back[OLDEST] = bound
    elif bound is None and OLDEST in there.own and ours.get(OLDEST) == there.own[OLDEST]:
        back[OLDEST] = None
    return back


def _somebody_elses(
    want: Wanted, there: TopicConfig, ours: Mapping[str, str], source: TopicConfig, told: Collection[str]
) -> list[tuple[Diff, str]]:
    """What somebody else has set on the destination topic, where the source topic sets nothing and has another value."""
    found = []
    for key, here in sorted(there.own.items()):
        at_source = source.values.get(key)
        if key in want.copied or key in want.left or key in told or key in (TIMESTAMP_TYPE, OLDEST):
            continue  # said elsewhere
        if at_source is None or same(key, here, at_source) or same(key, ours.get(key), here):
            continue
        why = f"{key} is {here} there and {at_source} at the source; it was not set by this link, and is kept"
        found.append((Diff(key, here, at_source), why))
    return found


_DANGER = {
    TIMESTAMP_TYPE: "the destination would replace the records' times by that of the copy",
    OLDEST: "the destination would refuse old records",
    NEWEST: "the destination would refuse records from the future that the source accepts",
    LARGEST: "the destination would refuse large records that the source accepts",
}


def satisfied(key: str, effective: str, needed: str) -> bool:
    """Whether a value in force is enough for a guard."""
    if key == TIMESTAMP_TYPE:
        return effective == needed
    if key in (OLDEST, NEWEST):
        return _number(effective) >= min(_number(needed), PRACTICALLY_NO_BOUND)
    return _number(effective) >= _number(needed)


def same(key: str, one: str | None, other: str | None) -> bool:
    """Whether two values mean the same: a list's order says nothing."""
    if one is None or other is None:
        return one is other
    if key == "cleanup.policy":
        return _words(one) == _words(other)
    return one == other


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",") if word.strip()}


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
