"""Settings of topics that exist, kept in step with the source: a changed one arrives, a removed one is removed.

Invariant: which value is right is said in ``settings.py`` alone; here it is compared, asked whether the destination would
take it, and carried out. Only what the link itself set is ever unset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import kafka.errors as kerrors

from isthmus.control import memory, settings
from isthmus.control.change import Change, Diff, Outcome
from isthmus.control.ends import Ends
from isthmus.control.rights import right
from isthmus.control.topics import Topic, discover, outcome_of
from isthmus.kafka.admin import Refusal, TopicConfig, alter_configs, topic_configs
from isthmus.kafka.cluster import TopicInfo


class Configs:
    name = "configs"

    async def plan(self, ends: Ends) -> list[Change]:
        link, source, target = ends.link, ends.source, ends.target
        if not link.sync.configs.enabled:
            return []
        topics = {name: topic for name, topic in (await discover(source, link)).items() if not topic.problem}
        here = await target.metadata(sorted(t.target for t in topics.values())) if topics else None
        infos = {n: i for n, i in here.topics.items() if i.error is None} if here is not None else {}
        there = {name: topic for name, topic in topics.items() if topic.target in infos}
        absent = [t.target for t in topics.values() if t.target not in infos]
        changes = await self._hidden(ends, absent) if absent else []
        if not there:
            return changes
        wanted = await topic_configs(source, sorted(there))
        found = await topic_configs(target, sorted(t.target for t in there.values()), with_defaults=True)
        ours = memory.of_kind(await memory.recall(target, link.name), "config", settings.remembered)
        for name, topic in there.items():
            changes += self._compare(
                ends, name, topic, infos[topic.target], wanted[name], found[topic.target], ours.get(topic.target, {})
            )
        return await self._asked(ends, changes)

    async def _hidden(self, ends: Ends, absent: list[str]) -> list[Change]:
        """Topics that do not exist yet, and whose settings we might not see when they do."""
        answers = await topic_configs(ends.target, absent)
        return [
            Change(
                self.name,
                name,
                "blocked",
                "not authorised to see its settings once it exists",
                needs=(str(right(ends.target.site, "DESCRIBE_CONFIGS", "topic", name)),),
            )
            for name, answer in answers.items()
            if isinstance(answer, Refusal) and issubclass(answer.error, kerrors.AuthorizationError)
        ]

    def _compare(
        self,
        ends: Ends,
        name: str,
        topic: Topic,
        info: TopicInfo,
        wanted: TopicConfig | Refusal,
        found: TopicConfig | Refusal,
        ours: Mapping[str, str],
    ) -> list[Change]:
        target, rules = topic.target, ends.link.sync.configs
        for site, topic_name, answer in ((ends.source.site, name, wanted), (ends.target.site, target, found)):
            if isinstance(answer, Refusal):
                if issubclass(answer.error, kerrors.AuthorizationError):
                    needs = (str(right(site, "DESCRIBE_CONFIGS", "topic", topic_name)),)
                    words = f"not authorised to see the settings of {topic_name} at site {site.name}"
                    return [Change(self.name, target, "blocked", words, needs=needs)]
                return [Change(self.name, target, "blocked", f"site {site.name} does not tell its settings: {answer}")]
        assert isinstance(wanted, TopicConfig)
        assert isinstance(found, TopicConfig)
        want = settings.wanted(wanted, rules, info.replication)
        verdict = settings.compare(want, found, ours, rules, wanted)
        changes = [Change(self.name, target, "blocked", why, (diff,)) for diff, why in verdict.blocked]
        changes += [Change(self.name, target, "keep", why, (diff,)) for diff, why in verdict.kept]
        changes += [
            Change(self.name, target, "keep", why, (diff,), loud=diff.key in settings.WORTH_TELLING)
            for diff, why in verdict.foreign
        ]
        if verdict.diff:
            why = why_altered(verdict.diff, want, name)
            changes.append(Change(self.name, target, "alter", why, tuple(verdict.diff), order=dict(ours)))
        elif not changes:
            changes.append(Change(self.name, target, "keep", "as at the source"))
        return changes

    async def _asked(self, ends: Ends, changes: list[Change]) -> list[Change]:
        """The same with what the destination would refuse as blocked."""
        asked = {c.name: _values(c) for c in changes if c.action == "alter"}
        refused = await alter_configs(ends.target, asked, validate_only=True) if asked else {}
        result = []
        for change in changes:
            why = refused.get(change.name) if change.action == "alter" else None
            if why is not None:
                needs: tuple[str, ...] = ()
                words = f"site {ends.link.target} would refuse it: {why}"
                if issubclass(why.error, kerrors.AuthorizationError):
                    needs = (str(right(ends.target.site, "ALTER_CONFIGS", "topic", change.name)),)
                    words = "not authorised to alter its settings"
                change = Change(self.name, change.name, "blocked", words, change.diff, needs=needs)
            result.append(change)
        return result

    async def apply(self, ends: Ends, changes: list[Change]) -> list[Outcome]:
        todo = {c.name: c for c in changes if c.action == "alter"}
        values = {name: _values(change) for name, change in todo.items()}
        # What is going to be set is remembered before, and what is unset forgotten after: see memory.py.
        before = {("config", n): {**c.order, **{k: v for k, v in values[n].items() if v}} for n, c in todo.items()}
        await memory.remember(ends.target, ends.link.name, before)
        refused = await alter_configs(ends.target, values) if values else {}
        after = {
            ("config", n): {k: v for k, v in before["config", n].items() if values[n].get(k, v) is not None}
            for n in todo
            if refused.get(n) is None and None in values[n].values()
        }
        await memory.remember(ends.target, ends.link.name, {key: value or None for key, value in after.items()})
        return [outcome_of(change, refused.get(name), ends.target, "ALTER_CONFIGS") for name, change in todo.items()]


def _values(change: Change) -> dict[str, str | None]:
    return {diff.key: diff.after for diff in change.diff}


def why_altered(diffs: Sequence[Diff], want: settings.Wanted, name: str) -> str:
    """Why settings are changed; where one change has several reasons, all of them."""
    guards = [diff.key for diff in diffs if diff.after is not None and diff.key in want.guards]
    copied = [diff.key for diff in diffs if diff.after is not None and diff.key not in want.guards]
    gone = [diff.key for diff in diffs if diff.after is None]
    several = sum(map(bool, (guards, copied, gone))) > 1
    reasons = [
        (copied, f"as set on {name}"),
        (guards, "so that no record that the source accepts is refused or changed"),
        (gone, f"{name} has no such setting any more"),
    ]
    return "; ".join(f"{', '.join(keys)}: {words}" if several else words for keys, words in reasons if keys)


async def after_cut_over(ends: Ends) -> list[str]:
    """Commands that give topics back what copies needed otherwise: their source's ``message.timestamp.type``, and its bound of old timestamps, or the
    site's own where the source topic sets none. As long as the link copies to them they need both guards, so it is for whoever ends the link to say
    when."""
    topics = {name: topic for name, topic in (await discover(ends.source, ends.link)).items() if not topic.problem}
    there = await topic_configs(ends.source, sorted(topics))
    here = await topic_configs(ends.target, sorted(topic.target for topic in topics.values()))
    ours = memory.of_kind(await memory.recall(ends.target, ends.link.name), "config", settings.remembered)
    commands = []
    for name, topic in topics.items():
        source, target = there.get(name), here.get(topic.target)
        if not isinstance(source, TopicConfig) or not isinstance(target, TopicConfig):
            continue  # not to be seen, which the plan has told
        alter = (
            f"kafka-configs.sh --bootstrap-server {','.join(ends.target.site.bootstrap)} --alter --entity-type topics"
        )
        back = settings.given_back(source, target, ours.get(topic.target, {}))
        add = ",".join(f"{key}={value}" for key, value in back.items() if value is not None)
        drop = ",".join(key for key, value in back.items() if value is None)
        options = [f"--add-config {add}"] * bool(add) + [f"--delete-config {drop}"] * bool(drop)
        if options:
            commands.append(" ".join([f"{alter} --entity-name {topic.target}", *options]))
    return commands
