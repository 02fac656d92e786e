"""Re-seed: a site that was lost with its data is rebuilt from the survivor, so that both look as before the outage.

Invariants:
- normal links rest from before the first record is seeded until after the cut: nothing is copied past the re-seeding link, and nothing that is
  seeded flows back;
- the cut is made when the re-seeding link can write no more. Its position at the survivor becomes the position of the link survivor -> site; the
  end of the seeded log becomes the position of the link site -> survivor. Whatever was written at the survivor meanwhile is before
  the one or after the other, never both, never neither;
- both links' maps are written anew from the re-seeding link's map, in the transactions that set their positions;
- the site's next incarnation is written before anything is seeded: from then on the old cluster, should it come back, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isthmus.config import Config, Link
from isthmus.config.topics import Topics
from isthmus.config.turned import BACK, RESEED, STRANDED
from isthmus.engine import identity, state
from isthmus.engine.hold import hold, release
from isthmus.errors import DataError, IsthmusError, UnknownLink
from isthmus.kafka.admin import delete_topics
from isthmus.kafka.cluster import STATE_PREFIX, Cluster
from isthmus.kafka.offsets import log_ranges
from isthmus.recovery import access, stranded
from isthmus.recovery.catching_up import catch_up
from isthmus.recovery.elsewhere import own_births, set_incoming, set_outgoing
from isthmus.recovery.journal import Entry, Found, Journal
from isthmus.recovery.onward import Onward, Outcome, comes_round, way_around
from isthmus.recovery.operation import Operation, Step, Tell, Telling, preview, report
from isthmus.recovery.roles import Role, set_roles
from isthmus.recovery.seeded import Seeded, continue_from, seeded_by
from isthmus.recovery.seeding import reseeding, way_home
from isthmus.recovery.stage import Between, Stage, links_between
from isthmus.recovery.standing import Standing, standing
from isthmus.recovery.verifying import verify_links
from isthmus.rules import Identities

KIND = "reseed"
# The second round copies what was written during the first one, and so on: what is left to the cut is seconds of traffic.
ROUNDS = 2
# What becomes of a link with a third site, as the cut tells it: it is set; or it is set when the others go on.
SET, LATER = " set", "set when the other links go on"


class Reseed:
    """The steps that rebuild ``lost`` from ``survivor``."""

    def __init__(
        self, operation: Operation, lost: str, survivor: str, *, wipe: bool, seconds: float, verify: bool
    ) -> None:
        self._operation, self._stage, self._config = operation, operation.stage, operation.stage.config
        self.lost, self.survivor = lost, survivor
        self._wipe, self._seconds, self._verify = wipe, seconds, verify
        self.between: Between = links_between(self._config, lost, survivor)

    def steps(self) -> list[Step]:
        lost, survivor = self.lost, self.survivor
        steps = [
            Step(
                "check", f"look whether {lost} stands empty and {survivor} can rebuild it", self.check, self.plan_check
            ),
            Step("hold", f"let the links between {lost} and {survivor} rest", self.hold, self.plan_hold),
            Step("empty", f"remove what is left at {lost}", self.empty, self.plan_empty),
            Step("identity", f"{lost} is another cluster from now on", self.identity),
            Step("resources", f"topics, settings, ACLs and schemas at {lost}", self.resources, self.plan_resources),
            Step("copy", f"copy everything from {survivor}, with births turned round", self.copy, self.plan_copy),
            Step("cut", "set both links to go on exactly behind what was seeded", self.cut),
            Step("groups", f"put consumer groups where they stand, at {lost}", self.groups),
            Step("release", "let the links go on", self.release),
            Step("onward", f"set links from {lost} to third sites, and let them go on", self.onward),
        ]
        if self._verify:
            steps.append(Step("verify", "compare both sites, both ways", self.verify))
        return steps

    # -- what there is ------------------------------------------------------------------------------------

    def _made(self, link: Link) -> set[str]:
        """The topics at the survivor that a link from the lost site has written."""
        try:
            now: Standing = self._stage.at(self.survivor, f"reading the state of link {link.name}", standing, link)
        except UnknownLink:  # it has never run, and has written nothing
            return set()
        return set(now.targets.values())

    def _identities(self) -> Identities:
        known = self._stage.at(self.survivor, "reading which clusters sites are", identity.incarnations)
        now = [self._stage.site(self.survivor).cluster_id], [self._stage.site(self.lost).cluster_id]
        return Identities(
            tuple(known.get(self.survivor, now[0])),
            tuple(dict.fromkeys([*known.get(self.lost, []), *now[1]])),
        )

    def seeding(self) -> list[Link]:
        """The links that rebuild: along each link to the lost site, and back along those from it whose topics are not among these."""
        ids = self._identities()
        found = [reseeding(link, self.lost, ids) for link in self.between.backward]
        for link in self.between.forward:
            made = self._made(link)
            rest = {name for name in made if not any(back.topics.matches(name) for back in self.between.backward)}
            if not rest:
                continue
            back = reseeding(link, self.lost, ids)
            if rest != made:
                back = back.model_copy(update={"topics": Topics(include=sorted(rest))})
            found.append(back)
        return found

    def _with(self, links: Sequence[Link]) -> Config:
        """The configuration with these links in place of those that usually lead to the lost site, which they write to instead of."""
        others = {name: link for name, link in self._config.links.items() if link.target != self.lost}
        return self._config.model_copy(update={"links": {**others, **{link.name: link for link in links}}})

    def _leftovers(self) -> dict[str, int]:
        """Topics at the lost site that would be seeded and are there already, with how many offsets each holds; our own included."""

        async def look(cluster: Cluster, wanted: set[str]) -> dict[str, int]:
            metadata = await cluster.metadata(None)
            names = [name for name in metadata.topics if name in wanted]
            keys = [(name, p) for name in names for p in metadata.topics[name].partitions]
            sizes = dict.fromkeys(names, 0)
            for (name, _), (start, end) in (await log_ranges(cluster, keys, committed_only=False)).items():
                sizes[name] += end - start
            return sizes

        wanted = self._stage.at(self.survivor, "listing topics", _targets, self.seeding())
        # State of links that the configuration does not know stays: they are somebody else's.
        for link in self._config.links.values():
            if self.lost in (link.source, link.target):
                for suffix in ("", BACK, RESEED, STRANDED):
                    wanted |= set(state.topics_of(link.name + suffix))
        found: dict[str, int] = self._stage.at(self.lost, "listing topics", look, wanted)
        return found

    # -- the steps ----------------------------------------------------------------------------------------

    def check(self) -> Found:
        self._stage.site(self.survivor)
        self._stage.site(self.lost)
        ids = self._identities()
        leftovers = self._leftovers()
        self._refuse_records(leftovers)
        return {
            "cluster": ids.target[-1],
            "incarnation": len(ids.target),
            "leftovers": sorted(leftovers),
            "links": [link.name for link in (*self.between.forward, *self.between.backward)],
        }

    def _refuse_records(self, leftovers: Mapping[str, int]) -> None:
        full = {name: size for name, size in leftovers.items() if size and not name.startswith(STATE_PREFIX)}
        if full and not self._wipe:
            words = ", ".join(f"{name} ({size})" for name, size in list(full.items())[:10])
            raise DataError(
                f"{self.lost} is not empty: {words}. If it has all its data, `isthmus failback {self.lost}` brings home what is missing. To rebuild "
                "it, records there must go, since the order of old and seeded ones could not be kept: give --wipe to delete these topics"
            )

    def plan_check(self) -> list[str]:
        lines = self._stage.told(self.survivor, self.lost)
        if self._both():
            ids = self._identities()
            lines.append(f"{self.lost} becomes incarnation {len(ids.target)}: cluster {ids.target[-1]}")
        return lines

    def hold(self) -> Found:
        reason = f"{self.lost} is being rebuilt from {self.survivor}"
        for link in self.between.forward:
            self._stage.at(self.survivor, f"holding link {link.name}", hold, link, reason)
        for link in self.between.backward:
            self._stage.at(self.lost, f"holding link {link.name}", hold, link, reason)
        roles: dict[str, Role] = {self.lost: "seeding", self.survivor: "active"}
        set_roles(self._stage, (self.survivor, self.lost), roles, self._operation.entry.id)
        for link in self._links_elsewhere():
            # Towards the rebuilt site it would begin anew, and away from it meet another cluster.
            if link.target == self.lost or self._stage.answers(link.target):
                self._stage.at(link.target, f"holding link {link.name}", hold, link, reason)
        return {
            "held": [link.name for link in (*self.between.forward, *self.between.backward, *self._links_elsewhere())]
        }

    def plan_hold(self) -> list[str]:
        return [f"hold link {link.name}" for link in (*self.between.forward, *self.between.backward)]

    def empty(self) -> Found:
        """What a half-dead site has kept: data only if the operator said so, state of links always (it is of another cluster)."""
        gone = sorted(self._operation.entry.found("check")["leftovers"])
        if gone:
            self._stage.at(self.lost, "deleting topics", delete_topics, gone)
            # State went with them: the links to the site rest again, under a new roof.
            self.hold()
        return {"deleted": gone}

    def plan_empty(self) -> list[str]:
        if not (self._stage.answers(self.lost) and self._stage.answers(self.survivor)):
            return []
        found = self._leftovers()
        self._refuse_records(found)
        return [f"delete {name} ({size} offsets)" for name, size in found.items()] or ["nothing is there"]

    def identity(self) -> Found:
        """Every site that answers is told; one that does not refuses the new cluster until somebody tells it (`isthmus sites replace`)."""
        known = self._stage.at(self.survivor, "reading which clusters sites are", identity.incarnations)
        now = self._stage.site(self.lost).cluster_id
        ids: list[str] = []
        for site in (self.survivor, self.lost, *self._others()):
            if site in (self.survivor, self.lost) or self._stage.answers(site):
                ids = self._stage.at(site, "writing which cluster the site is", identity.replace, self.lost, now, known)
        return {"clusters": ids, "incarnation": len(ids)}

    def _links_elsewhere(self) -> list[Link]:
        pair = {self.lost, self.survivor}
        return [
            link
            for link in self._config.links.values()
            if self.lost in (link.source, link.target) and {link.source, link.target} != pair
        ]

    def _others(self) -> list[str]:
        return [name for name in self._config.sites if name not in (self.lost, self.survivor)]

    def resources(self) -> Found:
        from isthmus.control.resources import apply_link

        found: Found = {}
        links = self.seeding()
        config = self._with(links)
        for link in links:
            said, outcomes = apply_link(config, link, ["topics", "configs", "acls", "schemas"])
            failed = [f"{o.change.name}: {o.error}" for o in outcomes if not o.done]
            blocked = [f"{c.name}: {c.why}" for c in said if c.action == "blocked"]
            for words in (*failed, *blocked):
                self._operation.note("resources", words)
            found[link.name] = {"done": sum(o.done for o in outcomes), "failed": failed, "blocked": blocked}
        return found

    def plan_resources(self) -> list[str]:
        return (
            [f"along {link.name}: {', '.join(link.topics.include)}" for link in self.seeding()] if self._both() else []
        )

    def _both(self) -> bool:
        return self._stage.answers(self.lost) and self._stage.answers(self.survivor)

    def copy(self) -> Found:
        # Groups are put where they stand when the links are set: until then what the links know is about the cluster that was lost.
        links = [_without_groups(link) for link in self.seeding()]
        self._bring_together()
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(
                catch_up(self._with(links), links, lambda words: self._operation.note("copy", words), self._seconds)
            )
        return {"rounds": rounds}

    def _bring_together(self) -> None:
        """What others have of the lost site's births, and send on, comes to the survivor first: afterwards nobody brings it home."""
        ways = [way_around(self._config, site, self.survivor, self.lost) for site in self._others()]
        links = {link.name: link for way in sorted(ways, key=len, reverse=True) for link in way}
        for link in links.values():
            if link.loop is None or link.loop.drop != "returning":
                continue
            try:
                asked = self._stage.asked_of(link, link.target)
                if asked.held or asked.paused:
                    raise DataError(f"link {link.name} is {'held' if asked.held else 'paused'}")
                catch_up(self._config, [link], lambda words: self._operation.note("copy", words), self._seconds)
            except (IsthmusError, OSError) as error:
                words = f"{error}: records of {self.lost} that {link.source} has and {self.survivor} has not do not come back to {self.lost}"
                self._operation.note("copy", words)

    def plan_copy(self) -> list[str]:
        if not self._both():
            return []
        lines = []
        for link in self.seeding():
            lines.append(f"link {link.name} from {link.source} to {link.target}: {', '.join(link.topics.include)}")
        return lines

    def cut(self) -> Found:
        positions: dict[str, dict[str, int]] = {}
        everything: list[Seeded] = []
        for link in self.seeding():
            self._stage.at(self.lost, f"holding link {link.name}", hold, link, "its work is done")
            seeded = self._seeded(link)
            everything += seeded
            for way in self.between.forward:
                mine = [
                    each
                    for each in seeded
                    if way.destination_topic(each.there) == each.here and way.topics.matches(each.there)
                ]
                self._stage.at(
                    self.survivor,
                    f"setting link {way.name}",
                    continue_from,
                    way,
                    mine,
                    self._stage.site(self.lost),
                    True,
                )
            for way in self.between.backward or [
                way_home(link) for link in self.between.forward if not self._round(link)
            ]:
                mine = [
                    each
                    for each in seeded
                    if way.topics.matches(each.here) and way.destination_topic(each.here) == each.there
                ]
                self._stage.at(
                    self.lost,
                    f"setting link {way.name}",
                    continue_from,
                    way,
                    mine,
                    self._stage.site(self.survivor),
                    False,
                )
            for each in seeded:
                positions.setdefault(each.here, {})[str(each.partition)] = each.position
        elsewhere = {link.name: self._cut_elsewhere(link, everything) for link in self._links_elsewhere()}
        return {"positions": positions, "partitions": sum(map(len, positions.values())), "elsewhere": elsewhere}

    def _seeded(self, link: Link) -> list[Seeded]:
        try:
            found: list[Seeded] = self._stage.at(self.lost, "reading what was seeded", seeded_by, link)
        except UnknownLink:  # nobody ran it, because there is no topic that it could copy
            return []
        return found

    def _cut_elsewhere(self, link: Link, seeded: list[Seeded]) -> str:
        """Set a link between the rebuilt site and a third one, where that can be known; what became of it."""
        lost, survivor = self._stage.site(self.lost), self._stage.site(self.survivor)
        third = link.source if link.target == self.lost else link.target
        by_hand = self._by_hand(link)
        if not self._stage.answers(third):
            words = f"{third} does not answer: when it does, `isthmus sites replace {self.lost}`, {by_hand}"
        elif link.target == self.lost:
            for known in self._config.links.values():
                if (known.source, known.target) == (third, self.survivor) and own_births(link) and own_births(known):
                    count = self._stage.at(
                        self.lost,
                        f"setting link {link.name}",
                        set_incoming,
                        link,
                        survivor,
                        known,
                        self._stage.site(third),
                        seeded,
                    )
                    return f"{count} partitions set"
            if link.loop is not None:
                return self._told(link, self._onward("cut").incoming(link, seeded))
            words = f"what {third} has sent to {self.survivor} does not tell what {self.lost} has of it: {by_hand}"
        else:
            if own_births(link) and self.between.forward and all(map(own_births, self.between.forward)):
                count = 0
                for forward in self.between.forward:
                    count += self._stage.at(
                        third, f"setting link {link.name}", set_outgoing, link, survivor, forward, lost, seeded
                    )
                return f"{count} partitions set"
            if link.loop is not None:
                return LATER
            words = f"which records of {self.lost} {third} has is not known: {by_hand}"
        self._operation.note("cut", f"link {link.name} stays held: {words}")
        return words

    def _onward(self, step: str) -> Onward:
        name, note = self._operation.entry.id[:12], lambda words: self._operation.note(step, words)
        return Onward(self._stage, self.lost, self.survivor, name, note, self._seconds)

    def _told(self, link: Link, found: Outcome) -> str:
        """What became of a link, in words that ``release`` and ``onward`` read, too."""
        if not found.unknown:
            return f"{found.count} partitions set"
        why = "; ".join(f"{topic}: {words}" for topic, words in found.unknown.items())
        return f"not known where it goes on with {why}. {self._by_hand(link, found.unknown)}"

    def _round(self, link: Link) -> bool:
        """Whether what is written at the survivor, to the topics of a link from the lost site, comes home through third sites."""
        made = self._made(link)
        return bool(made and comes_round(self._config, self.survivor, self.lost, made))

    def _by_hand(self, link: Link, topics: Iterable[str] = ()) -> str:
        """The commands that let a link go on whose position nobody can know; with the names of its topics, where its source tells them."""
        from isthmus.control.topics import discover

        names = " ".join(sorted(topics)) or "TOPIC..."
        if not topics and self._stage.answers(link.source):
            found = self._stage.at(link.source, "listing topics", discover, link)
            names = " ".join(sorted(found)) or names
        return (
            f"`isthmus reset {link.name} {names} --to latest` (what {link.source} holds by then is not copied; with --to earliest all of it comes "
            f"once more), then `isthmus resume {link.name} --held`"
        )

    def groups(self) -> Found:
        links = self.seeding()
        config = self._with(links)
        return {"links": {link.name: access.move_groups(config, link) for link in links}}

    def release(self) -> Found:
        released = []
        if self.between.backward:
            # With links one way only, what is written at the survivor would have no way home, and would flow round once it had.
            for link in self.between.forward:
                self._stage.at(self.survivor, f"releasing link {link.name}", release, link)
            for link in self.between.backward:
                self._stage.at(self.lost, f"releasing link {link.name}", release, link)
            released = [link.name for link in (*self.between.forward, *self.between.backward)]
        else:
            for link in filter(self._round, self.between.forward):
                self._stage.at(self.survivor, f"releasing link {link.name}", release, link)
                released.append(link.name)
        elsewhere: dict[str, str] = self._operation.entry.found("cut")["elsewhere"]
        for link in self._links_elsewhere():
            if elsewhere.get(link.name, "").endswith(SET):
                self._stage.at(link.target, f"releasing link {link.name}", release, link)
                released.append(link.name)
        held = {name: words for name, words in elsewhere.items() if name not in released and words != LATER}
        for name, words in held.items():
            self._operation.note("release", f"link {name} stays held: {words}")
        roles: dict[str, Role] = {self.lost: "standby", self.survivor: "active"}
        set_roles(self._stage, (self.survivor, self.lost), roles, self._operation.entry.id)
        return {"released": released, "held": held}

    def onward(self) -> Found:
        """Last of all, because what a third site has may come to the rebuilt one only now that the links there go on."""
        told: dict[str, str] = self._operation.entry.found("cut")["elsewhere"]
        later = [link for link in self._links_elsewhere() if told.get(link.name) == LATER]
        coming = [
            link
            for link in self._links_elsewhere()
            if link.target == self.lost and told.get(link.name, "").endswith(SET)
        ]
        onward, elsewhere = self._onward("onward"), dict[str, str]()
        seeded = [each for link in self.seeding() for each in self._seeded(link)] if later else []
        for link in later:
            # An attempt before this one may have let it go on.
            reason = f"{self.lost} is being rebuilt from {self.survivor}"
            self._stage.at(link.target, f"holding link {link.name}", hold, link, reason)
            words = self._told(link, onward.outgoing(link, seeded, (*self.between.backward, *coming)))
            elsewhere[link.name] = words
            if words.endswith(SET):
                self._stage.at(link.target, f"releasing link {link.name}", release, link)
            else:
                self._operation.note("onward", f"link {link.name} stays held: {words}")
        for link in (*later, *coming):
            try:
                doing = "deleting the state of links that are done"
                self._stage.at(link.target, doing, stranded.forget, [onward.part_of(link)])
            except IsthmusError as error:
                self._operation.note("onward", f"{error.message}. It does no harm there")
        return {"elsewhere": elsewhere}

    def verify(self) -> Found:
        told = {
            **self._operation.entry.found("cut")["elsewhere"],
            **self._operation.entry.found("onward").get("elsewhere", {}),
        }
        third = [link for link in self._links_elsewhere() if told.get(link.name, "").endswith(SET)]
        return verify_links(
            self._config,
            (*self.between.forward, *self.between.backward, *third),
            lambda words: self._operation.note("verify", words),
        )


def _without_groups(link: Link) -> Link:
    groups = link.sync.groups.model_copy(update={"enabled": False})
    return link.model_copy(update={"sync": link.sync.model_copy(update={"groups": groups})})


async def _targets(survivor: Cluster, links: Sequence[Link]) -> set[str]:
    """What the topics are called at the lost site."""
    from isthmus.control.topics import discover

    return {topic.target for link in links for topic in (await discover(survivor, link)).values() if not topic.problem}


def reseed(
    config: Config,
    lost: str,
    survivor: str,
    tell: Tell,
    *,
    wipe: bool = False,
    verify: bool = True,
    seconds: float = 24 * 3600.0,
    dry_run: bool = False,
    abandon: bool = False,
) -> dict[str, Any]:
    """Rebuild a site, or go on with it; the report. With ``dry_run``, what each step would do."""
    between = links_between(config, lost, survivor)
    if not any(link.origin for link in (*between.forward, *between.backward)):
        words = f"links between {lost} and {survivor} stamp no origin: all records come back as they are at {survivor}"
        tell(Telling("", "note", words))
    with Stage(config) as stage:
        entry = Entry(KIND, lost, survivor, "", {"wipe": wipe, "verify": verify})
        operation = Operation(stage, Journal(stage.site(survivor), entry), tell)
        if not dry_run:
            operation.open()
            if abandon:
                return operation.abandon()
        steps = Reseed(operation, lost, survivor, wipe=wipe, seconds=seconds, verify=verify).steps()
        if dry_run:
            return {**report(entry), "dry_run": True, "steps": preview(steps)}
        operation.carry_out(steps)
        return operation.close()
