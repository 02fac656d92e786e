"""The demo: a data centre dies, and comes back.

Two real Kafka clusters, both written to; one of them is killed under traffic and loses all its data. Work goes on at the other one, the
dead one is rebuilt from it while traffic flows, and work comes home. The traffic is written and the result is judged by confluent-kafka, a client
that we did not write.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from isthmus.config import load
from isthmus.recovery.drill_process import Replicator, until
from isthmus.recovery.failback import failback
from isthmus.recovery.failover import failover
from isthmus.recovery.losses import known_until, seen_of, told
from isthmus.recovery.operation import Telling
from isthmus.recovery.reseed import reseed
from isthmus.recovery.timeline import Timeline, svg
from isthmus.recovery.verifying import verify_links
from isthmus.sandbox import KafkaSite, Sandbox

TOPICS = {"orders": 3, "payments": 2}
PARTITIONS = [(topic, p) for topic, count in TOPICS.items() for p in range(count)]
LINKS = ("east-to-west", "west-to-east")
QUIET = {"log_level": 0}
console = Console(highlight=False)


class Writer(threading.Thread):
    """Writes numbered records to each partition until stopped; ``acknowledged`` is what the site has taken, and when."""

    def __init__(self, name: str, site: KafkaSite, rate: int, line: Timeline) -> None:
        super().__init__(daemon=True, name=name)
        self.acknowledged: dict[bytes, float] = {}
        self.places: dict[bytes, tuple[str, int]] = {}
        self._producer = ck.Producer(
            {
                "bootstrap.servers": site.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 5000,
                "compression.type": "lz4",
                **QUIET,
            }
        )
        self._rate, self._line = rate, line
        self._ending = threading.Event()
        self._bar = line.begin(site.name, f"writer {name}", "traffic")
        self.start()

    def run(self) -> None:
        began, number = time.monotonic(), 0
        while not self._ending.is_set():
            while number < (time.monotonic() - began) * self._rate and not self._ending.is_set():
                topic, partition = PARTITIONS[number % len(PARTITIONS)]
                value = f"{self.name} {number:08d}".encode()
                headers = [("trace", os.urandom(8))]
                with contextlib.suppress(BufferError):
                    self._producer.produce(
                        topic, value, f"key-{number % 997}", partition, headers=headers, on_delivery=self._told
                    )
                    number += 1
                    continue
                self._producer.poll(0.05)
            self._producer.poll(0.01)
        self._producer.flush(6)

    def _told(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self.places[message.value()] = message.topic(), message.partition()
            self.acknowledged[message.value()] = time.time()

    def finish(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            self.join()
            self._line.end(self._bar)


def read_all(site: KafkaSite) -> dict[tuple[str, int], list[bytes]]:
    """The values of every committed record of a site, by partition and in order, as a stock consumer sees them."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": "demo-judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.assign([ck.TopicPartition(topic, p, 0) for topic, p in PARTITIONS])
    found: dict[tuple[str, int], list[bytes]] = {key: [] for key in PARTITIONS}
    left = set(found)
    while left:
        for message in consumer.consume(10_000, 1):
            key = message.topic(), message.partition()
            if message.error():
                left.discard(key)
            else:
                found[key].append(message.value())
    consumer.close()
    return found


def judge(writer: Writer, held: dict[tuple[str, int], list[bytes]], gone: set[bytes]) -> dict[str, int]:
    """What one site holds of one writer's records."""
    stem = writer.name.encode() + b" "
    mine = {key: [value for value in values if value.startswith(stem)] for key, values in held.items()}
    counts = Counter(value for values in mine.values() for value in values)
    return {
        "held": sum(counts.values()),
        "lost": len(writer.acknowledged.keys() - counts.keys() - gone),
        "doubled": sum(count - 1 for count in counts.values()),
        "out of order": sum(b < a for values in mine.values() for a, b in itertools.pairwise(values)),
    }


def say(text: str, style: str = "") -> None:
    console.print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", markup=False, style=style, soft_wrap=True)


STARTED = time.monotonic()


class Demo:
    """The play, act by act."""

    def __init__(self, box: Sandbox, rate: int, seconds: float) -> None:
        self.rate, self.seconds = rate, seconds
        self.line = Timeline(["east", "west", *LINKS, "operation"])
        self.writers: list[Writer] = []
        self.when: dict[tuple[str, str], Callable[[], None]] = {}
        self._steps: list[str] = []
        self.box = box

    # -- the stage ----------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        for lane in ("east", "west", *LINKS):
            self.line.state(lane, "starting", "wait")
        say("starting two Kafka clusters, east and west (the brokers are fetched once)")
        self.east, self.west = self.box.start_all(["east", "west"])
        for site in (self.east, self.west):
            admin = AdminClient({"bootstrap.servers": site.bootstrap, **QUIET})
            for future in admin.create_topics([NewTopic(t, p, 1) for t, p in TOPICS.items()]).values():
                future.result()
            self.line.state(site.name, "in service", "good")
        options = {
            "topics": list(TOPICS),
            "loop": "returning",
            "commit_interval": "200ms",
            "sync": {"groups": {"only_empty": False, "interval": "2s"}},
        }
        document = {
            "sites": {"east": self.east.site_yaml(), "west": self.west.site_yaml()},
            "links": {
                "east-to-west": {"from": "east", "to": "west", **options},
                "west-to-east": {"from": "west", "to": "east", **options},
            },
        }
        path = self.box.directory / "isthmus.yaml"
        path.write_text(json.dumps(document))
        self.config = load(path)
        say("isthmus run: east <-> west, each written to, exactly once, and no record goes round")
        self.run = Replicator(path, self.box.directory / "run.log")
        self.links = [self.config.links[name] for name in LINKS]
        until(self.config, self.links, "running", self.run)
        for lane in LINKS:
            self.line.state(lane, "running", "good")

    def tell(self, telling: Telling) -> None:
        act = self.when.pop((telling.step, telling.state), None)
        if act is not None:
            act()
        self.line.step("operation", telling)
        if telling.state == "done":
            self._steps.append(f"{telling.step} {telling.seconds:.1f} s")

    @contextlib.contextmanager
    def operation(self, name: str) -> Iterator[None]:
        self.line.mark("operation", name)
        self._steps = []
        yield
        say(f"  {', '.join(self._steps)}", "dim")

    def write(self, name: str, site: KafkaSite) -> Writer:
        writer = Writer(name, site, self.rate, self.line)
        self.writers.append(writer)
        return writer

    # -- the acts -----------------------------------------------------------------------------------------------

    def disaster(self) -> None:
        say(f"confluent-kafka writes {self.rate} records/s to east, and as many to west")
        self.write("w1", self.west)
        first = self.write("e1", self.east)
        time.sleep(self.seconds)
        say("kill -9: east is gone, in the middle of its work", "bold red")
        for broker in self.east.brokers:
            broker.kill()
        self.line.mark("east", "east killed", "bad")
        self.line.state("east", "dead", "bad")
        for lane in LINKS:
            self.line.state(lane, "east is gone", "bad")
        say("isthmus failover east --to west --emergency")
        self.when["hold", "done"] = lambda: self.line.state("east-to-west", "held", "wait")
        self.when["promote", "done"] = lambda: self.line.mark("west", "west is in service for both", "good")
        with self.operation("emergency failover"):
            report = failover(self.config, "east", "west", "emergency", self.tell)
        first.finish()
        here = {value for values in read_all(self.west).values() for value in values}
        self.gone = first.acknowledged.keys() - here
        (found,) = (each for step in report["steps"] if step["step"] == "declare" for each in step["found"]["links"])
        self.beyond = 0
        for place in PARTITIONS:
            # Acknowledged before the request was sent that told the partition's end: then it was seen.
            seen = [
                v for v in self.gone if first.places[v] == place and first.acknowledged[v] < known_until(found, place)
            ]
            self.beyond += max(0, len(seen) - seen_of(found, place))
        say(f"  west is in service {report['rto_seconds']:.1f} s after the command")
        for words in told(found, "east", report["began"]):
            say(f"  declared: {words}")
        say(
            f"  really lost: {len(self.gone)} of {len(first.acknowledged)}, {self.beyond} of them beyond what was declared"
        )

    def rebuild(self) -> None:
        say("east's applications go on at west")
        self.write("w2", self.west)
        time.sleep(self.seconds / 2)
        say("east comes back, empty: another cluster under the old name")
        self.line.state("east", "starting, empty", "wait")
        self.east.wipe()
        self.line.mark("east", "east back, empty", "good")
        self.line.state("east", "being rebuilt", "wait")
        say("isthmus reseed east --from west: from what west has, under traffic")
        with self.operation("re-seed"):
            reseed(self.config, "east", "west", self.tell, verify=False)
        self.line.state("east", "standby", "wait")
        for lane in LINKS:
            self.line.state(lane, "running", "good")

    def home(self) -> None:
        say("isthmus failback east: work comes home")

        def stop() -> None:
            say("  its fence: the demo stops writing to west for a moment")
            for writer in self.writers:
                writer.finish()
            self.line.state("west", "fenced", "wait")

        self.when["switch-fence", "begins"] = stop
        with self.operation("failback"):
            failback(self.config, "east", self.tell, fence="none", verify=False)
        for name in ("east", "west"):
            self.line.state(name, "in service", "good")
        self.line.mark("east", "east in service", "good")
        say("both sites are written to again")
        self.write("e2", self.east)
        self.write("w3", self.west)
        time.sleep(self.seconds / 2)
        for writer in self.writers:
            writer.finish()
        until(self.config, self.links, "caught up", self.run)

    def proof(self) -> bool:
        say("isthmus verify, both ways: record by record")
        with self.line.during("operation", "verify"):
            found = verify_links(self.config, self.links, lambda words: say(f"  {words}"))
        say("and once more, by confluent-kafka: each acknowledged record at each site")
        held = {site.name: read_all(site) for site in (self.east, self.west)}
        table = Table(title="every acknowledged record, at each site")
        table.add_column("writer")
        for name in ("acknowledged", "died", "site", "held", "lost", "doubled", "out of order"):
            table.add_column(name, justify="left" if name == "site" else "right")
        fine = self.beyond == 0
        for writer in self.writers:
            for number, (site, values) in enumerate(held.items()):
                gone = self.gone if writer.name == "e1" else set()
                row = judge(writer, values, gone)
                fine &= not (row["lost"] or row["doubled"] or row["out of order"])
                first = [writer.name, str(len(writer.acknowledged)), str(len(gone))] if number == 0 else ["", "", ""]
                table.add_row(*first, site, *map(str, row.values()))
        console.print(table)
        total = sum(len(writer.acknowledged) for writer in self.writers)
        lost = f"{len(self.gone)} died with east ({self.beyond} of them beyond what was declared)"
        verdict = (
            "nothing else lost, nothing doubled, nothing out of order" if fine else "NOT as it should be, see above"
        )
        say(f"{total} records: {lost}; {verdict}", "bold green" if fine else "bold red")
        return fine and all(not each["damage"] for each in found.values())

    def end(self) -> None:
        for writer in self.writers:
            writer.finish()
        self.line.close()
        if hasattr(self, "run"):
            self.run.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second of each writer")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of an act")
    parser.add_argument("--picture", type=Path, default=Path("build/demo-timeline.svg"), help="where the timeline goes")
    options = parser.parse_args()
    with Sandbox() as box:
        demo = Demo(box, options.rate, options.seconds)
        fine = False
        try:
            demo.set_up()
            demo.disaster()
            demo.rebuild()
            demo.home()
            fine = demo.proof()
        finally:
            demo.end()
            if not fine and (box.directory / "run.log").exists():
                console.print((box.directory / "run.log").read_text()[-3000:], markup=False)
            for name in ("isthmus.yaml", "run.log"):
                (box.directory / name).unlink(missing_ok=True)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(svg(demo.line, "A data centre dies, and comes back"))
    say(f"the whole of it as a picture: {options.picture}")
    say("clusters stopped, data thrown away")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
