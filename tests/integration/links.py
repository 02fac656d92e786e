"""What tests of links share: configurations, clients, a link without Spark, a link with Spark, and the judge.

Invariant: what tells right from wrong (``read``, ``compare``) is confluent-kafka, which shares no code with the
product. Only ``copy_until_caught_up`` and ``Replicator``, which drive the product, import it.

Run as a program (``links.py CONFIG LINK SLOTS``) it replicates without Spark until it is killed: the thing to kill
in tests that kill a replicator.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from kafka.protocol.admin import AlterClientQuotasRequest

import stock
from isthmus import cli as isthmus_cli
from isthmus.config import Config, Site, load
from isthmus.engine.copy import Copier
from isthmus.engine.lease import Lease, LeaseResult
from isthmus.engine.plan import Job, Planner
from isthmus.errors import IsthmusError, TakenOver
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import LATEST, list_offsets
from isthmus.kafka.produce import Fenced
from isthmus.sandbox import KafkaSite, Sandbox

# Users of sites with an authoriser, unless a test has its own.
SECRETS = {"isthmus": "isthmus-secret", "writer": "writer-secret"}

QUIET = {"log_level": 0}  # librdkafka writes every lost connection to stderr
OFFSET_HEADER = "isthmus-offset"
# Records with old timestamps are what many tests need, and what retention would delete at once.
FOR_EVER = {"retention.ms": "-1"}

Headers = list[tuple[str, bytes | None]]


# -- clients ---------------------------------------------------------------------------------------------


def admin(site: KafkaSite) -> AdminClient:
    return AdminClient({"bootstrap.servers": site.admin_bootstrap, **QUIET})


def create_topic(site: KafkaSite, topic: str, partitions: int = 1, **config: str) -> str:
    """Create a topic and wait for its leaders; underscores in option names stand for dots."""
    settings = {**FOR_EVER, **{key.replace("_", "."): value for key, value in config.items()}}
    client = admin(site)
    stock.create(client, NewTopic(topic, partitions, 1, config=settings))

    def led() -> bool:
        found = client.list_topics(topic, timeout=10).topics[topic]
        return len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values())

    wait_for(led, f"leaders of {topic}")
    return topic


def delete_topic(site: KafkaSite, topic: str) -> None:
    client = admin(site)
    client.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in client.list_topics(timeout=10).topics, f"{topic} to go")


def grow_topic(site: KafkaSite, topic: str, partitions: int) -> None:
    client = admin(site)
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_for(lambda: partitions_of(site, topic) == partitions, f"{topic} to grow")


def topics_of(site: KafkaSite) -> set[str]:
    return set(admin(site).list_topics(timeout=10).topics)


def partitions_of(site: KafkaSite, topic: str) -> int:
    return len(admin(site).list_topics(topic, timeout=10).topics[topic].partitions)


def delete_records(site: KafkaSite, topic: str, before: Mapping[int, int]) -> None:
    client = admin(site)  # a client that is collected takes its answers with it
    for future in client.delete_records([TopicPartition(topic, p, offset) for p, offset in before.items()]).values():
        future.result(30)


def topic_config(site: KafkaSite, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(site)
    found = client.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items()}


def set_config(site: KafkaSite, kind: ResourceType, name: str, **config: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    client = admin(site)
    client.incremental_alter_configs([resource])[resource].result(30)


def allow(site: KafkaSite, operation: str, kind: str, prefix: str, user: str = "isthmus") -> None:
    """Allow a user an operation on what begins with a prefix; kinds are topic, group, transactional-id, cluster."""
    client = admin(site)
    for future in client.create_acls([_acl(AclBinding, operation, kind, prefix, user)]).values():
        future.result(30)


def deny(site: KafkaSite, operation: str = "any", kind: str = "any", prefix: str | None = None) -> None:
    """Take away what was allowed, and nothing else; without arguments, everything."""
    client = admin(site)
    for future in client.delete_acls([_acl(AclBindingFilter, operation, kind, prefix, None)]).values():
        future.result(30)


def bindings(site: KafkaSite, but: str = "User:isthmus") -> set[str]:
    """All ACLs of a site but those of one principal, as "PERMISSION OPERATION kind:pattern:name principal host"."""
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    client = admin(site)
    return {
        f"{a.permission_type.name} {a.operation.name} {a.restype.name}:{a.resource_pattern_type.name}:{a.name} "
        f"{a.principal} {a.host}"
        for a in client.describe_acls(every).result(30)
        if a.principal != but
    }


def binding(text: str) -> AclBinding:
    permission, operation, resource, principal, host = text.split(" ")
    kind, pattern, name = resource.split(":")
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        principal,
        host,
        AclOperation[operation],
        AclPermissionType[permission],
    )


def grant(site: KafkaSite, *texts: str) -> None:
    client = admin(site)
    for future in client.create_acls([binding(text) for text in texts]).values():
        future.result(30)
    wait_for(lambda: set(texts) <= bindings(site, but=""), "ACLs")


def revoke(site: KafkaSite, *texts: str) -> None:
    client = admin(site)
    filters = [
        AclBindingFilter(
            b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, b.permission_type
        )
        for b in map(binding, texts)
    ]
    for future in client.delete_acls(filters).values():
        future.result(30)
    wait_for(lambda: not set(texts) & bindings(site, but=""), "ACLs to go")


@contextlib.contextmanager
def two_guarded(
    box: Sandbox, names: list[str], users: Mapping[str, str] = SECRETS, everything: bool = False
) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites that know their users and allow them nothing; or the replicator ``everything``."""
    first, second = box.start_all(names, sasl="PLAIN", acls=True, users=dict(users))
    for site in (first, second) if everything else ():
        for kind in ("topic", "group", "transactional-id", "cluster"):
            allow(site, "all", kind, "")
    yield first, second
    for name in names:
        box.remove(name)


def _acl(form: Any, operation: str, kind: str, prefix: str | None, user: str | None) -> Any:
    types = {"transactional-id": ResourceType.TRANSACTIONAL_ID, "cluster": ResourceType.BROKER}
    if prefix is None:
        name, pattern = None, ResourcePatternType.ANY
    elif kind == "cluster":
        name, pattern = "kafka-cluster", ResourcePatternType.LITERAL
    elif prefix == "":
        name, pattern = "*", ResourcePatternType.LITERAL
    else:
        name, pattern = prefix, ResourcePatternType.PREFIXED
    return form(
        types.get(kind) or ResourceType[kind.upper()],
        name,
        pattern,
        user and f"User:{user}",
        None if user is None else "*",
        AclOperation[operation.upper().replace("-", "_")],
        AclPermissionType.ANY if user is None else AclPermissionType.ALLOW,
    )


def ends(site: KafkaSite, topic: str, committed: bool = True, client: AdminClient | None = None) -> dict[int, int]:
    """The log end of each partition: the last stable offset, or the high watermark."""
    client = client or admin(site)
    partitions = client.list_topics(topic, timeout=10).topics[topic].partitions
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}

    def ask() -> dict[int, int] | None:
        answers = client.list_offsets(wanted, isolation_level=level)
        try:
            return {p.partition: future.result(30).offset for p, future in answers.items()}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:  # of a topic just made
                raise
            return None

    found: dict[int, int] = wait_for(ask, f"the ends of {topic}") if partitions else {}
    return found


@contextlib.contextmanager
def quota(site: KafkaSite, **rates: float) -> Iterator[None]:
    """Broker quotas for everybody for a while, such as ``producer_byte_rate``; librdkafka cannot set them."""
    cluster = Cluster(Site(name=site.name, bootstrap=site.admin_bootstrap.split(",")))
    entry = AlterClientQuotasRequest.EntryData

    async def alter(remove: bool) -> None:
        entity = entry.EntityData(entity_type="client-id", entity_name=None)
        ops = [entry.OpData(key=key, value=rate, remove=remove) for key, rate in rates.items()]
        response = await cluster.request(
            AlterClientQuotasRequest(entries=[entry(entity=[entity], ops=ops)], validate_only=False)
        )
        assert not any(answer.error_code for answer in response.entries), response

    with cluster:
        cluster.call(cluster.connect)
        cluster.call(alter, False)
        try:
            yield
        finally:
            cluster.call(alter, True)


def has_open_transaction(site: KafkaSite, topic: str, client: AdminClient) -> bool:
    """Whether a transaction has written to a topic and has not ended."""
    if not client.list_topics(topic, timeout=10).topics[topic].partitions:
        return False
    stable = ends(site, topic, client=client)
    return any(end > stable[p] for p, end in ends(site, topic, False, client).items())


def move_progress(site: KafkaSite, link: str, topic: str, partition: int, offset: int) -> None:
    """Falsify a link's progress, behind its back."""
    consumer = Consumer({"bootstrap.servers": site.admin_bootstrap, **QUIET, "group.id": f"_isthmus.{link}"})
    (known,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
    moved = TopicPartition(topic, partition, offset, metadata=known.metadata)
    consumer.commit(offsets=[moved], asynchronous=False)
    consumer.close()


@dataclass(frozen=True, slots=True)
class Message:
    """A record to produce."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Headers | None = None
    timestamp: int | None = None
    partition: int = 0


def producer_of(site: KafkaSite, user: str | None = None, **options: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in options.items()}
    access = site.client_config(user) if user else {"bootstrap.servers": site.admin_bootstrap}
    return Producer({**access, **QUIET, "linger.ms": 5, "message.timeout.ms": 60_000, **settings})


def send(producer: Producer, topic: str, messages: Iterable[Message]) -> int:
    """Produce and wait until all is appended; how many there were."""
    failures: list[KafkaError] = []
    count = 0

    def told(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failures.append(error)

    for m in messages:
        extra = {} if m.timestamp is None else {"timestamp": m.timestamp}
        while True:
            try:
                producer.produce(
                    topic, m.value, m.key, partition=m.partition, headers=m.headers, on_delivery=told, **extra
                )
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    assert producer.flush(90) == 0
    if failures:
        raise KafkaException(failures[0])
    return count


def produce(site: KafkaSite, topic: str, messages: Iterable[Message], **options: Any) -> int:
    """Produce with a producer of its own; ``options`` are librdkafka's with underscores for dots."""
    return send(producer_of(site, **options), topic, messages)


def numbered(count: int, start: int = 0, partition: int = 0, size: int = 0) -> list[Message]:
    """Messages that differ, with values of at least ``size`` bytes."""
    return [
        Message(f"value {n} ".encode().ljust(size, b"."), f"key-{n}".encode(), partition=partition)
        for n in range(start, start + count)
    ]


@contextlib.contextmanager
def transaction(site: KafkaSite, commit: bool = True, **options: Any) -> Iterator[Producer]:
    """A transaction at a site that ends as asked."""
    producer = producer_of(site, transactional_id=f"test-{uuid.uuid4().hex}", **options)
    producer.init_transactions(60)
    producer.begin_transaction()
    yield producer
    producer.flush(60)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


# -- the judge -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: int
    timestamp: int


def read(site: KafkaSite, topic: str, committed: bool = True, timeout: float = 60.0) -> dict[int, list[Record]]:
    """All records of a topic, by partition, as a consumer of committed records (or of all) sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": site.admin_bootstrap,
            **QUIET,
            "group.id": f"judge-{uuid.uuid4().hex}",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": 16 << 20,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        records: dict[int, list[Record]] = {p: [] for p in partitions}
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        left, deadline = set(partitions), time.monotonic() + timeout
        while left:
            assert time.monotonic() < deadline, f"{topic}: no end of partitions {sorted(left)} in sight"
            for message in consumer.consume(5000, 0.1):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    kind, timestamp = message.timestamp()
                    records[message.partition()].append(
                        Record(
                            message.offset(),
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                            kind,
                            timestamp,
                        )
                    )
    finally:
        consumer.close()
    return records


@dataclass(slots=True)
class Verdict:
    """What the judge found; ``records`` is how many stood on trial."""

    records: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> dict[str, list[str]]:
        kinds = ("lost", "doubled", "out_of_order", "changed", "invented")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind)}


Expect = Callable[[Record], Record | None]


def compare(
    east: KafkaSite,
    west: KafkaSite,
    topic: str,
    target: str | None = None,
    *,
    header: str | None = OFFSET_HEADER,
    since: Mapping[int, int] | None = None,
    expect: Expect = lambda record: record,
    twice_is_fine: bool = False,
) -> int:
    """Judge a copied topic: 0 lost, 0 doubled, 0 out of order, 0 changed; how many records there are.

    ``since`` gives the offset where copying began, ``expect`` what a record should have become (None: dropped), and
    ``twice_is_fine`` is for at-least-once.
    """
    there, here = read(east, topic), read(west, target or topic)
    verdict = Verdict()
    if set(there) != set(here):
        verdict.lost.append(f"partitions: {len(there)} at the source, {len(here)} at the destination")
    for partition, sources in there.items():
        first = (since or {}).get(partition, 0)
        wanted = [made for record in sources if record.offset >= first and (made := expect(record)) is not None]
        judge = _judge_by_header if header else _judge_by_place
        judge(verdict, f"{topic}[{partition}]", wanted, here.get(partition, []), header or "", twice_is_fine)
    wrong = {kind: (len(cases), cases[:5]) for kind, cases in verdict.wrong.items()}
    assert not wrong, f"{topic}: of {verdict.records} records {wrong}"
    return verdict.records


def _same(source: Record, target: Record, headers: tuple[tuple[str, bytes | None], ...]) -> bool:
    # The destination's timestamps are CreateTime whatever they were at the source: only so can they be kept.
    return (source.key, source.value, source.headers, source.timestamp, TIMESTAMP_CREATE_TIME) == (
        target.key,
        target.value,
        headers,
        target.timestamp,
        target.timestamp_type if target.timestamp != -1 else TIMESTAMP_CREATE_TIME,
    )


def _judge_by_header(
    verdict: Verdict, where: str, wanted: list[Record], found: list[Record], header: str, twice_is_fine: bool
) -> None:
    by_offset = {record.offset: record for record in wanted}
    verdict.records += len(wanted)
    seen: set[int] = set()
    newest = -1
    for record in found:
        at = f"{where} destination offset {record.offset}"
        if not record.headers or record.headers[-1][0] != header or len(record.headers[-1][1] or b"") != 8:
            verdict.changed.append(f"{at} has no offset header: {record.headers}")
            continue
        offset = int.from_bytes(record.headers[-1][1] or b"", "big")
        source = by_offset.get(offset)
        if source is None:
            verdict.invented.append(f"{at} says that it was offset {offset}, which is no record of the source")
            continue
        if offset in seen and not twice_is_fine:
            verdict.doubled.append(f"{at} repeats source offset {offset}")
        elif offset < newest and not twice_is_fine:
            verdict.out_of_order.append(f"{at}: source offset {offset} after {newest}")
        seen.add(offset)
        newest = max(newest, offset)
        if not _same(source, record, record.headers[:-1]):
            verdict.changed.append(f"{at}: {_short(record)} was {_short(source)}")
    verdict.lost += [f"{where} source offset {offset}" for offset in by_offset if offset not in seen]


def _judge_by_place(
    verdict: Verdict, where: str, wanted: list[Record], found: list[Record], header: str, twice_is_fine: bool
) -> None:
    verdict.records += len(wanted)
    for source, record in zip(wanted, found, strict=False):
        if not _same(source, record, record.headers):
            verdict.changed.append(f"{where} destination offset {record.offset}: {_short(record)} was {_short(source)}")
    verdict.lost += [f"{where} source offset {record.offset}" for record in wanted[len(found) :]]
    verdict.invented += [f"{where} destination offset {record.offset}" for record in found[len(wanted) :]]


def _short(record: Record) -> str:
    text = repr(record)
    return text if len(text) < 400 else text[:400] + "..."


# -- configurations --------------------------------------------------------------------------------------

_number = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Setup:
    """A configuration on disk, and the sites that it names."""

    path: Path
    config: Config
    sites: Mapping[str, KafkaSite]

    @property
    def link(self) -> str:
        """The name of the first link."""
        return next(iter(self.config.links))

    @property
    def target(self) -> KafkaSite:
        return self.sites[self.config.links[self.link].target]

    @property
    def source(self) -> KafkaSite:
        return self.sites[self.config.links[self.link].source]


def new_name(stem: str = "link") -> str:
    """A name that no other test uses."""
    return f"{stem}-{os.getpid()}-{next(_number)}"


def configure(
    sites: Mapping[str, KafkaSite],
    links: Mapping[str, Mapping[str, Any]],
    entries: Mapping[str, Mapping[str, Any]] | None = None,
    spark: Mapping[str, str] | None = None,
    **sections: Any,
) -> Setup:
    """Write an isthmus.yaml; ``entries`` replaces what a site says of itself."""
    document = {
        "sites": {name: (entries or {}).get(name) or site.site_yaml() for name, site in sites.items()},
        "links": {name: dict(link) for name, link in links.items()},
        "spark": dict(spark or {}),
        **sections,
    }
    directory = Path(tempfile.mkdtemp(prefix="isthmus-test-", dir=next(iter(sites.values())).directory))
    path = directory / "isthmus.yaml"
    path.write_text(json.dumps(document, indent=1))
    return Setup(path, load(path), dict(sites))


def one_link(east: KafkaSite, west: KafkaSite, topics: Any, name: str | None = None, **options: Any) -> Setup:
    """A configuration with one link from the first site to the second."""
    link = {"from": east.name, "to": west.name, "topics": topics, **options}
    return configure({east.name: east, west.name: west}, {name or new_name(): link})


def changed(setup: Setup, **options: Any) -> Setup:
    """The same configuration with other options for its first link."""
    document = json.loads(setup.path.read_text())
    link = {**document["links"][setup.link], **options}
    links = {**document["links"], setup.link: {k: v for k, v in link.items() if v is not None}}
    return configure(setup.sites, links, document["sites"], document["spark"])


# -- a link without Spark --------------------------------------------------------------------------------


def job_of(setup: Setup, link: str | None = None, slots: int = 2) -> Job:
    chosen = setup.config.links[link or setup.link]
    return Job(chosen, setup.config.sites[chosen.source], setup.config.sites[chosen.target], slots)


def copy_until_caught_up(
    setup: Setup, link: str | None = None, slots: int = 2, timeout: float = 90.0, faults_are_fine: bool = False
) -> list[LeaseResult]:
    """One lease that ends when all that was at the source is copied, or stands still with a fault."""
    planner = Planner(job_of(setup, link, slots))
    try:
        leases = planner.plan()
        wanted = {a.source: LATEST for lease in leases for a in lease.assignments}
        goal = planner.source.call(list_offsets, planner.source, wanted)
    finally:
        planner.close()
    results = _carry_out([lease for lease in leases if lease.assignments], goal, time.monotonic() + timeout)
    stopped = {partition: words for result in results for partition, words in result.faults.items()}
    assert faults_are_fine or not stopped, stopped
    return results


def _carry_out(leases: Sequence[Lease], goal: Mapping[Any, Any], deadline: float) -> list[LeaseResult]:
    late: list[str] = []

    def carry_out(lease: Lease) -> LeaseResult:
        def enough() -> bool:
            left = {
                source: (copying.position, goal[source])
                for source, copying in copier._by_source.items()
                if copying.fault is None and isinstance(goal[source], int) and copying.position < goal[source]
            }
            if left and time.monotonic() > deadline:
                late.append(f"slot {lease.slot}: position and goal {left}; {copier._trouble}")
                return True
            return not left

        copier = Copier(lease, enough)
        return copier.run()

    results = in_threads([lambda lease=lease: carry_out(lease) for lease in leases])
    assert not late, f"not caught up in time: {late}"
    return results


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all at the same time; the first exception is raised when all have ended."""
    results: list[Any] = [None] * len(calls)
    failures: list[BaseException] = []

    def call(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(n,), daemon=True) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


class Replicator:
    """A link that keeps running in threads of this process: what Spark does with leases, without Spark."""

    def __init__(self, setup: Setup, link: str | None = None, slots: int = 2, temporary: bool = False) -> None:
        self.job = replace(job_of(setup, link, slots), temporary=temporary)
        self.leases = 0
        self.failure: BaseException | None = None
        self._copiers: list[Copier] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Replicator:
        self._thread.start()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.stop()
        if kind is None and self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """End at the next commit."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the replicator does not stop"

    def ended(self, timeout: float = 60.0) -> BaseException | None:
        """Wait until it ends by itself; why it did."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"the replicator goes on after {[c._trouble for c in self._copiers]}"
        failure, self.failure = self.failure, None
        return failure

    def _run(self) -> None:
        planner = Planner(self.job)
        try:
            while not self._stop.is_set():
                if planner.control().resting:
                    time.sleep(0.1)
                    continue
                leases = planner.plan()
                self.leases += 1
                in_threads([lambda lease=lease: self._carry_out(lease) for lease in leases if lease.assignments])
        except BaseException as error:
            self.failure = error
        finally:
            planner.close()

    def _carry_out(self, lease: Lease) -> None:
        # As in Spark: a task that was fenced is tried again, and whether the link is lost is for the planner to say.
        fenced = True
        while fenced:
            with contextlib.suppress(TakenOver):
                try:
                    copier = Copier(lease, self._stop.is_set)
                    self._copiers.append(copier)
                    copier.run()
                except Fenced:
                    continue
            fenced = False


@contextlib.contextmanager
def replicator_process(setup: Setup, link: str | None = None, slots: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """The same in a process of its own, that can be killed."""
    command = [sys.executable, __file__, str(setup.path), link or setup.link, str(slots)]
    # What this file imports is found as the tests find it, not only beside this file.
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def freeze_in_transaction(process: subprocess.Popen[bytes], setup: Setup, topic: str, start: int = 0) -> int:
    """Produce, and stop a replicator (SIGSTOP) while it has a transaction open; how many records that took.

    Stopped first and looked at then: what is seen stays true.
    """
    client = admin(setup.target)
    count = 0

    def frozen() -> bool:
        nonlocal count
        process.send_signal(signal.SIGCONT)
        partitions = partitions_of(setup.source, topic)
        bulk = [m for p in range(partitions) for m in numbered(4000, start + count, partition=p, size=1000)]
        count += produce(setup.source, topic, bulk) // partitions
        for _ in range(20):
            process.send_signal(signal.SIGSTOP)
            if has_open_transaction(setup.target, topic, client):
                return True
            process.send_signal(signal.SIGCONT)
        return False

    wait_for(lambda: topic in topics_of(setup.target), "the destination topic")
    wait_for(frozen, "an open transaction", pause=0.0)
    return count


# -- a link with Spark, and the other verbs --------------------------------------------------------------


@dataclass(slots=True)
class Answer:
    """What a verb said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Of a verb that goes on reporting: one document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def isthmus(setup: Setup, *arguments: str) -> Answer:
    """A verb that needs no Spark, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = isthmus_cli.main([*arguments, "--config", str(setup.path)])
    return Answer(code, out.getvalue(), err.getvalue())


def status(setup: Setup, link: str | None = None) -> dict[str, Any]:
    """What ``isthmus status --json`` says of a link."""
    answer = isthmus(setup, "status", link or setup.link, "--json")
    found: dict[str, Any] = answer.document[0]
    stands = any(p["fault"] for p in found["partitions"])
    assert answer.code == (6 if stands else 0), answer
    return found


def faults(setup: Setup, link: str | None = None) -> dict[tuple[str, int], str]:
    """The error class of each partition that stands still, as ``isthmus status`` shows it."""
    return {(p["topic"], p["partition"]): p["fault"] for p in status(setup, link)["partitions"] if p["fault"]}


def reset(setup: Setup, *partitions: str, to: str) -> list[dict[str, Any]]:
    answer = isthmus(setup, "reset", setup.link, *partitions, "--to", to, "--json")
    assert answer.code == 0, answer
    moved: list[dict[str, Any]] = answer.document
    return moved


class Run:
    """``isthmus run`` in a process group of its own, as a terminal would have it."""

    MARK = "ISTHMUS_TEST_ONE_RUN"

    def __init__(self, setup: Setup, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        program = Path(sys.executable).with_name("isthmus")
        self._mark = uuid.uuid4().hex
        self._out, self._err = (setup.path.with_name(f"{self._mark}.{stream}") for stream in ("out", "err"))
        self.command = [str(program), "run", *arguments, "--config", str(setup.path), "--json"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                self.command,
                stdout=out,
                stderr=err,
                env={**os.environ, **(env or {}), self.MARK: self._mark},
                start_new_session=True,
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def so_far(self) -> Answer:
        code = self.process.poll()
        out, err = (path.read_text(errors="replace") for path in (self._out, self._err))
        return Answer(-1 if code is None else code, out, err)

    def finish(self, timeout: float = 180.0) -> Answer:
        """Wait for its end."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"isthmus run does not end: {self.so_far()}") from None
        return self.so_far()

    def processes(self) -> list[int]:
        """What is alive of the run: itself, Spark's Java process, Python workers."""
        mark = f"{self.MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


def run(setup: Setup, *arguments: str, timeout: float = 180.0, env: Mapping[str, str] | None = None) -> Answer:
    """``isthmus run`` to its end."""
    with Run(setup, *arguments, env=env) as started:
        return started.finish(timeout)


# -- waiting ---------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60.0, pause: float = 0.05) -> Any:
    """Wait until a condition holds; what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(pause)


def wait_for_records(site: KafkaSite, topic: str, count: int, seconds: float = 120.0) -> None:
    """Wait until a topic holds so many records; counted by their presence, since offsets count markers too."""

    def there() -> bool:
        if topic not in topics_of(site) or sum(ends(site, topic).values()) < count:
            return False
        return sum(len(records) for records in read(site, topic).values()) >= count

    wait_for(there, f"{count} records in {topic}", seconds)


def main(config: str, link: str, slots: str) -> None:
    loaded = load(config)
    chosen = loaded.links[link]
    setup = Setup(Path(config), loaded, {})
    replicator = Replicator(setup, chosen.name, int(slots))
    try:
        with replicator:
            signal.pause()
    except IsthmusError as error:
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
