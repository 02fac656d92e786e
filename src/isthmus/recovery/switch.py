"""Moving work from one site to another while both live: fence, drain, groups, promote. Nothing is lost.

Used by a planned failover, and by failback for the way home.

Invariants:
- fence before drain: what is drained is all that there will ever be;
- drain before groups: every committed position has its record at the other side;
- groups before promote: nobody reads or writes at the new site before the positions are there;
- every right of every step is asked for in the check: nothing is fenced or opened by who may not do all of it;
- without a fence nobody can promise that nothing is left behind. Then the old site is looked at once more when all is done, and what was written
  there since is told as a failure.
"""

from __future__ import annotations

import time
from typing import Any

from isthmus.config import Link
from isthmus.control.fence import to_take
from isthmus.engine.hold import hold
from isthmus.engine.identity import recognise
from isthmus.errors import ConnectionFailed, DataError, UnknownLink
from isthmus.kafka.offsets import Partition
from isthmus.recovery import access, stranded
from isthmus.recovery.allowed import refuse_missing
from isthmus.recovery.catching_up import catch_up
from isthmus.recovery.fencing import How
from isthmus.recovery.journal import Entry, Found
from isthmus.recovery.operation import Operation, Step
from isthmus.recovery.roles import set_roles
from isthmus.recovery.seeded import seeded_by
from isthmus.recovery.service import merged
from isthmus.recovery.settled import settled_ends
from isthmus.recovery.stage import links_between
from isthmus.recovery.standing import standing

# Without a fence, nothing new for this long is taken for rest.
REST_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 3.0


class Switch:
    """The steps of a planned move from ``old`` to ``new``; ``prefix`` tells them from other steps of one operation."""

    def __init__(
        self,
        operation: Operation,
        old: str,
        new: str,
        *,
        fence: How | None = None,
        seconds: float = 600.0,
        links: tuple[Link, ...] | None = None,
        two_way: bool | None = None,
        prefix: str = "",
        patience: float = 0.0,
    ) -> None:
        self._operation, self._stage, self._config = operation, operation.stage, operation.stage.config
        self.old, self.new = old, new
        between = links_between(self._config, old, new)
        self.links = between.forward if links is None else links
        self.two_way = bool(between.backward) if two_way is None else two_way
        # A move along links that were chosen for it is a part of something larger, which sees to the others itself.
        self._way_back = between.backward if links is None else ()
        self._alone = links is None
        self._wanted_fence, self._seconds, self._prefix, self._patience = fence, seconds, prefix, patience

    def steps(self) -> list[Step]:
        old, new = self.old, self.new
        names = ", ".join(link.name for link in self.links)
        p = self._prefix
        return [
            Step(p + "check", f"look whether both sites and {names} are fit for the move", self.check, self.plan_check),
            Step(p + "fence", f"keep writers away from {old}", self.fence, self.plan_fence),
            Step(p + "drain", f"wait until all of {old} is at {new}", self.drain, self.plan_drain),
            Step(p + "groups", f"put consumer groups where they stopped, at {new}", self.groups, self.plan_groups),
            Step(p + "promote", f"let clients write at {new}", self.promote, self.plan_promote),
            Step(p + "roles", f"{new} is in service from now on", self.roles),
            Step(p + "late", f"look whether {old} was written to since", self.late),
        ]

    def _note(self, step: str) -> Any:
        return lambda words: self._operation.note(self._prefix + step, words)

    # -- check --------------------------------------------------------------------------------------------

    def check(self) -> Found:
        found: Found = {"links": {}}
        for name in (self.old, self.new):
            self._stage.site(name)
        source, target = self._stage.site(self.old), self._stage.site(self.new)
        self._stage.run(recognise, source, target)
        for link in self._way_back:
            held = self._stage.asked_of(link, self.old).held
            if held:
                raise DataError(
                    f"link {link.name} is held ({held}): what it has not copied would stay behind. `isthmus failback {self.new}` brings work home"
                )
        for link in self.links:
            now = self._stage.at(self.new, f"reading the state of link {link.name}", standing, link)
            asked = self._stage.asked_of(link, self.new)
            if asked.held:
                raise DataError(
                    f"link {link.name} is held ({asked.held}); a planned move needs it in service. `isthmus failback` ends that"
                )
            if asked.paused:
                raise DataError(
                    f"link {link.name} is paused: nothing would ever arrive. `isthmus resume {link.name}` first"
                )
            found["links"][link.name] = {"partitions": len(now.progress), "faults": len(now.reports.faults)}
            if now.reports.faults:
                (topic, partition), fault = next(iter(now.reports.faults.items()))
                raise DataError(
                    f"link {link.name}: {topic}[{partition}] stands still: {fault.message}. A planned move loses nothing, so mend that "
                    f"first; in an emergency, `isthmus failover {self.old} --to {self.new} --emergency` declares it as lost"
                )
        how = self._chosen()
        refuse_missing(self._stage, self.old, self.new, self.links, how, reached=True)
        if how == "acls":  # raises if ACLs cannot fence it
            self._stage.at(self.old, "reading ACLs", to_take, self._topics())
        found["fence"] = how
        return found

    def _chosen(self) -> How:
        how = access.chosen_fence(self._stage, self.old, self._wanted_fence)
        if how == "none" and self._alone and self._wanted_fence is None:
            raise access.refuse_unfenced(self.old)
        return how

    def plan_check(self) -> list[str]:
        lines = self._stage.told(self.old, self.new)
        refuse_missing(self._stage, self.old, self.new, self.links, self._chosen(), reached=True)
        for link in self.links:
            try:
                now = self._stage.at(self.new, "reading the link's state", standing, link)
            except (UnknownLink, ConnectionFailed) as error:
                lines.append(error.message)
                continue
            age = time.time() - now.reported if now.reported else None
            words = "nobody runs it" if age is None or age > 15 else f"running, last heard {age:.0f} s ago"
            lines.append(
                f"link {link.name}: {len(now.progress)} partitions, {len(now.reports.faults)} stand still; {words}"
            )
        return lines

    # -- fence --------------------------------------------------------------------------------------------

    @property
    def _how(self) -> How:
        how: How = self._operation.entry.found(self._prefix + "check")["fence"]
        return how

    def fence(self) -> Found:
        if self._how == "none":
            self._note("fence")(
                f"{self.old} is not fenced: nothing keeps producers from writing there, and what they write during the move may stay behind. Stop "
                "them all now. Draining waits until nothing new comes; in the end it is looked whether something came all the same"
            )
        return access.fence(self._stage, self.old, self._topics(), self._how, self._operation.entry.id)

    def plan_fence(self) -> list[str]:
        return access.fence_words(self._stage, self.old, self._topics(), self._chosen())

    def _topics(self) -> list[str]:
        """The source topics of all links, as they have been copied."""
        found: set[str] = set()
        for link in self.links:
            now = self._stage.at(self.new, f"reading the state of link {link.name}", standing, link)
            found |= {topic for topic, _ in now.progress}
        return sorted(found)

    # -- drain --------------------------------------------------------------------------------------------

    def drain(self) -> Found:
        """Until all that was born at the old site is copied. With a fence nothing more is born there, so its ends as they are now will do: what
        links bring there meanwhile goes no further. Without one, until nothing new has come for a while."""
        deadline = time.monotonic() + self._seconds
        note = self._note("drain")
        self._await_open_transactions()
        while True:
            results = catch_up(self._config, self.links, note, max(1.0, deadline - time.monotonic()))
            if self._how != "none":
                break
            before = self._copied()
            time.sleep(REST_SECONDS)
            catch_up(self._config, self.links, note, max(1.0, deadline - time.monotonic()))
            after = self._copied()
            moving = [f"{topic}[{p}]" for (topic, p), end in after.items() if before.get((topic, p)) != end]
            if not moving:
                break
            if time.monotonic() > deadline:
                raise DataError(
                    f"{self.old} is still being written to ({', '.join(moving[:5])}): stop its producers, or fence it with its ACLs or a hook "
                    f"(sites.{self.old}.hooks.fence); then give the command again"
                )
            note(f"{self.old} is still being written to ({', '.join(moving[:3])}); waiting for it to rest")
        found: Found = {"links": results, "rpo_records": 0, "rpo_seconds": 0.0}
        if self._how == "none" and self.two_way:
            found["copied"] = [[topic, p, end] for (topic, p), end in sorted(self._copied().items())]
        return found

    def _copied(self) -> dict[Partition, int]:
        """Behind the last record of each source partition that was copied: by the map, which only knows what the links' rules want."""
        found: dict[Partition, int] = {}
        for link in self.links:
            for each in self._stage.at(self.new, f"reading the map of link {link.name}", seeded_by, link):
                found[each.here, each.partition] = int(each.runs[-1, 0] + each.runs[-1, 2]) if len(each.runs) else 0
        return found

    def _await_open_transactions(self) -> None:
        """What producers of the old site have left open becomes visible, or never: behind the promotion it would come too late."""
        partitions: set[Partition] = set()
        for link in self.links:
            partitions |= set(self._stage.at(self.new, "reading the link's state", standing, link).progress)
        self._stage.at(self.old, "reading log ends", settled_ends, sorted(partitions))

    # -- what came too late -------------------------------------------------------------------------------

    def late(self) -> Found:
        """What was written at the old site behind the drain, by partition; only where nothing fenced it."""
        # On the way home, with links both ways, clients of the site that is left may write there again: their records follow.
        if self._how != "none" or (self.two_way and not self._alone):
            return {"partitions": {}}
        late = self._came_late() if self.two_way else self._stayed_behind()
        return {"partitions": {f"{topic}[{p}]": count for (topic, p), count in sorted(late.items())}}

    def _came_late(self) -> dict[Partition, int]:
        """Of links that go on: records of the old site that were copied after the drain, by the map."""
        copied = self._operation.entry.found(self._prefix + "drain").get("copied")
        if copied is None:  # drained by a version that did not write it down
            return {}
        drained = {(topic, p): end for topic, p, end in copied}
        catch_up(self._config, self.links, self._note("late"), self._seconds)
        return {key: end - drained.get(key, 0) for key, end in self._copied().items() if end > drained.get(key, 0)}

    def _stayed_behind(self) -> dict[Partition, int]:
        """Of links that rest now: records that they would copy if they did not."""
        found: dict[Partition, int] = {}
        for link in self.links:
            now = self._stage.at(self.new, f"reading the state of link {link.name}", standing, link)
            ranges = self._stage.at(self.old, "comparing its logs with what was copied", stranded.behind, now)
            ids = self._stage.identities(link)
            counts = self._stage.at(self.old, "counting what was not copied", stranded.count, link, ranges, ids)
            found |= {key: counted.records for key, counted in counts.items() if counted.records}
        return found

    def plan_drain(self) -> list[str]:
        from isthmus.engine.snapshot import Observer

        lines = []
        for link in self.links:
            with Observer(link, self._config.sites[link.source], self._config.sites[link.target]) as observer:
                try:
                    observer.connect(5)
                    now = observer.look()
                except ConnectionFailed as error:
                    lines.append(error.message)
                    continue
            lines.append(f"link {link.name}: {now.lag} behind, {now.state}")
        return lines

    # -- groups, promote, roles ---------------------------------------------------------------------------

    def groups(self) -> Found:
        """Readers that died with a site count as members there until their sessions end, and a group with members is left to them."""
        deadline = time.monotonic() + self._patience
        while True:
            found = {link.name: access.move_groups(self._config, link) for link in self.links}
            left = sorted({row["group"] for rows in found.values() for row in rows if access.has_members(row)})
            if not left or time.monotonic() > deadline:
                return {"links": found}
            self._note("groups")(
                f"{', '.join(left)}: still has members at {self.new}; waiting for their sessions to end"
            )
            time.sleep(LOOK_AGAIN_SECONDS)

    def plan_groups(self) -> list[str]:
        return [line for link in self.links for line in access.groups_words(self._config, link)]

    def promote(self) -> Found:
        found = access.promote(self._stage, self.links, self.new)
        found["unfenced"] = access.unfence(self._stage, self.new, self._operation.entry.id)
        if not self.two_way:
            # Without links the other way nothing would bring home what is written at the new site meanwhile; what somebody wrote at the
            # old one would arrive behind the new writers' backs. So the links rest until failback.
            for link in self.links:
                reason = f"{self.new} is in service instead of {self.old}; `isthmus failback {self.old}` ends that"
                self._stage.at(self.new, f"holding link {link.name}", hold, link, reason)
            found["held"] = [link.name for link in self.links]
        ends = access.ends_of_copies(self._stage, self.links, self.new)
        found["ends"] = merged(self._operation.entry.since, ends)
        return found

    def plan_promote(self) -> list[str]:
        return access.promote_words(self._stage, self.links, self.new)

    def roles(self) -> Found:
        here = filter(self._stage.answers, (self.old, self.new))
        set_roles(self._stage, here, {self.old: "standby", self.new: "active"}, self._operation.entry.id)
        return {"active": self.new, "standby": self.old}


def refuse_late(entry: Entry, prefix: str = "") -> None:
    """Raise if an unfenced site was written to during the move: the move is done, and not everything went with it."""
    late: dict[str, int] = entry.found(prefix + "late").get("partitions", {})
    if late:
        old, new = (entry.to, entry.site) if entry.kind == "failback" else (entry.site, entry.to)
        names = ", ".join(f"{name} ({count})" for name, count in list(late.items())[:10])
        more = f" and {len(late) - 10} more partitions" if len(late) > 10 else ""
        raise DataError(
            f"{new} is in service, but {old} was not fenced and has been written to since: {names}{more}. Stop the producers of {old}. With links both "
            f"ways these records stand at {new} behind newer ones; with links one way they are at {old} alone: `isthmus failback` counts and copies "
            "them"
        )
