"""The emergency, rehearsed on this machine: real brokers that take the names of the operator's sites, and die.

Invariants:
- nothing of the operator's sites is touched: ``drill_config`` leaves nothing in the configuration by which it could be;
- the drill writes and reads itself, so it knows what was lost, doubled and skipped, whatever the operations say;
- everything that was started ends with the drill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import kafka.errors as kerrors

from isthmus.config import Config, Link, load
from isthmus.errors import DataError, IsthmusError, SandboxError
from isthmus.kafka.admin import NewTopic, create_topics, wait_for_topics
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.groups import list_groups
from isthmus.recovery.drill_acts import OPERATION, Acts
from isthmus.recovery.drill_config import Rehearsal, rehearsal
from isthmus.recovery.drill_process import Replicator, until
from isthmus.recovery.drill_report import DrillReport, Readers
from isthmus.recovery.drill_traffic import contents
from isthmus.recovery.failback import failback
from isthmus.recovery.failover import failover
from isthmus.recovery.operation import Tell
from isthmus.recovery.reseed import reseed
from isthmus.recovery.timeline import Kind, Timeline
from isthmus.sandbox import KafkaSite, Sandbox

Scenario = Literal["switch", "return", "rebuild"]
# Work is home again: so long it is shown to be.
HOME_SECONDS = 3.0
CATCH_UP_SECONDS = 300.0
FORGET_SECONDS = 20.0


def drill(
    config: Config,
    tell: Tell,
    *,
    site: str | None = None,
    scenario: Scenario = "return",
    rate: float = 200.0,
    seconds: float = 8.0,
    topics: tuple[str, ...] = (),
) -> DrillReport:
    """Rehearse, and report. What goes wrong in it is in the report; only what keeps it from beginning is raised."""
    plan = rehearsal(config, site, topics)
    parts = plan.parts
    links = [link.name for link in (*parts.forward, *parts.backward)]
    report = DrillReport(
        scenario,
        parts.site,
        parts.survivor,
        False,
        Timeline([parts.site, parts.survivor, *links, OPERATION]),
        Readers(plan.group),
        links,
        {name: sorted(found) for name, found in plan.topics.items() if found},
        rate,
        notes=plan.notes,
    )
    with Sandbox() as box, Play(plan, report, rate, seconds, tell) as play:
        play.set_up(box)
        try:
            play.act(scenario)
        except SandboxError:
            raise
        except (IsthmusError, kerrors.KafkaError) as error:
            report.problems.append(getattr(error, "message", "") or f"{type(error).__name__}: {error}")
    return report


class Play(Acts):
    """One rehearsal."""

    def __init__(self, plan: Rehearsal, report: DrillReport, rate: float, seconds: float, tell: Tell) -> None:
        super().__init__(report, rate, tell)
        self.plan, self.seconds = plan, seconds
        self.old, self.new = plan.parts.site, plan.parts.survivor
        self.forward = [link.name for link in plan.parts.forward]
        self.backward = [link.name for link in plan.parts.backward]
        self.brokers: dict[str, KafkaSite] = {}
        self.config: Config
        self._path: Path | None = None
        self._log: Path | None = None

    def __enter__(self) -> Play:
        return self

    # -- the stage ----------------------------------------------------------------------------------------------

    def set_up(self, box: Sandbox) -> None:
        """Sites, topics, the configuration, and a run of all links."""
        self.say(f"starting local sites that take the names of yours: {', '.join(self.plan.sites)}")
        self._stand([self.old, self.new, *self.forward, *self.backward], "starting", "wait")
        sites = box.start_all(self.plan.sites)
        self.brokers = {site.name: site for site in sites}
        self._path, self._log = box.directory / "isthmus.yaml", box.directory / "run.log"
        self._path.write_text(json.dumps(self.plan.document({site.name: site.site_yaml() for site in sites})))
        self.config = load(self._path)
        for name, topics in self.plan.topics.items():
            if topics and name in self.brokers:
                self._create(name, topics)
        self.stand(self.old, "in service", "good")
        self.stand(self.new, "in service" if self.backward else "standby", "good" if self.backward else "wait")
        self._start_run()
        self._wait_for(list(self.config.links.values()), "running")
        self._stand([*self.forward, *self.backward], "running", "good")

    def end(self) -> None:
        super().end()
        # The sandbox removes what it has made, and the directory only when nothing else is in it.
        for path in (self._path, self._log):
            if path is not None:
                path.unlink(missing_ok=True)

    def _start_run(self) -> None:
        assert self._path is not None
        assert self._log is not None
        self.run = Replicator(self._path, self._log)

    def _wait_for(self, links: Sequence[Link], state: str) -> None:
        """Wait for links; a run that has ended is started once more, as a service manager would do it."""
        assert self.run is not None
        # A link of which no topic takes part has nothing to do.
        links = [link for link in links if any(map(link.topics.matches, self.plan.topics[link.source]))]
        try:
            until(self.config, links, state, self.run)
        except DataError:
            if self.run.alive or state == "running":
                raise
            self.report.notes.append(
                f"isthmus run had ended by itself ({self.run.reason()}); it was started again, as a service manager would do it"
            )
            self._start_run()
            until(self.config, links, state, self.run)

    def _create(self, site: str, topics: dict[str, int]) -> None:
        with Cluster(self.config.sites[site], purpose="isthmus-drill") as cluster:
            cluster.call(cluster.connect)
            made = cluster.call(
                create_topics, cluster, [NewTopic(name, count, 1, {}) for name, count in topics.items()]
            )
            for name, refusal in made.items():
                if refusal is not None:
                    raise SandboxError(f"topic {name} could not be created at the local site {site}: {refusal.words}")
            cluster.call(wait_for_topics, cluster, list(topics))

    # -- who writes and reads what ------------------------------------------------------------------------------

    def _links(self, names: list[str]) -> list[Link]:
        return [self.config.links[name] for name in names]

    def _sources(self, names: list[str], site: str) -> dict[str, int]:
        """The topics of a site that these links copy."""
        links = self._links(names)
        return {t: n for t, n in self.plan.topics[site].items() if any(link.topics.matches(t) for link in links)}

    def _copies(self, names: list[str], site: str) -> dict[str, int]:
        """What they are called at the other end."""
        return {
            link.destination_topic(topic): count
            for link in self._links(names)
            for topic, count in self.plan.topics[site].items()
            if link.topics.matches(topic)
        }

    @property
    def at_home(self) -> dict[str, int]:
        """What applications write and read at the site."""
        return self._sources(self.forward, self.old)

    @property
    def away(self) -> dict[str, int]:
        """What applications write at the survivor: its own topics where links lead both ways, the copies where not."""
        return self._sources(self.backward, self.new) if self.backward else self.copies

    @property
    def copies(self) -> dict[str, int]:
        return self._copies(self.forward, self.old)

    def _held(self, site: str) -> dict[str, int]:
        """All topics of a site that hold records of the drill."""
        if site == self.old:
            return {**self.at_home, **self._copies(self.backward, self.new)}
        return {**self.copies, **self.away}

    # -- the play -----------------------------------------------------------------------------------------------

    def act(self, scenario: Scenario) -> None:
        old, new = self.config.sites[self.old], self.config.sites[self.new]
        words = f"{self.report.rate:g} records/s at {self.old}" + (f" and at {self.new}" if self.backward else "")
        self.say(f"traffic: {words}; group {self.plan.group} reads at {self.old}")
        if self.backward:
            self.write(f"{self.new}-1", new, self.away)
        first = self.write(f"{self.old}-1", old, self.at_home)
        self.read(old, self.at_home).begin()
        time.sleep(self.seconds)
        if not first.acknowledged:
            raise SandboxError(f"the local site {self.old} took no record within {self.seconds:g} s")
        gone: set[str] = set()
        if scenario == "switch":
            self._planned()
        else:
            gone = self._disaster(scenario)
        time.sleep(min(HOME_SECONDS, self.seconds))
        self.quiet()
        self._judge(gone)

    def _planned(self) -> None:
        began = time.time()

        def stop() -> None:
            nonlocal began
            began = time.time()
            # Those at the other site too: what links bring from there keeps the logs here moving, and draining waits until they rest.
            self.say("no authoriser here, so the drill stops its own writers and readers")
            self.quiet()
            self.rest()
            self.stand(self.old, "fenced", "wait")

        self.when["fence"] = stop

        def serve() -> None:
            self._in_service(began)
            if not self.backward:
                self._stand(self.forward, "held", "wait")

        self.then["promote"] = serve
        done = self.operation(
            "planned failover",
            failover,
            self.config,
            self.old,
            self.new,
            "planned",
            self.telling,
            fence="none",
            seconds=CATCH_UP_SECONDS,
        )
        lost = self.declared(done, f"{self.old}-1", self._names(self.new), began, self.config.links)
        if lost:
            self.report.problems.append(f"a planned move lost {len(lost)} records, such as {min(lost)}")
        self._work_goes_on()
        self.stand(self.old, "standby", "wait")
        self._failback()

    def _disaster(self, scenario: Scenario) -> set[str]:
        if self.config.links[self.forward[0]].sync.groups.only_empty:
            self.report.notes.append(
                f"link {self.forward[0]}: sync.groups.only_empty is on, so the position of a group that reads at {self.old} is not known at "
                f"{self.new} when {self.old} dies: it begins anew there"
            )
        self.say(f"kill -9 of every broker of {self.old}, under traffic, with a reader attached")
        died = time.time()
        for broker in self.brokers[self.old].brokers:
            broker.kill()
        self.timeline.mark(self.old, f"{self.old} killed", "bad")
        self.stand(self.old, "dead", "bad")
        self._stand([*self.forward, *self.backward], f"{self.old} is gone", "bad")
        self.then["hold"] = lambda: self._stand(self.forward, "held", "wait")
        self.then["promote"] = lambda: self._in_service(died)
        done = self.operation(
            "emergency failover", failover, self.config, self.old, self.new, "emergency", self.telling
        )
        self.rest(dead=True)
        self.quiet(f"{self.old}-1", dead=True)
        lost = self.declared(done, f"{self.old}-1", self._names(self.new), died, self.config.links)
        beyond = f"{self.report.loss.beyond} of them beyond what was declared" if lost else "as was declared"
        self.say(f"{len(lost)} acknowledged records have not arrived, {beyond}")
        self._work_goes_on()
        brokers = self.brokers[self.old]
        if scenario == "return":
            self.say(f"{self.old} returns with its data")
            self.stand(self.old, "starting", "wait")
            brokers.start()
            lost = set()
            self._forget_the_dead()
        else:
            self.say(f"{self.old} returns empty, as another cluster")
            self.stand(self.old, "starting, empty", "wait")
            brokers.wipe()
        self.timeline.mark(self.old, f"{self.old} back", "good")
        if scenario == "rebuild":
            self.stand(self.old, "being rebuilt", "wait")
            self.operation(
                "re-seed", reseed, self.config, self.old, self.new, self.telling, verify=False, seconds=CATCH_UP_SECONDS
            )
            self.report.gone = len(lost)
        self.stand(self.old, "standby", "wait")
        self._stand(self.backward, "running", "good")
        self._failback()
        return lost

    def _forget_the_dead(self) -> None:
        """A site that returns takes readers that died with it for alive until their session is over (here 6 s, often 45 s). Until then it
        would take nobody else's word for their position."""
        deadline = time.monotonic() + FORGET_SECONDS
        with Cluster(self.config.sites[self.old], purpose="isthmus-drill") as cluster:
            cluster.call(cluster.connect)
            while time.monotonic() < deadline:
                group = cluster.call(list_groups, cluster).get(self.plan.group)
                if group is None or group.state in ("Empty", "Dead"):
                    return
                time.sleep(0.3)

    def _in_service(self, since: float) -> None:
        self.report.rto_seconds = round(self.ready - since, 3)
        self.timeline.mark(self.new, f"{self.new} in service", "good", self.ready)
        self.stand(self.new, "in service", "good")
        self.say(f"{self.new} is in service after {self.report.rto_seconds:.1f} s")

    def _work_goes_on(self) -> None:
        new = self.config.sites[self.new]
        self.write(f"{self.new}-2", new, self.away)
        self.read(new, self.copies).begin()
        self.say(f"work goes on at {self.new}")
        time.sleep(self.seconds)

    def _failback(self) -> None:
        began = time.time()

        def stop() -> None:
            nonlocal began
            began = time.time()
            self.say(f"the drill stops its writers and readers at {self.new}, as its operator would")
            self.quiet()
            self.rest()
            self.stand(self.new, "fenced", "wait")

        self.when["switch-fence"] = stop
        self.then["stranded" if self.backward else "restore"] = lambda: self._stand(self.forward, "running", "good")
        # Before the comparison, which is right under traffic.
        self.then["switch-roles"] = self._home
        done = self.operation(
            "failback",
            failback,
            self.config,
            self.old,
            self.telling,
            away=self.new,
            fence="none",
            seconds=CATCH_UP_SECONDS,
        )
        self.report.stranded = done["stranded_records"]
        self.report.home_rto_seconds = round(self.ready - began, 3)

    def _home(self) -> None:
        """Work is home: writers and readers go on there."""
        old, new = self.config.sites[self.old], self.config.sites[self.new]
        self.timeline.mark(self.old, f"{self.old} in service", "good", self.ready)
        self.stand(self.old, "in service", "good")
        self.stand(self.new, "in service" if self.backward else "standby", "good" if self.backward else "wait")
        self.say(f"work is home at {self.old}")
        self.write(f"{self.old}-2", old, self.at_home)
        if self.backward:
            self.write(f"{self.new}-3", new, self.away)
        self.read(old, self.at_home)

    def _stand(self, lanes: Sequence[str], label: str, kind: Kind) -> None:
        for lane in lanes:
            self.stand(lane, label, kind)

    def _judge(self, gone: set[str]) -> None:
        self.say("counting: each acknowledged record at each site, and what the group has read")
        between = [*self._links(self.forward), *self._links(self.backward)]
        self._wait_for(between, "caught up")
        self.judge_readers(self.config.sites[self.old], self.at_home)
        wanted = self.written.keys() - gone
        for name in (self.old, self.new):
            self.judge_site(
                name,
                self.config.sites[name],
                self._held(name),
                set(wanted),
                repeats=any(link.delivery != "exactly-once" for link in between),
                rules=any(link.rules for link in between),
            )
        self.judge_comparison(self.config)

    def _names(self, site: str) -> set[str]:
        found = contents(self.config.sites[site], self._held(site))
        return {name for names in found.values() for name in names}
