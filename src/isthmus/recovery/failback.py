"""Failback: work comes home to a site that has returned with its data. Only what was written since is copied; nothing is wiped, nothing comes twice.

Invariants:
- what never made it across (stranded.py) is dealt with before anything is copied home: afterwards nobody could tell it from what came home;
- the way home is a planned move (switch.py), so it loses nothing; where nothing would fence the site that is left, somebody has to say that this is meant;
- with links one way only, the way home is the link turned round, beginning behind the last copy that the link has made before the other site took
  over; copies that it made later stay out. When all is home, the link itself goes on behind it; what came home stands in the turned link's map,
  which group positions are found by as well. What home's own clients wrote in between is copied apart, like what is stranded;
- which ranges are copied apart is written down, or follows from links that rest, before a record of them is copied: whoever goes on with the
  operation copies the same ones, once.
"""

from __future__ import annotations

import time
from typing import Any

from isthmus.config import Config, Link
from isthmus.config.part import Part
from isthmus.config.turned import STRANDED, Without
from isthmus.engine.hold import hold, release
from isthmus.engine.identity import recognise
from isthmus.engine.positions import set_positions
from isthmus.engine.state import Progress
from isthmus.errors import ConnectionFailed, DataError, IsthmusError, UnknownLink, UsageError
from isthmus.kafka.offsets import Partition, log_ranges
from isthmus.kafka.read import Range
from isthmus.recovery import access, stranded
from isthmus.recovery.allowed import refuse_missing_for_parts
from isthmus.recovery.catching_up import catch_up
from isthmus.recovery.fencing import How
from isthmus.recovery.journal import Entry, Found, Journal, entries
from isthmus.recovery.onward import comes_round
from isthmus.recovery.operation import Operation, Step, Tell, Telling, preview, report
from isthmus.recovery.seeded import seeded_by
from isthmus.recovery.seeding import way_home
from isthmus.recovery.service import Marks, Service, service
from isthmus.recovery.stage import Between, Stage, links_between
from isthmus.recovery.standing import Standing, standing
from isthmus.recovery.stranded import Policy, Ranges
from isthmus.recovery.switch import Switch, refuse_late
from isthmus.recovery.verify_units import spans_of
from isthmus.recovery.verifying import verify_links

KIND = "failback"
# Kafka's default for a reader's session: those that died with the site are forgotten by then.
SESSION_SECONDS = 50.0
# In the name of the link that copies what home's own clients have written since it returned.
OWN = "-own"


class Failback:
    """The steps home. ``config`` holds the way back where the configuration has none (``turned``: then it is the links turned round)."""

    def __init__(
        self,
        operation: Operation,
        home: str,
        away: str,
        between: Between,
        back: tuple[Link, ...],
        *,
        policy: Policy,
        fence: How | None,
        seconds: float,
        verify: bool,
    ) -> None:
        self._operation, self._stage, self._config = operation, operation.stage, operation.stage.config
        self.home, self.away, self.between, self.back = home, away, between, back
        self.turned = not between.backward
        self._policy, self._fence, self._seconds, self._verify = policy, fence, seconds, verify
        self._starts: Marks = operation.entry.options["starts"]
        self._switch = Switch(
            operation,
            away,
            home,
            fence=fence,
            seconds=seconds,
            links=back,
            two_way=not self.turned,
            prefix="switch-",
            patience=SESSION_SECONDS,
        )
        if self.turned and operation.entry.found("count"):
            self._leave_copies()

    def steps(self) -> list[Step]:
        home, away = self.home, self.away
        steps = [
            Step("check", f"look whether {home} is back with its data", self.check, self.plan_check),
            Step("count", f"count the records of {home} that never arrived at {away}", self.count, self.plan_count),
            Step("stranded", "deal with them", self.stranded, self.plan_stranded),
            Step("back", f"copy home what was written at {away} since", self.catch_up, self.plan_catch_up),
            *self._switch.steps(),
            Step("restore", f"{away} is a standby again, and links go on as before", self.restore),
        ]
        if self._verify:
            steps.append(Step("verify", "compare both sites, both ways", self.verify))
        return steps

    def _note(self, step: str, words: str) -> None:
        self._operation.note(step, words)

    def _standing(self, link: Link) -> Standing:
        now: Standing = self._stage.at(self.away, f"reading the state of link {link.name}", standing, link)
        return now

    # -- check --------------------------------------------------------------------------------------------

    def check(self) -> Found:
        home, away = self._stage.site(self.home), self._stage.site(self.away)
        self._stage.run(recognise, home, away)
        found: Found = {"links": {}}
        for link in self.between.forward:
            now = self._standing(link)
            if self._stage.asked_of(link, self.away).paused:
                raise DataError(
                    f"link {link.name} is paused: it would never catch up. `isthmus resume {link.name}` first"
                )
            self._behind(now)
            found["links"][link.name] = {"partitions": len(now.progress)}
        self._refuse_unfenced()
        if self._makes_parts:
            refuse_missing_for_parts(self._stage, self.away, self.between.forward)
        return found

    def _refuse_unfenced(self) -> None:
        """Before anything is changed, as any planned move: quiet for a while is no rest. Whoever goes on with it has said so before."""
        how = access.chosen_fence(self._stage, self.away, self._fence)
        if how == "none" and self._fence is None:
            raise access.refuse_unfenced(self.away)

    def plan_check(self) -> list[str]:
        lines = self._stage.told(self.home, self.away)
        if self._stage.answers(self.away):
            self._refuse_unfenced()
            if self._makes_parts:
                refuse_missing_for_parts(self._stage, self.away, self.between.forward)
        return lines

    @property
    def _makes_parts(self) -> bool:
        """Whether links of this operation's own copy something apart, and leave state that is deleted in the end."""
        return self.turned or self._policy == "set-aside"

    # -- stranded -----------------------------------------------------------------------------------------

    def _behind(self, now: Standing) -> Ranges:
        """What a link that stands so has not copied."""
        ranges: Ranges = self._stage.at(self.home, "comparing its logs with what was copied", stranded.behind, now)
        return ranges

    def _ranges(self, link: Link) -> tuple[Ranges, dict[Partition, int]]:
        """What the link has not copied, and how many records that are."""
        ranges = self._behind(self._standing(link))
        return ranges, self._counted(link, ranges)

    def _counted(self, link: Link, ranges: Ranges) -> dict[Partition, int]:
        """How many records of these ranges are the link's to copy: what came from the other site is not."""
        doing, part = "counting what was not copied", stranded.apart(link, ranges, "count")
        counts = self._stage.at(self.home, doing, stranded.count, part, ranges, self._stage.identities(link))
        return {key: counted.records for key, counted in counts.items()}

    def count(self) -> Found:
        """Written down before anything is done about them: an attempt that is interrupted has dealt with some, and they count all the same. A link
        that does not copy them itself rests from here on, so that the ranges stay what they are."""
        found: Found = {"links": {}, "records": 0}
        for link in self.between.forward:
            if self.turned or self._policy == "set-aside":
                self._rest(link)
            self._take_over(link)
            ranges, counts = self._ranges(link)
            told: list[dict[str, Any]] = [
                {
                    "topic": key[0],
                    "partition": key[1],
                    "first": ranges[key][0],
                    "end": ranges[key][1],
                    "records": number,
                }
                for key, number in counts.items()
                if number
            ]
            found["links"][link.name] = told
            found["records"] += sum(each["records"] for each in told)
        if self.turned:
            self._leave_copies()
        return found

    def _rest(self, link: Link) -> None:
        reason = self._stage.asked_of(link, self.away).held or f"`isthmus failback {self.home}` is under way"
        self._stage.at(self.away, f"holding link {link.name}", hold, link, reason)

    def _take_over(self, link: Link) -> None:
        """What an abandoned failback has copied apart and did not live to tell the link: it is there, and does not come again."""
        known = self._operation.journal.known.get((KIND, self.home))
        if known is None or not known.abandoned:
            return
        for name in self._parts(known):
            part = link.model_copy(update={"name": link.name + name})
            try:
                self._stage.asked_of(part, self.away)
                self._stage.at(self.away, f"holding link {part.name}", hold, part, "it was abandoned")
                copied = self._stage.at(self.away, "reading what was copied apart", seeded_by, part)
            except UnknownLink:
                continue
            self._rest(link)
            now = self._standing(link)
            ranges = {
                (each.here, each.partition): (now.progress[each.here, each.partition].offset, each.reached)
                for each in copied
                if (each.here, each.partition) in now.progress
            }
            positions = stranded.past(now, ranges)
            aside = [each for each in copied if now.targets.get((each.here, each.partition)) != each.there]
            spans = {
                (e.here, e.partition): [ranges[e.here, e.partition]] for e in aside if (e.here, e.partition) in ranges
            }
            self._stage.at(self.away, "remembering what was set aside", stranded.remember, link, spans)
            mine = [each for each in copied if now.targets.get((each.here, each.partition)) == each.there]
            source = self._stage.site(self.home).cluster_id
            self._stage.at(
                self.away, f"setting link {link.name}", stranded.adopt, link, source, ranges, positions, mine
            )

    def stranded(self) -> Found:
        counted = self._operation.entry.found("count")
        for link in self.between.forward:
            rows = counted["links"][link.name]
            if rows:
                records = sum(each["records"] for each in rows)
                words = f"link {link.name}: {records} records of {self.home} never arrived; {self._policy}"
                self._note("stranded", words)
            ranges = self._written_down(link, rows)
            if ranges and self._policy == "set-aside":
                self._set_aside(link, ranges)
            elif ranges and self.turned:
                self._append_once(link, ranges)
            if not self.turned:
                self._let_go_on(link)
        return {"policy": self._policy, **counted}

    def _written_down(self, link: Link, rows: list[dict[str, Any]]) -> Ranges:
        """The ranges that were counted."""
        ranges = {(row["topic"], row["partition"]): (row["first"], row.get("end", -1)) for row in rows}
        if any(end < 0 for _, end in ranges.values()):  # written by a version that did not say where they end
            now = self._behind(self._standing(link))
            return {key: now[key] for key in ranges if key in now}
        return ranges

    def _let_go_on(self, link: Link) -> None:
        """Origins tell what was born where, so the link may run from now on; what is stranded it copies by itself."""
        self._stage.at(self.away, f"releasing link {link.name}", release, link)
        catch_up(self._config, [link], lambda words: self._note("stranded", words), self._seconds)

    def _copy_apart(self, link: Link, ranges: Ranges, suffix: str = "", why: str = "") -> Part:
        """Copy these ranges, whoever goes on with it, once: the link that does it is of this operation alone, and remembers how far it came."""
        name = self._operation.entry.id[:12] + why
        elsewhere = self._stage.at(self.home, "reading log ends", stranded.ends_elsewhere, ranges)
        part = stranded.apart(link, ranges, name, suffix, elsewhere)
        if not self._rests(part):
            catch_up(self._config, [part], lambda words: self._note("stranded", words), self._seconds)
            self._stage.at(self.away, f"holding link {part.name}", hold, part, "its work is done")
        return part

    def _rests(self, part: Part) -> bool:
        """Whether an attempt before this one has copied it all: what was written since is behind its ranges, and nothing to wait for."""
        try:
            return bool(self._stage.asked_of(part, self.away).held)
        except UnknownLink:
            return False

    def _append_once(self, link: Link, ranges: Ranges) -> None:
        """With links one way only, the link rests until all is home; another one copies what is stranded, and tells it where it was put."""
        part = self._copy_apart(link, ranges)
        self._adopt(link, ranges, stranded.past(self._standing(link), ranges), part)

    def _adopt(self, link: Link, ranges: Ranges, positions: dict[Partition, Progress], part: Part | None) -> None:
        came = self._stage.at(self.away, "reading what was copied apart", seeded_by, part) if part is not None else []
        source = self._stage.site(self.home).cluster_id
        doing = f"setting link {link.name}"
        self._stage.at(self.away, doing, stranded.adopt, link, source, ranges, positions, came)

    def _set_aside(self, link: Link, ranges: Ranges) -> None:
        self._copy_apart(link, ranges, STRANDED)
        aside = {key: [span] for key, span in ranges.items()}
        self._stage.at(self.away, "remembering what was set aside", stranded.remember, link, aside)
        self._adopt(link, ranges, stranded.past(self._standing(link), ranges), None)

    def plan_count(self) -> list[str]:
        if not (self._stage.answers(self.home) and self._stage.answers(self.away)):
            return []
        lines = []
        for link in self.between.forward:
            ranges, counts = self._ranges(link)
            for (topic, partition), number in counts.items():
                if number:
                    lines.append(f"{topic}[{partition}] from offset {ranges[topic, partition][0]}: {number} records")
        return lines or ["nothing is stranded"]

    def plan_stranded(self) -> list[str]:
        return [self._policy]

    # -- home ---------------------------------------------------------------------------------------------

    def catch_up(self) -> Found:
        if self.turned:
            self._begin_turned()
        return {"links": catch_up(self._config, self.back, lambda words: self._note("back", words), self._seconds)}

    def plan_catch_up(self) -> list[str]:
        return [f"along link {link.name}, from {link.source} to {link.target}" for link in self.back]

    def _leave_copies(self) -> None:
        """What the link itself has put behind the place where the way home begins stays out: somebody may have let it go on for a while."""
        found = []
        for link in self.between.forward:
            without: Without = {}
            for each in self._stage.at(self.away, f"reading the map of link {link.name}", seeded_by, link):
                start = self._starts.get(each.there, {}).get(str(each.partition), 0)
                spans = [(int(a), int(b)) for a, b in spans_of(each.runs, 1) if b > start]
                if spans:
                    without.setdefault(each.there, {})[each.partition] = spans
            found.append(way_home(link, without))
        self.back = self._switch.links = tuple(found)

    def _begin_turned(self) -> None:
        """The link turned round begins behind the last copy that was made before the other site took over: before that, nothing there is its own."""
        for link, back in zip(self.between.forward, self.back, strict=True):
            now = self._standing(link)
            before = self._before(back)
            source = self._stage.site(self.away).cluster_id
            positions: dict[Partition, Progress] = {}
            skipped: dict[Partition, list[Range]] = {}
            for key, progress in now.progress.items():
                copy = (now.targets[key], key[1])
                start = self._starts.get(copy[0], {}).get(str(copy[1]))
                # Further than that it has begun already, and was interrupted.
                if start is not None and before.get(copy, -1) < start:
                    positions[key] = Progress(start, copy[0], source, progress.target_id, progress.source_id)
                    skipped[copy] = [(max(0, before.get(copy, 0)), start)]
            if positions:
                self._stage.at(self.home, "remembering what came the other way", stranded.remember, back, skipped)
                self._stage.at(self.home, f"setting link {back.name}", set_positions, back, source, positions)
            self._stage.at(self.home, f"releasing link {back.name}", release, back)

    def _before(self, back: Link) -> dict[Partition, int]:
        """How far the link turned round had come at an earlier failback."""
        try:
            known: Standing = self._stage.at(self.home, f"reading the state of link {back.name}", standing, back)
        except UnknownLink:
            return {}
        return {key: progress.offset for key, progress in known.progress.items()}

    def restore(self) -> Found:
        found = access.demote(self._stage, self.between.forward, self.away)
        if self.turned:
            for link, back in zip(self.between.forward, self.back, strict=True):
                self._go_on_behind(link, back)
        self._forget_parts()
        return found

    def _forget_parts(self) -> None:
        """What was copied apart is the link's now, or set aside, and written down so: the state of the links that did it is of no more use."""
        if not self._makes_parts:
            return
        names = [link.name + part for link in self.between.forward for part in self._parts(self._operation.entry)]
        try:
            self._stage.at(self.away, "deleting the state of links that are done", stranded.forget, names)
        except IsthmusError as error:
            self._note("restore", f"{error.message}. It does no harm there")

    @staticmethod
    def _parts(entry: Entry) -> list[str]:
        """What an operation's own links are called, behind the name of the link that they are a part of."""
        return [f"{STRANDED}-{entry.id[:12]}{why}" for why in ("", OWN)]

    def _go_on_behind(self, link: Link, back: Link) -> None:
        """The link goes on behind what came home, which it must not take for new; what home's own clients wrote in between is copied before."""
        self._stage.at(self.home, f"holding link {back.name}", hold, back, "its work is done")
        now = self._standing(link)
        home = self._stage.site(self.home).cluster_id
        ranges: Ranges = {}
        positions: dict[Partition, Progress] = {}
        came: dict[Partition, list[Range]] = {}
        brought = self._stage.at(self.home, "reading what came home", seeded_by, back)
        new = [(e.there, e.partition) for e in brought if (e.there, e.partition) not in now.progress]
        begins = {key: first for key, (first, _) in self._stage.at(self.home, "reading logs", log_ranges, new).items()}
        if silent := [key for key in new if key not in begins]:
            topic, partition = silent[0]
            raise DataError(
                f"{self.home} does not tell where {topic}[{partition}] begins; are all its brokers back? Then give the command again"
            )
        for each in brought:
            key = (each.there, each.partition)
            # A partition that is new at home, or was made by the way home, the link has not met yet.
            first = now.progress[key].offset if key in now.progress else begins[key]
            if not link.topics.matches(each.there):
                continue
            came[key] = [(int(a), int(b)) for a, b in spans_of(each.runs, 1)]
            if each.end <= first:
                continue
            ranges[key] = (first, each.end)
            place = (now.targets.get(key, each.here), each.partition)
            positions[place] = Progress(each.end, each.there, home, each.there_id, each.here_id)
        own = {key: ranges[key] for key, number in self._counted(link, ranges).items() if number}
        if own:
            self._note(
                "restore",
                f"link {link.name}: clients of {self.home} have written to {len(own)} partitions since it returned",
            )
        part = self._copy_apart(link, own, why=OWN) if own else None
        self._stage.at(self.away, "remembering what came home", stranded.remember, link, came)
        self._adopt(link, own, positions, part)
        self._stage.at(self.away, f"releasing link {link.name}", release, link)

    def verify(self) -> Found:
        links = (*self.between.forward, *self.back)
        return verify_links(self._config, links, lambda words: self._note("verify", words))


def failback(
    config: Config,
    home: str,
    tell: Tell,
    *,
    away: str | None = None,
    policy: Policy = "append",
    fence: How | None = None,
    verify: bool = True,
    seconds: float = 24 * 3600.0,
    dry_run: bool = False,
    abandon: bool = False,
) -> dict[str, Any]:
    """Bring work home, or go on with it; the report. With ``dry_run``, what each step would do."""
    config.site(home)
    with Stage(config) as stage:
        away, took_over = _away(stage, home, away)
        between = links_between(config, home, away)
        if not between.forward:
            raise UsageError(f"the configuration has no link from {home} to {away}: work never moved along one")
        if took_over is not None and took_over.over:
            return _at_home(took_over, home, tell)
        entry = Entry(
            KIND, home, away, "", {"policy": policy, "verify": verify, "starts": took_over.since if took_over else {}}
        )
        back = between.backward
        if not back:
            if took_over is None:
                raise UsageError(
                    f"{away} knows of no failover of {home}, and the configuration has no link from {away} to {home}"
                )
            _refuse_round(stage, home, away, between)
            back = tuple(way_home(link) for link in between.forward)
    whole = config.model_copy(update={"links": {**config.links, **{link.name: link for link in back}}})
    with Stage(whole) as stage:
        operation = Operation(stage, Journal(stage.site(away), entry), tell)
        if not dry_run:
            operation.open()
            if abandon:
                return operation.abandon()
        options = operation.entry.options
        steps = Failback(
            operation,
            home,
            away,
            between,
            back,
            policy=options["policy"],
            fence=fence,
            seconds=seconds,
            verify=options["verify"],
        ).steps()
        if dry_run:
            return {**report(entry), "dry_run": True, "steps": preview(steps)}
        operation.carry_out(steps)
        result = operation.close()
        refuse_late(operation.entry, "switch-")
        return {
            **result,
            **_outcome(operation.entry),
            "clients": access.clients(config, home, operation.entry.found("switch-groups").get("links", {})),
        }


def _refuse_round(stage: Stage, home: str, away: str, between: Between) -> None:
    """In a ring, what was written at the serving site comes home through the others: a link turned round would bring it a second time."""
    for link in between.forward:
        try:
            now: Standing = stage.at(away, f"reading the state of link {link.name}", standing, link)
        except UnknownLink:
            continue
        if now.targets and (way := comes_round(stage.config, away, home, set(now.targets.values()))):
            names = ", ".join(each.name for each in way)
            raise UsageError(
                f"what was written at {away} comes home to {home} by links {names}: bringing it there once more would double it. Let link {link.name} go on "
                f"(`isthmus resume {link.name} --held`), wait until these links have no lag (`isthmus status`), and move the clients to {home}"
            )


def _at_home(was: Service, home: str, tell: Tell) -> dict[str, Any]:
    """Work is home already: along links one way only, bringing it home once more would bring copies."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(was.over))
    words = f"work came home to {home} at {when} UTC, and was not moved since. Nothing was changed"
    if was.home is None:
        raise UsageError(words)
    tell(Telling("", "note", words))
    return {**report(was.home), "already": True, **_outcome(was.home)}


def _outcome(entry: Entry) -> dict[str, Any]:
    return {"stranded_records": entry.found("stranded").get("records", 0)}


def _away(stage: Stage, home: str, given: str | None) -> tuple[str, Service | None]:
    """The site that serves instead, and how that came about: as it is remembered there."""
    config = stage.config
    candidates = [given] if given else [name for name in config.sites if name != home]
    silent = []
    newest: Service | None = None
    for name in candidates:
        config.site(name)
        if not stage.answers(name):
            silent.append(name)
            continue
        found = service(stage.at(name, "reading the journal", entries), home, name)
        if found is not None and (newest is None or newest.newest.began < found.newest.began):
            newest = found
    if newest is not None:
        return newest.newest.to, newest
    if given and given not in silent:
        return given, None
    if silent:
        raise ConnectionFailed(
            f"site {', '.join(silent)} does not answer; whether it serves instead of {home} is not known", silent[0]
        )
    raise UsageError(f"no site knows of a failover of {home}; say from where with --from SITE")
