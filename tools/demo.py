"""The demo: two real Kafka clusters, live traffic, a replicator that is killed in the middle, and the proof.

The traffic is written and the result is judged by confluent-kafka, a client that we did not write.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.live import Live
from rich.table import Table

from isthmus.cli.link_table import link_table
from isthmus.config import Config, loads
from isthmus.engine.snapshot import Observer
from isthmus.sandbox import Sandbox

TOPICS = {"orders": 6, "payments": 3}
QUIET = {"log_level": 0}
console = Console(highlight=False)


class Traffic(threading.Thread):
    """Writes numbered records to each partition until stopped, at a steady rate."""

    def __init__(self, bootstrap: str, per_second: int) -> None:
        super().__init__(daemon=True)
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                **QUIET,
            }
        )
        self._rate = per_second
        self._ending = threading.Event()
        self.written = 0

    def run(self) -> None:
        partitions = [(topic, p) for topic, count in TOPICS.items() for p in range(count)]
        started, number = time.monotonic(), 0
        while not self._ending.is_set():
            due = int((time.monotonic() - started) * self._rate)
            while number < due:
                topic, partition = partitions[number % len(partitions)]
                value = f"{topic} {partition} {number} ".encode() + os.urandom(60)
                headers = [("trace", os.urandom(8)), ("empty", None)]
                with contextlib.suppress(BufferError):
                    self._producer.produce(topic, value, f"key-{number % 997}", partition, headers=headers)
                    number += 1
                    continue
                self._producer.poll(0.05)
            self._producer.poll(0.01)
        self._producer.flush()
        self.written = number

    def finish(self) -> int:
        self._ending.set()
        self.join()
        return self.written


class Replicator:
    """``isthmus run`` as a user would start it: a process of its own."""

    def __init__(self, config: Path, log: Path) -> None:
        command = [sys.executable, "-m", "isthmus.cli", "run", "--json", "--config", str(config)]
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def kill(self) -> None:
        """kill -9, as a power failure would: nothing is flushed, nothing is said."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9


def read_all(bootstrap: str, topic: str, count: int) -> dict[int, list[Any]]:
    """Every committed record of a topic, by partition, as a stock consumer sees it."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo-judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(count)])
    found: dict[int, list[Any]] = {p: [] for p in range(count)}
    left = set(found)
    while left:
        for message in consumer.consume(10_000, 10):
            if message.error():
                left.discard(message.partition())
                continue
            found[message.partition()].append(message)
    consumer.close()
    return found


def judge(east: str, west: str) -> list[dict[str, Any]]:
    """Compare both sides record by record: key, value, headers, timestamp, order."""
    rows = []
    for topic, count in TOPICS.items():
        source, target = read_all(east, topic, count), read_all(west, topic, count)
        for p in range(count):
            there = {}
            doubled = 0
            order = []
            for message in target[p]:
                headers = message.headers() or []
                offset = int.from_bytes(dict(headers)["isthmus-offset"], "big")
                doubled += offset in there
                order.append(offset)
                there[offset] = (message.key(), message.value(), headers[:-1], message.timestamp())
            here = {m.offset(): (m.key(), m.value(), m.headers() or [], m.timestamp()) for m in source[p]}
            rows.append(
                {
                    "partition": f"{topic}[{p}]",
                    "records": len(here),
                    "lost": len(here.keys() - there.keys()),
                    "doubled": doubled,
                    "reordered": sum(b <= a for a, b in itertools.pairwise(order)),
                    "changed": sum(here[o] != there[o] for o in here.keys() & there.keys()),
                    "unexpected": len(there.keys() - here.keys()),
                }
            )
    return rows


@contextlib.contextmanager
def showing(config: Config) -> Iterator[Any]:
    """A live table of the link, read from the clusters, so it goes on while the replicator is dead."""
    link = config.links["east-to-west"]
    observer = Observer(link, config.sites["east"], config.sites["west"]).connect()
    live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
    if live is not None:
        live.start()
    try:

        def show(seconds: float, until: Any = lambda state: False) -> Any:
            end = time.monotonic() + seconds
            while True:
                state = observer.look()
                if live is not None:
                    live.update(link_table([state], rows=12))
                if until(state) or time.monotonic() >= end:
                    break
                time.sleep(0.5)
            if live is None:
                console.print(link_table([state], rows=12))
            return state

        yield show
    finally:
        if live is not None:
            live.stop()
        observer.close()


def say(text: str) -> None:
    console.print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", markup=False)


STARTED = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=6_000, help="records a second")
    parser.add_argument("--seconds", type=float, default=12.0, help="length of each act")
    options = parser.parse_args()
    say("starting two Kafka clusters, east and west (the brokers are fetched once)")
    with Sandbox() as box:
        east, west = box.start_all(["east", "west"])
        admin = AdminClient({"bootstrap.servers": east.bootstrap, **QUIET})
        for future in admin.create_topics([NewTopic(t, p, 1) for t, p in TOPICS.items()]).values():
            future.result()
        document = {
            "sites": {"east": east.site_yaml(), "west": west.site_yaml()},
            "links": {"east-to-west": {"from": "east", "to": "west", "topics": ["/.*/"]}},
        }
        path, log = box.directory / "isthmus.yaml", box.directory / "run.log"
        path.write_text(json.dumps(document))
        config = loads(path.read_text())
        say(f"writing {options.rate} records/s to east with confluent-kafka")
        traffic = Traffic(east.bootstrap, options.rate)
        traffic.start()
        say("isthmus run: east -> west, exactly once, on Spark")
        replicator = Replicator(path, log)
        try:
            with showing(config) as show:
                show(60, lambda s: s.state == "running" and s.lag < options.rate)
                show(options.seconds)
                say("kill -9 of the replicator, in the middle of its work")
                replicator.kill()
                show(options.seconds / 2)
                say("isthmus run again: no checkpoint, no clean-up, it goes on from what is committed")
                replicator = Replicator(path, log)
                show(60, lambda s: s.state == "running" and s.lag < options.rate)
                show(options.seconds / 2)
                written = traffic.finish()
                say(f"traffic stopped after {written} records; waiting until all is copied")
                state = show(60, lambda s: s.lag == 0 and s.state == "running")
            code = replicator.stop()
            say(f"replicator stopped (exit code {code}), lag {state.lag}")
            say("comparing every record on both sides, with confluent-kafka")
            rows = judge(east.bootstrap, west.bootstrap)
        finally:
            traffic.finish()
            if replicator.process.poll() is None:
                replicator.kill()
        bad = {
            name: sum(row[name] for row in rows) for name in ("lost", "doubled", "reordered", "changed", "unexpected")
        }
        table = Table(title="east against west")
        for name in rows[0]:
            table.add_column(name, justify="left" if name == "partition" else "right")
        for row in rows:
            table.add_row(*map(str, row.values()))
        console.print(table)
        total = sum(row["records"] for row in rows)
        fine = not any(bad.values()) and total == written
        if not fine:
            console.print(log.read_text()[-3000:], markup=False)
        verdict = "nothing lost, doubled, reordered or changed" if fine else f"NOT the same: {bad}"
        say(f"{total} of {written} records: {verdict}")
    say("clusters stopped, data thrown away")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
