"""Failover: work moves from a site to another, planned (both live, nothing is lost) or in an emergency (the old one is gone).

Invariants of an emergency:
- hold before declare: from then on nothing of the old site arrives, so what is declared as lost is not half true a moment later;
- declare before promote: what is lost is known, and written, before anybody writes at the new site;
- a link that has never run keeps nobody: nothing of it is here, which is said, and the others go on without it;
- the old site is asked for nothing that the new one cannot do without. Its fence is tried where it answers, and its hook always: a site that is
  dead to us may be alive to its clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from isthmus.config import Config, Link
from isthmus.control.fence import to_take
from isthmus.engine.hold import hold
from isthmus.errors import ConnectionFailed, Interrupted, IsthmusError, UnknownLink, UsageError
from isthmus.recovery import access
from isthmus.recovery.allowed import refuse_missing
from isthmus.recovery.fencing import How
from isthmus.recovery.journal import Entry, Found, Journal
from isthmus.recovery.losses import declare, told
from isthmus.recovery.operation import Operation, Step, Tell, preview, report
from isthmus.recovery.roles import set_roles
from isthmus.recovery.service import merged, service
from isthmus.recovery.stage import Between, Stage, links_between
from isthmus.recovery.standing import standing
from isthmus.recovery.switch import Switch, refuse_late

Mode = Literal["planned", "emergency"]
KIND = "failover"


class Emergency:
    """The steps of an emergency: the old site is dead, or must be treated as if it were."""

    def __init__(
        self, operation: Operation, old: str, new: str, fence: How | None, agree: Callable[[str], bool] | None = None
    ) -> None:
        self._agree = agree
        self._operation, self._stage, self._config = operation, operation.stage, operation.stage.config
        self.old, self.new, self._fence = old, new, fence
        self.links = links_between(self._config, old, new).forward

    def steps(self) -> list[Step]:
        old, new = self.old, self.new
        return [
            Step("check", f"look whether {new} can take over", self.check, self.plan_check),
            Step("fence", f"keep writers away from {old}, as far as it can be reached", self.fence, self.plan_fence),
            Step("hold", f"let nothing more of {old} arrive at {new}", self.hold, self.plan_hold),
            Step("declare", "say what never arrived", self.declare, self.plan_declare),
            Step("groups", f"put consumer groups where they stopped, at {new}", self.groups, self.plan_groups),
            Step("promote", f"let clients write at {new}", self.promote, self.plan_promote),
            Step("roles", f"{new} is in service from now on", self.roles),
        ]

    def check(self) -> Found:
        self._stage.site(self.new)
        alive = self._stage.answers(self.old)
        if alive:
            if self._agree is None:
                self._operation.note("check", self._living())
            elif not self._agree(self._living()):
                raise Interrupted("not done; nothing was changed")
        links = {}
        ran, never = self._by_state()
        if not ran:
            raise UnknownLink(
                f"no link from {self.old} to {self.new} has ever run ({', '.join(link.name for link in never)}): nothing of {self.old} is at {self.new}"
            )
        for link in never:
            self._operation.note("check", self._nothing_of(link))
        for link in ran:
            now = self._stage.at(self.new, f"reading the state of link {link.name}", standing, link)
            links[link.name] = {
                "partitions": len(now.progress),
                "heard": now.heard or None,
                "reported": now.reported or None,
            }
        how, why = self._chosen(alive)
        refuse_missing(self._stage, self.old, self.new, self.links, how, reached=False)
        if why:
            self._operation.note("check", why)
        return {
            "old_answers": alive,
            "links": links,
            "never_ran": [link.name for link in never],
            "fence": how,
            "unfenced_because": why,
        }

    def _by_state(self) -> tuple[list[Link], list[Link]]:
        """The links that have brought something here, and those that have never run."""
        ran: list[Link] = []
        never: list[Link] = []
        for link in self.links:
            try:
                self._stage.at(self.new, f"reading the state of link {link.name}", standing, link)
                ran.append(link)
            except UnknownLink:
                never.append(link)
        return ran, never

    def _nothing_of(self, link: Link) -> str:
        return f"link {link.name} has never run: nothing of {', '.join(link.topics.include)} is at {self.new}, and what {self.old} holds of it is not counted"

    @property
    def _ran(self) -> list[Link]:
        never = self._operation.entry.found("check").get("never_ran")
        return self._by_state()[0] if never is None else [link for link in self.links if link.name not in never]

    def _chosen(self, alive: bool) -> tuple[How, str]:
        """How the old site is fenced, and why it is not if it is not. In an emergency that keeps nobody: it is said as loudly as can be."""
        hooks = self._config.sites[self.old].hooks
        if hooks is not None and hooks.fence is not None and self._fence is None:
            return "hook", ""
        if self._fence is not None or not alive:
            how = access.chosen_fence(self._stage, self.old, self._fence or "none")
            return (
                how,
                ""
                if self._fence
                else f"{self.old} does not answer, so nothing fences it: see that no client can reach it",
            )
        try:
            how = access.chosen_fence(self._stage, self.old, None)
            if how == "acls":
                refuse_missing(self._stage, self.old, self.new, self.links, how, reached=True)
                self._stage.at(self.old, "reading ACLs", to_take, [])
        except IsthmusError as error:
            return "none", f"{self.old} answers and cannot be fenced: {error.message}\nSee that no client can reach it"
        none = f"{self.old} answers and cannot be fenced (no authoriser, no hook): see that no client can reach it"
        return how, none if how == "none" else ""

    def _living(self) -> str:
        return (
            f"{self.old} answers. `isthmus failover {self.old} --to {self.new} --planned` would lose nothing; an emergency declares as lost what "
            "is not copied yet"
        )

    def plan_check(self) -> list[str]:
        lines = self._stage.told(self.old, self.new) + ([self._living()] if self._stage.answers(self.old) else [])
        return lines + [self._nothing_of(link) for link in self._by_state()[1]]

    def fence(self) -> Found:
        how: How = self._operation.entry.found("check")["fence"]
        if how == "acls" and not self._stage.answers(self.old):
            return {"how": "none", "why": f"{self.old} does not answer"}
        topics = sorted({topic for link in self._ran for topic in self._topics(link.name)})
        try:
            return access.fence(self._stage, self.old, topics, how, self._operation.entry.id)
        except ConnectionFailed as error:
            return {"how": "none", "why": error.message}

    def _topics(self, name: str) -> set[str]:
        link = self._config.links[name]
        now = self._stage.at(self.new, f"reading the state of link {name}", standing, link)
        return {topic for topic, _ in now.progress}

    def plan_fence(self) -> list[str]:
        hooks = self._config.sites[self.old].hooks
        if hooks is not None and hooks.fence is not None:
            return [f"run {hooks.fence[0]}"]
        if not self._stage.answers(self.old):
            return [
                f"{self.old} does not answer and has no hook (sites.{self.old}.hooks.fence): see that no client can reach it"
            ]
        how, why = self._chosen(True)
        topics = sorted({t for link in self._ran for t in self._topics(link.name)})
        return [why] if why else access.fence_words(self._stage, self.old, topics, how)

    def hold(self) -> Found:
        reason = f"{self.new} is in service instead of {self.old}; `isthmus failback {self.old}` or `isthmus reseed {self.old}` ends that"
        for link in self.links:
            self._stage.at(self.new, f"holding link {link.name}", hold, link, reason)
        return {"held": [link.name for link in self.links]}

    def plan_hold(self) -> list[str]:
        return [f"hold link {link.name}" for link in self.links]

    def declare(self) -> Found:
        found = self._lost()
        for each in found["links"]:
            for words in self._told(each):
                self._operation.note("declare", words)
        return found

    def _lost(self) -> Found:
        old = self._stage.site(self.old) if self._stage.answers(self.old) else None
        began = self._operation.entry.began
        fence = self._operation.entry.found("fence").get("how", "none")
        lost = []
        for link in self._ran:
            ids = self._stage.identities(link) if old is not None else None
            doing = f"reading the state of link {link.name}"
            lost.append(self._stage.at(self.new, doing, declare, link, old, ids, began, fence))
        return {"links": lost, **totals(lost)}

    def _told(self, found: dict[str, Any]) -> list[str]:
        link = f"link {found['link']}: " if len(self.links) > 1 else ""
        return [link + words for words in told(found, self.old, self._operation.entry.began)]

    def plan_declare(self) -> list[str]:
        found = self._lost()
        lines = []
        for each in found["links"]:
            for loss in each["partitions"][:10]:
                lines.append(
                    f"{loss['topic']}[{loss['partition']}]: copied up to {loss['position']}, seen up to {loss['end']}: "
                    f"{loss['most']} {'records' if loss['counted'] else 'offsets'} not copied"
                )
            if len(each["partitions"]) > 10:
                lines.append(f"and {len(each['partitions']) - 10} more partitions of link {each['link']}")
            lines += self._told(each)
        return lines

    def groups(self) -> Found:
        if self._stage.answers(self.old):
            try:
                return {"links": {link.name: access.move_groups(self._config, link) for link in self._ran}}
            except IsthmusError as error:
                self._operation.note("groups", f"{error.message}; groups stay where they were last put")
        for words in self._not_followed():
            self._operation.note("groups", words)
        return {
            "links": {link.name: access.groups_at(self._stage, link, self.new) for link in self._ran},
            "last_sync": True,
        }

    def plan_groups(self) -> list[str]:
        if self._stage.answers(self.old):
            return [line for link in self._ran for line in access.groups_words(self._config, link)]
        found = {link.name: access.groups_at(self._stage, link, self.new) for link in self._ran}
        words = [f"link {name}: {len(rows)} groups stand where they were last put" for name, rows in found.items()]
        return words + self._not_followed()

    def _not_followed(self) -> list[str]:
        """Which groups nobody has put anywhere: their consumers begin at the new site where their own settings say."""
        words = []
        for link in self.links:
            groups = link.sync.groups
            if not groups.enabled:
                words.append(f"link {link.name} does not keep groups (sync.groups is off): they have no position here")
            elif groups.only_empty:
                words.append(
                    f"link {link.name} keeps groups without members only (sync.groups.only_empty): those that were reading at {self.old} "
                    "have no position here, or an old one"
                )
        return words

    def promote(self) -> Found:
        found = access.promote(self._stage, self._ran, self.new)
        found["unfenced"] = access.unfence(self._stage, self.new, self._operation.entry.id)
        ends = access.ends_of_copies(self._stage, self._ran, self.new)
        found["ends"] = merged(self._operation.entry.since, ends)
        return found

    def plan_promote(self) -> list[str]:
        return access.promote_words(self._stage, self._ran, self.new)

    def roles(self) -> Found:
        here = filter(self._stage.answers, (self.old, self.new))
        set_roles(self._stage, here, {self.old: "lost", self.new: "active"}, self._operation.entry.id)
        return {"active": self.new, "lost": self.old}


def failover(
    config: Config,
    old: str,
    new: str,
    mode: Mode,
    tell: Tell,
    *,
    fence: How | None = None,
    seconds: float = 600.0,
    dry_run: bool = False,
    abandon: bool = False,
    agree: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Carry it out, or go on with it; the report. With ``dry_run``, what each step would do. ``agree`` is told of what an operator may not have
    meant, and says whether it is."""
    if not links_between(config, old, new).forward:
        raise UsageError(f"the configuration has no link from {old} to {new}: nothing of {old} is there")
    with Stage(config) as stage:
        entry = Entry(KIND, old, new, mode, {"fence": fence})
        operation = Operation(stage, Journal(stage.site(new), entry), tell)
        steps = (
            Switch(operation, old, new, fence=fence, seconds=seconds).steps()
            if mode == "planned"
            else Emergency(operation, old, new, fence, agree).steps()
        )
        if dry_run:
            return {**report(entry), "dry_run": True, "steps": preview(steps)}
        operation.open()
        if abandon:
            return operation.abandon()
        if not operation.resumed:
            before = service(operation.journal.known, old, new)
            if before is not None and before.moved is not None and _rests(stage, links_between(config, old, new), new):
                words = f"{new} serves instead of {old} already: the {before.moved.told()} stands. Nothing was changed"
                operation.note("", words)
                return {**report(before.moved), "already": True, **outcome(before.moved, config)}
            if before is not None and not before.over:
                entry.since = before.since
        operation.carry_out(steps)
        done = {**operation.close(), **outcome(operation.entry, config)}
        refuse_late(operation.entry)
        return done


def _rests(stage: Stage, between: Between, new: str) -> bool:
    """Whether the links from the old site still rest, as a failover leaves them."""
    return all(stage.asked_of(link, new).held for link in between.forward)


def totals(lost: list[dict[str, Any]]) -> dict[str, Any]:
    """What is declared of all links together: as little is known of all as of the one that is known least."""
    until, unknown = [each["known_until"] for each in lost], [each["unknown_since_seconds"] for each in lost]
    return {
        # Seen at the old site and not copied. That it is all, only ``at_most`` says.
        "rpo_records": sum(each["records"] for each in lost),
        "rpo_seconds": max((each["behind_seconds"] for each in lost), default=0.0),
        "at_most": all(each["at_most"] for each in lost),
        "known_until": None if None in until else min(until, default=None),
        "unknown": [{"link": each["link"], **one} for each in lost for one in each["unknown"]],
        "unknown_more": sum(each["unknown_more"] for each in lost),
        "unknown_since_seconds": None if None in unknown else max(unknown, default=0.0),
    }


def outcome(entry: Entry, config: Config) -> dict[str, Any]:
    """RTO and RPO, and what clients need."""
    lost = entry.found("declare") or entry.found("drain")
    promoted = entry.done["promote"]
    ready = promoted["at"] + promoted["seconds"]
    heard = [each["heard"] for each in lost.get("links", []) if each.get("heard")]
    return {
        "rto_seconds": round(ready - entry.began, 3),
        "outage_seconds": round(ready - max(heard), 3) if heard else None,
        "rpo_records": lost.get("rpo_records", 0),
        "rpo_seconds": lost.get("rpo_seconds", 0.0),
        # A planned move loses nothing. What the version before declared does not say how far it can be wrong.
        "at_most": lost.get("at_most", "declare" not in entry.done),
        "known_until": lost.get("known_until"),
        "unknown": lost.get("unknown", []),
        "unknown_more": lost.get("unknown_more", 0),
        "unknown_since_seconds": lost.get("unknown_since_seconds", 0.0),
        "clients": access.clients(config, entry.to, entry.found("groups").get("links", {})),
        "ready_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ready)),
    }
