"""One episode of a soak: links between sites, traffic, faults and verbs at random moments; then quiet, and judgement.

Invariant: everything random comes from the episode's own ``random.Random``, so a seed and a number repeat it (but for the moments
at which processes meet).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from ledger import create_topic, read_topic
from replicator import Replicator
from traffic import QUIET, Checker, Table, Violation, Writer

import stock
from isthmus.engine import state
from isthmus.engine.offset_map import build_maps

if TYPE_CHECKING:
    from isthmus.sandbox import KafkaSite

PARTITIONS = 4
# How a run may end that nobody stopped: a JVM that was killed, a site that was away at its start, another run that took over.
ENDS = {1, 4, 7, 130, -9}
QUIET_SECONDS = 240.0
# A run that hangs says where, into its output.
STACKS = "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1, all_threads=True)"
# What an operation answers when it met what was done to it; it is given again.
TRY_AGAIN = {4, 6, 7, -9}


class Episode:
    def __init__(
        self, sites: list[KafkaSite], directory: Path, name: str, rng: random.Random, secret: str | None = None
    ) -> None:
        self._rng, self.name, self._directory, self._secret = rng, name, directory, secret
        self.shape = rng.choice(["one-way", "one-way", "two-way", "two-way", "mesh"])
        self.sites = sites[: 3 if self.shape == "mesh" else 2]
        self.delivery = (
            rng.choice(["exactly-once", "exactly-once", "at-least-once"]) if self.shape == "one-way" else "exactly-once"
        )
        self.headers = self.shape != "one-way" or rng.random() < 0.7
        self.topic, self._table_topic = f"{name}-orders", f"{name}-table"
        self.config = directory / "isthmus.yaml"
        self.links = self._configure()
        self.counts: Counter[str] = Counter()
        self.told: list[str] = []
        self._writers: list[Writer] = []
        self._tables: list[Table] = []
        self._run: Replicator | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.shape}, {self.delivery}, headers {'on' if self.headers else 'off'}{', signed' if self._secret else ''}"

    def _configure(self) -> dict[str, dict[str, Any]]:
        names = [site.name for site in self.sites]
        pairs = [(a, b) for a in names for b in names if a != b]
        common: dict[str, Any] = {
            "topics": [self.topic, self._table_topic],
            "commit_interval": self._rng.choice(["50ms", "200ms", "1s"]),
            "tasks": 2,
        }
        if self.shape == "one-way":
            pairs = pairs[:1]
            common |= {"delivery": self.delivery} | ({} if self.headers else {"headers": "off"})
        else:
            common |= {"loop": "returning" if self.shape == "two-way" else "foreign"}
            common["tasks"] = 1
        links = {f"{self.name}-{a}-{b}": {"from": a, "to": b, **common} for a, b in pairs}
        document: dict[str, Any] = {"sites": {site.name: site.site_yaml() for site in self.sites}, "links": links}
        if self._secret:
            document["state"] = {"secret": self._secret}
        self.config.write_text(json.dumps(document))
        return links

    def tell(self, words: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {words}"
        self.told.append(line)
        print(f"  {line}", flush=True)

    # -- the run ------------------------------------------------------------------------------------------

    def carry_out(self, actions: int) -> None:
        for site in self.sites:
            create_topic(site, self.topic, PARTITIONS)
            self._create_table(site)
        table = Table(self.sites[0], self._table_topic, self._rng).start()
        self._tables.append(table)
        self.checker = Checker(self.sites, self.topic, PARTITIONS, repeats=self.delivery == "at-least-once").start()
        try:
            for site in self.sites[: 1 if self.shape == "one-way" else None]:
                self.write(site)
            self._begin()
            for _ in range(actions):
                time.sleep(self._rng.uniform(0, 3))  # not for a condition: the moment is what is random
                self.act()
                self.checker.raise_if_wrong()
            self.settle()
            self.judge()
        except AssertionError:
            self._tell_stacks()
            raise
        finally:
            for writer in (*self._writers, *self._tables):
                with contextlib.suppress(Violation):
                    writer.stop(0)
            self.checker.stop()
            if self._run is not None:
                self._run.close()

    def _create_table(self, site: KafkaSite) -> None:
        """A topic that the broker compacts all the time."""
        config = {
            "cleanup.policy": "compact",
            "segment.ms": "3000",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "5000",
        }
        admin = AdminClient({**site.client_config(), **QUIET})
        stock.create(admin, NewTopic(self._table_topic, 1, 1, config=config))

    def write(self, site: KafkaSite) -> None:
        transactional = self._rng.random() < 0.4
        name = f"w{len(self._writers)}-{site.name}"
        writer = Writer(site, self.topic, PARTITIONS, name, self._rng, transactional=transactional)
        self._writers.append(self.checker.expect(writer).start())

    def _start(self) -> None:
        first, *others = self.links
        scene = SimpleNamespace(link=first, config=self.config)
        self._run = Replicator(scene, self._directory, *others, patch=STACKS)

    def _begin(self) -> None:
        """Start, and kill parts of it at once or let it come so far that every verb knows the links."""
        self._start()
        if self._rng.random() < 0.3:
            time.sleep(self._rng.uniform(0, 8))
            self.kill_a_part()
        deadline = time.monotonic() + QUIET_SECONDS
        while True:
            self.keep_running()
            code, out = self.command("status")
            with contextlib.suppress(ValueError):
                if code == 0 and all(link["state"] == "running" for link in json.loads(out)):
                    return
            if time.monotonic() > deadline:
                raise Violation(f"the links do not begin: status ended with {code}:\n{out[-3000:]}")
            time.sleep(0.5)

    def _tell_stacks(self) -> None:
        if self._run is not None and not self._run.ended:
            os.kill(self._run.pid, signal.SIGUSR1)
            time.sleep(2)  # it answers at once, or never

    def keep_running(self) -> Replicator:
        """The run, started again as a service manager would."""
        if self._run is None:
            self._start()
        assert self._run is not None
        if self._run.ended:
            code = self._run.wait()
            if code not in ENDS:
                raise Violation(f"isthmus run ended with {code}:\n{self._run.output[-3000:]}")
            self._run.close()
            self._start()
        return self._run

    def command(self, *arguments: str, timeout: float = 300.0, kill_after: float | None = None) -> tuple[int, str]:
        """A verb as a process of its own, that may be killed on its way."""
        words = [sys.executable, "-m", "isthmus.cli", *arguments, "--json", "--config", str(self.config)]
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=kill_after or timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            if kill_after is None:
                raise Violation(
                    f"isthmus {' '.join(arguments)} did not end in {timeout:.0f} s:\n{out[-2000:]}"
                ) from None
            self.counts["kill"] += 1
        except BaseException:  # Ctrl-C: nothing is left behind
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return process.returncode, out

    # -- what is done -------------------------------------------------------------------------------------

    def act(self) -> None:
        choices: dict[Callable[[], None], int] = {
            self.kill_a_part: 8,
            self.kill_a_broker: 4,
            self.freeze_a_worker: 3,
            self.freeze_a_broker: 2,
            self.take_over: 1,
            self.pause_and_resume: 1,
            self.limit: 1,
            self.reset_in_place: 1,
            self.forget: 2,
            self.look: 2,
        }
        if self._secret:
            choices[self.forge] = 2
        if self.shape != "mesh" and self.delivery == "exactly-once" and self.headers:
            choices |= {self.planned: 1, self.emergency: 1}
        (action,) = self._rng.choices(list(choices), list(choices.values()))
        self.keep_running()
        action()

    def kill_a_part(self) -> None:
        run, what = self.keep_running(), self._rng.choice(["worker", "worker", "worker", "daemon", "jvm", "driver"])
        if what == "driver":
            run.kill_driver()
        else:
            with contextlib.suppress(AssertionError, ProcessLookupError):  # it has no such part at this moment
                found = {"worker": run.workers, "daemon": run.daemons, "jvm": lambda: [run.jvm()]}[what]()
                if not found:
                    return
                os.kill(self._rng.choice(found), signal.SIGKILL)
        self.counts["kill"] += 1
        self.tell(f"killed {what}")

    def forge(self) -> None:
        """Somebody else writes state: nothing of it may be believed, nor stop anything."""
        site = self._rng.choice(self.sites)
        links = [state.control_topic(name) for name, link in self.links.items() if link["to"] == site.name]
        topic = self._rng.choice([state.SITES_TOPIC, *links])
        if topic not in AdminClient({**site.client_config(), **QUIET}).list_topics(timeout=30).topics:
            return  # who may not create it cannot begin it
        key = self._rng.choice(
            [
                f"site/{site.name}",
                "link/wishes",
                "link/claim",
                f"journal/failover/{site.name}",
                "fence/x",
                "table/signed",
            ]
        )
        value = self._rng.choice([None, b"not json", b"{}", b'["another"]', b'{"held":"forged","paused":true}'])
        producer = Producer({**site.client_config(), **QUIET})
        producer.produce(topic, value, key, 0)
        producer.flush(30)
        self.counts["forge"] += 1
        self.tell(f"forged {key} in {topic} at {site.name}")

    def kill_a_broker(self) -> None:
        site = self._rng.choice(self.sites)
        self.tell(f"kill the broker of {site.name}")
        site.brokers[0].kill()
        self.counts["kill"] += 1
        time.sleep(self._rng.choice([0, 0, 2, 8]))
        site.brokers[0].start()

    def freeze_a_worker(self) -> None:
        with contextlib.suppress(AssertionError, ProcessLookupError):
            found = self.keep_running().workers()
            if found:
                pid = self._rng.choice(found)
                self._freeze(lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT), "a worker")

    def freeze_a_broker(self) -> None:
        site = self._rng.choice(self.sites)
        self._freeze(site.brokers[0].pause, site.brokers[0].resume, f"the broker of {site.name}")

    def _freeze(self, stop: Callable[[], None], go_on: Callable[[], None], what: str) -> None:
        seconds = self._rng.choice([0.5, 3, 10])
        self.tell(f"freeze {what} for {seconds} s")
        self.counts["freeze"] += 1
        stop()
        try:
            time.sleep(seconds)
        finally:
            go_on()

    def take_over(self) -> None:
        """A second run of the same links; the first one must leave."""
        self.tell("a second run takes over")
        old = self.keep_running()
        self._start()
        try:
            code = old.wait(180)
            if code not in ENDS:
                raise Violation(f"the run that was taken over ended with {code}:\n{old.output[-3000:]}")
        finally:
            old.close()
        self.counts["takeover"] += 1

    def _verb(self, *arguments: str) -> None:
        code, out = self.command(*arguments)
        self.tell(f"isthmus {' '.join(arguments)}: {code}")
        if code != 0:
            raise Violation(f"isthmus {' '.join(arguments)} ended with {code}:\n{out[-2000:]}")

    def pause_and_resume(self) -> None:
        link = self._rng.choice(list(self.links))
        self._verb("pause", link)
        time.sleep(self._rng.uniform(0, 4))
        self._verb("resume", link)

    def limit(self) -> None:
        link = self._rng.choice(list(self.links))
        self._verb("limit", link, "20kB/s")
        time.sleep(self._rng.uniform(0, 4))
        self._verb("limit", link, "off")

    def reset_in_place(self) -> None:
        link = self._rng.choice(list(self.links))
        code, out = self.command("reset", link, self.topic, "--to", "current")
        self.tell(f"isthmus reset {link} {self.topic} --to current: {code}")
        if code != 0 and "no position to keep" not in out:
            raise Violation(f"reset ended with {code}:\n{out[-2000:]}")

    def forget(self) -> None:
        """The destination forgets what the link's group has committed, as brokers do after offsets.retention.minutes."""
        name, link = self._rng.choice(list(self.links.items()))
        admin = AdminClient({**self._site(link["to"]).client_config(), **QUIET})
        (future,) = admin.delete_consumer_groups([state.group(name)], request_timeout=30).values()
        try:
            future.result(30)
        except KafkaException as error:
            self.tell(f"{link['to']} forgets nothing of {name}: {error.args[0].str()}")
            return
        self.counts["forget"] += 1
        self.tell(f"{link['to']} has forgotten the offsets of {name}")

    def look(self) -> None:
        """Verbs that only look never fail because of what goes on."""
        link = self._rng.choice(list(self.links))
        verb = self._rng.choice([("status",), ("plan",), ("verify", link)])
        code, out = self.command(*verb)
        self.tell(f"isthmus {' '.join(verb)}: {code}")
        if code not in {0, 20} or "Traceback" in out:
            raise Violation(f"isthmus {' '.join(verb)} ended with {code}:\n{out[-3000:]}")

    # -- operations ---------------------------------------------------------------------------------------

    def _operate(self, *arguments: str) -> None:
        """An operation, killed on its way now and then, and given again until it is done."""
        deadline = time.monotonic() + 300
        while True:
            self.keep_running()
            kill_after = self._rng.uniform(1, 6) if self._rng.random() < 0.5 else None
            code, out = self.command(*arguments, kill_after=kill_after)
            self.tell(f"isthmus {' '.join(arguments)}: {code}")
            if code == 0:
                return
            if code not in TRY_AGAIN or time.monotonic() > deadline:
                raise Violation(f"isthmus {' '.join(arguments)} ended with {code}:\n{out[-4000:]}")

    def _stop_writers(self, site: KafkaSite, patience: float) -> None:
        for writer in self._writers:
            if writer.site is site:
                writer.stop(patience)
        for table in self._tables:
            table.resting.set()

    def planned(self) -> None:
        old, new = self.sites
        self.counts["planned failover"] += 1
        self._stop_writers(old, 120)
        self._operate("failover", old.name, "--to", new.name, "--planned", "--fence", "none")
        self.write(new)
        time.sleep(self._rng.uniform(0, 3))
        self._stop_writers(new, 120)
        self._operate("failback", old.name, "--fence", "none")
        self._write_again()

    def emergency(self) -> None:
        old, new = self.sites
        self.counts["emergency failover"] += 1
        self.tell(f"{old.name} dies")
        old.brokers[0].kill()
        self.counts["kill"] += 1
        self._stop_writers(old, 0)
        self._operate("failover", old.name, "--to", new.name, "--emergency")
        self.write(new)
        time.sleep(self._rng.uniform(0, 3))
        old.brokers[0].start()
        self._stop_writers(old, 120)
        self._stop_writers(new, 120)
        self._operate("failback", old.name, "--fence", "none")
        self._write_again()

    def _write_again(self) -> None:
        for site in self.sites[: 1 if self.shape == "one-way" else None]:
            self.write(site)
        for table in self._tables:
            table.resting.clear()

    # -- quiet, and judgement -----------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults: everything that was acknowledged arrives everywhere."""
        for writer in (*self._writers, *self._tables):
            writer.stop()
        deadline = time.monotonic() + QUIET_SECONDS
        while missing := self.checker.missing(self._writers) or self._tables_differ():
            run = self.keep_running()
            self.checker.raise_if_wrong()
            if time.monotonic() > deadline:
                _, out = self.command("status")
                raise Violation("\n".join([*missing[:10], out[-3000:], run.output[-2000:]]))
            time.sleep(0.5)
        time.sleep(2)  # for what must not come any more
        self.checker.raise_if_wrong()

    def _tables_differ(self) -> list[str]:
        """Where the last values of a compacted topic are not those of the site that it is written at."""
        found = []
        for table in self._tables:
            home, *others = ((site.name, table.at(site)) for site in self.sites)
            for name, values in others:
                wrong = sorted(key for key in home[1].keys() | values.keys() if home[1].get(key) != values.get(key))
                found += [
                    f"{name}: {table.topic} has {values.get(k)!r} for {k!r}, not {home[1].get(k)!r}" for k in wrong
                ]
        return found

    def judge(self) -> None:
        for name, link in self.links.items():
            code, out = self.command("verify", name)
            if code != 0 and self.delivery == "exactly-once":
                raise Violation(f"verify {name} ended with {code}:\n{out[-3000:]}")
            if self.headers and self.shape != "mesh" and self.delivery == "exactly-once":
                self._check_map(name, link)
        total = {name: sum(map(len, seen.numbers.values())) for name, seen in self.checker.seen.items()}
        self.counts["records"] += sum(total.values())
        self.tell(f"all is where it should be: {total}")

    def _check_map(self, name: str, link: dict[str, Any]) -> None:
        """The link's map says of each copy exactly where it stands, by the offset header that the copy carries."""
        records = read_topic(self._site(link["to"]), state.map_topic(name))
        maps = build_maps([(m.key() or b"", m.value()) for m in records])
        for partition, copies in self.checker.seen[link["to"]].copies.items():
            at = np.array(copies, np.int64)
            answer, exact, _ = maps[self.topic, partition].translate_many(at[:, 0].copy())
            wrong = (answer != at[:, 1]) | ~exact
            if wrong.any():
                raise Violation(
                    f"{name}[{partition}]: the map says {answer[wrong][0]} for {at[wrong][0]} (exact: {exact[wrong][0]})"
                )

    def _site(self, name: str) -> KafkaSite:
        return next(site for site in self.sites if site.name == name)
