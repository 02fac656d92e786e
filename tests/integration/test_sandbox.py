"""The sandbox, feature by feature, seen by a client that we did not write.

Invariant: nothing here looks inside the sandbox where a client or the operating system can tell as well.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from isthmus.errors import SandboxError
from isthmus.sandbox import KafkaSite, KafkaSpec, Sandbox, jars
from isthmus.sandbox.java import find_java
from isthmus.sandbox.kafka import KafkaSite as Site
from isthmus.sandbox.ports import ReservedPort, answers
from isthmus.sandbox.properties import NodePorts

QUIET = {"log_level": 0}  # librdkafka writes every lost connection to stderr


# -- what a client does ----------------------------------------------------------------------------


def create(config: dict[str, Any], topic: str, partitions: int = 1, copies: int = 1) -> None:
    admin = AdminClient({**config, **QUIET})
    # The first poll lets an OAUTHBEARER client make its token.
    admin.poll(0)
    admin.create_topics([NewTopic(topic, partitions, copies)], request_timeout=20)[topic].result(20)


def produce(config: dict[str, Any], topic: str, *values: bytes) -> None:
    failures: list[KafkaError] = []
    producer = Producer({**config, **QUIET, "delivery.timeout.ms": 40_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(45) == 0
    if failures:
        raise KafkaException(failures[0])


def consume(config: dict[str, Any], topic: str, count: int) -> list[bytes]:
    # Assigned by hand: a group's first member would wait for the coordinator's topic to be made.
    consumer = Consumer({**config, **QUIET, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            values.append(message.value())
    finally:
        consumer.close()
    return values


def roundtrip(config: dict[str, Any], topic: str) -> None:
    create(config, topic)
    produce(config, topic, b"one", b"two")
    assert consume(config, topic, 2) == [b"one", b"two"]


def leader(site: KafkaSite, topic: str) -> int:
    metadata = AdminClient({"bootstrap.servers": site.admin_bootstrap, **QUIET}).list_topics(topic, timeout=10)
    return metadata.topics[topic].partitions[0].leader


def cluster_id(site: KafkaSite) -> str:
    return AdminClient({"bootstrap.servers": site.admin_bootstrap, **QUIET}).list_topics(timeout=10).cluster_id


def eventually(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# -- open sites -------------------------------------------------------------------------------------


def test_two_sites_answer_within_ten_seconds() -> None:
    with Sandbox() as box:
        started = time.monotonic()
        left, right = box.start_all(["left", "right"])
        assert time.monotonic() - started < 10
        assert cluster_id(left) == left.cluster_id
        assert cluster_id(left) != cluster_id(right)
        assert left.admin_bootstrap == left.bootstrap
        assert left.site_yaml() == {"bootstrap": [left.bootstrap]}
        pids = [broker.pid for site in (left, right) for broker in site.brokers]
        assert all(exists(pid) for pid in pids)
    assert not any(exists(pid) for pid in pids)
    assert not box.directory.exists()


def test_open_site(east: KafkaSite, unique_topic: Callable[..., str]) -> None:
    roundtrip(east.client_config(), unique_topic())


def test_topics_are_not_made_by_accident(east: KafkaSite, unique_topic: Callable[..., str]) -> None:
    config = {**east.client_config(), **QUIET, "group.id": "reader", "allow.auto.create.topics": True}
    topic = unique_topic()
    consumer = Consumer(config)
    for _ in range(3):
        found = consumer.list_topics(topic, timeout=10).topics[topic]
        assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()


def test_stop_and_kill_keep_data_and_ports_and_wipe_rebuilds(make_site: Callable[..., KafkaSite]) -> None:
    site = make_site()
    bootstrap, identity = site.bootstrap, cluster_id(site)
    create(site.client_config(), "kept")
    produce(site.client_config(), "kept", b"one")

    site.stop()
    assert not site.brokers[0].alive
    assert site.brokers[0].pid is None
    assert not answers(site.brokers[0].port)
    site.start()
    assert consume(site.client_config(), "kept", 1) == [b"one"]

    site.brokers[0].kill()
    site.brokers[0].start()
    assert consume(site.client_config(), "kept", 1) == [b"one"]
    assert (site.bootstrap, cluster_id(site)) == (bootstrap, identity)

    site.wipe()
    assert site.bootstrap == bootstrap
    assert cluster_id(site) == site.cluster_id != identity
    assert "kept" not in AdminClient(site.client_config()).list_topics(timeout=10).topics


def test_older_kafka(make_site: Callable[..., KafkaSite]) -> None:
    site = make_site(version="3.9.2", tls=True, sasl="SCRAM-SHA-256", config={"num.partitions": "3"})
    roundtrip(site.client_config(), "old")
    assert "Kafka version: 3.9.2" in site.brokers[0].log_path.read_text()


# -- guarded sites ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"tls": True}, id="tls"),
        pytest.param({"sasl": "PLAIN", "users": {"alice": "se=cr[et]"}}, id="plain"),
        pytest.param({"sasl": "OAUTHBEARER"}, id="oauthbearer"),
        pytest.param({"sasl": "SCRAM-SHA-512", "mutual_tls": True}, id="scram-512-mutual-tls"),
    ],
)
def test_guarded_site(make_site: Callable[..., KafkaSite], options: dict[str, Any]) -> None:
    site = make_site(**options)
    roundtrip(site.client_config(), "guarded")
    # Who comes without what the site asks for gets nowhere.
    bare = AdminClient({"bootstrap.servers": site.bootstrap, **QUIET})
    with pytest.raises(KafkaException):
        bare.list_topics(timeout=2)
    # The inner door needs nothing.
    assert "guarded" in AdminClient({"bootstrap.servers": site.admin_bootstrap}).list_topics(timeout=10).topics


@pytest.fixture(scope="module")
def guarded(make_module_site: Callable[..., KafkaSite]) -> KafkaSite:
    """TLS, SCRAM and ACLs; alice is a super user, bob may do nothing yet."""
    users = {"alice": "alice-secret", "bob": "bob=[secret]!"}
    return make_module_site(tls=True, sasl="SCRAM-SHA-256", users=users, acls=True, super_users=["alice"])


def _exactly(rule: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def test_scram_and_acls(guarded: KafkaSite) -> None:
    roundtrip(guarded.client_config("alice"), "orders")
    with pytest.raises(KafkaException) as denied:
        produce(guarded.client_config("bob"), "orders", b"three")
    assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    name = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:bob", "*")
    rules = [
        AclBinding(*name, operation, AclPermissionType.ALLOW)
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]
    admin = AdminClient({"bootstrap.servers": guarded.admin_bootstrap})
    for made in admin.create_acls(rules).values():
        made.result(20)
    deadline = time.monotonic() + 20
    while not all(admin.describe_acls(_exactly(rule)).result(20) for rule in rules):  # a busy broker hears of it late
        assert time.monotonic() < deadline, "the broker has not heard of its ACLs"
        time.sleep(0.1)
    produce(guarded.client_config("bob"), "orders", b"three")
    assert consume(guarded.client_config("alice"), "orders", 3) == [b"one", b"two", b"three"]


def test_wrong_password_is_refused(guarded: KafkaSite) -> None:
    refusals: list[KafkaError] = []
    config = {**guarded.client_config("bob"), "sasl.password": "wrong", **QUIET}
    client = AdminClient({**config, "error_cb": refusals.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(1)
    assert KafkaError._AUTHENTICATION in {error.code() for error in refusals}


def test_site_entry_names_files_with_the_secrets(guarded: KafkaSite) -> None:
    entry = guarded.site_yaml("bob")
    assert entry["bootstrap"] == guarded.bootstrap.split(",")
    assert Path(entry["tls"]["ca"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert (entry["sasl"]["mechanism"], entry["sasl"]["username"]) == ("SCRAM-SHA-256", "bob")
    secret = Path(entry["sasl"]["password"]["file"])
    assert secret.read_text() == "bob=[secret]!"
    assert secret.stat().st_mode & 0o077 == 0
    with pytest.raises(SandboxError, match="knows alice, bob"):
        guarded.client_config("mallory")


def test_certificate_names_the_user_and_acls_are_enforced_on_it(make_site: Callable[..., KafkaSite]) -> None:
    site = make_site(mutual_tls=True, users={"alice": "-", "bob": "-"}, acls=True, super_users=["alice"])
    create(site.client_config("alice"), "orders")
    with pytest.raises(KafkaException) as denied:
        produce(site.client_config("bob"), "orders", b"one")
    assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(site.site_yaml()["tls"]) == {"ca", "certificate", "key"}


# -- three brokers ----------------------------------------------------------------------------------


def test_leadership_moves_when_a_broker_is_killed_or_paused(make_site: Callable[..., KafkaSite]) -> None:
    site = make_site(brokers=3)
    config = {**site.client_config(), "acks": "all"}
    assert len(site.bootstrap.split(",")) == 3
    create(config, "copied", copies=3)
    produce(config, "copied", b"one")

    first = leader(site, "copied")
    site.brokers[first - 1].kill()
    eventually(lambda: leader(site, "copied") not in (first, -1))
    produce(config, "copied", b"two")
    site.brokers[first - 1].start()

    second = leader(site, "copied")
    frozen = site.brokers[second - 1]
    frozen.pause()
    assert frozen.alive
    eventually(lambda: leader(site, "copied") not in (second, -1))
    produce(config, "copied", b"three")
    frozen.resume()
    site.wait()
    assert consume(config, "copied", 3) == [b"one", b"two", b"three"]


# -- directories and ports --------------------------------------------------------------------------


def test_kept_directory_is_found_again(tmp_path: Path) -> None:
    with Sandbox(tmp_path, keep=True) as box:
        site = box.kafka("home")
        create(site.client_config(), "kept")
        produce(site.client_config(), "kept", b"one")
        before = (site.bootstrap, cluster_id(site))
        with pytest.raises(SandboxError, match="Another sandbox uses"):
            Sandbox(tmp_path)
    with Sandbox(tmp_path) as box, pytest.raises(SandboxError, match="another shape"):
        box.kafka("home", brokers=3)
    with Sandbox(tmp_path, keep=True) as box:
        site = box.kafka("home")
        assert (site.bootstrap, cluster_id(site)) == before
        assert consume(site.client_config(), "kept", 1) == [b"one"]


def test_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "letters" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    with Sandbox(tmp_path) as box, pytest.raises(SandboxError, match="no sandbox site"):
        box.kafka("letters")
    assert precious.read_text() == "mine"


def test_port_that_was_taken_meanwhile_is_replaced(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    free_ports = Site._free_ports
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken = squatter.getsockname()[1]
        choices = iter([lambda site: [NodePorts(taken, taken, site._reserve())], free_ports])
        monkeypatch.setattr(Site, "_free_ports", lambda site: next(choices)(site))
        site = box.kafka("squatted")
        assert site.brokers[0].port != taken
        box.remove("squatted")


def test_reserved_port_is_given_to_nobody_but_a_server() -> None:
    port = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port.number))
    with socket.create_server(("127.0.0.1", port.number)):  # sets SO_REUSEADDR, as Java does
        assert answers(port.number)
    assert not answers(port.number)
    port.release()


# -- mistakes ---------------------------------------------------------------------------------------


def test_broker_that_dies_tells_its_log(box: Sandbox) -> None:
    with pytest.raises(SandboxError, match="Broker 1 of sandbox site 'broken' died") as caught:
        box.kafka("broken", config={"metric.reporters": "no.such.Reporter"})
    assert "no.such.Reporter" in caught.value.message
    assert "broken" not in box.sites


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a/b"}, "no usable name"),
        ({"name": "a", "brokers": 0}, "1 to 9 brokers"),
        ({"name": "a", "version": "3.4.1"}, "needs 3.5 or newer"),
        ({"name": "a", "sasl": "GSSAPI"}, "Unknown SASL mechanism"),
        ({"name": "a", "sasl": "PLAIN", "users": {"bob": 'a"b'}}, "password of sandbox user 'bob'"),
    ],
)
def test_contradictions_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        KafkaSpec(**options)


def test_missing_java_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="Install JDK 17 or newer"):
        find_java.__wrapped__()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\n")
    old.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    with pytest.raises(SandboxError, match="is Java 8"):
        find_java.__wrapped__()


# -- fetching ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with nothing in it, and a Java that counts how often Ivy is called."""
    home = tmp_path_factory.mktemp("fresh")
    counting = home / "jdk" / "bin" / "java"
    counting.parent.mkdir(parents=True)
    counting.write_text(
        f'#!/bin/sh\ncase "$*" in *org.apache.ivy*) echo call >> {home}/calls;; esac\nexec {find_java()} "$@"\n'
    )
    counting.chmod(0o755)
    (home / "jdk" / "release").write_text('JAVA_VERSION="17"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_CACHE", str(home / "cache"))
        patch.setenv("JAVA_HOME", str(home / "jdk"))
        yield home


def test_two_processes_fetch_once(fresh_cache: Path) -> None:
    script = "from isthmus.sandbox.jars import *; print(fetch(kafka_jars('4.3.1')).class_path)"
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(2)]
    answers = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1]
    assert b"kafka_2.13-4.3.1.jar" in answers[0]
    assert (fresh_cache / "calls").read_text().split() == ["call"]


def test_damaged_cache_is_fetched_again(fresh_cache: Path) -> None:
    wanted = jars.kafka_jars("4.3.1")
    fetched = jars.fetch(wanted)
    assert jars.damage(wanted.directory, verify=True) is None
    jar = next((fetched.directory / "lib").glob("kafka-clients-*.jar"))
    times = jar.stat().st_atime_ns, jar.stat().st_mtime_ns

    def flip_a_byte() -> None:
        with jar.open("r+b") as handle:
            handle.seek(1000)
            handle.write(bytes([handle.read(1)[0] ^ 0xFF]))

    flip_a_byte()
    assert jars.damage(wanted.directory) == f"{jar.name} has the wrong checksum"
    os.utime(jar, ns=times)  # a disk that rots leaves no trace, so only reading everything finds it
    assert jars.damage(wanted.directory) is None
    assert jars.damage(wanted.directory, verify=True) == f"{jar.name} has the wrong checksum"
    os.truncate(jar, 1000)
    assert jars.damage(wanted.directory) == f"{jar.name} has the wrong size"
    jar.unlink()
    assert "files missing or extra" in str(jars.damage(wanted.directory))

    half = wanted.directory.with_name(f"{wanted.name}.partial-killed")
    half.mkdir()
    jars.fetch(wanted)
    assert jars.damage(wanted.directory, verify=True) is None
    assert not half.exists()


def test_unknown_version_is_an_error_that_helps(fresh_cache: Path) -> None:
    with pytest.raises(SandboxError, match="Check the version and the network"):
        jars.fetch(jars.kafka_jars("0.0.0"))
    assert not jars.kafka_jars("0.0.0").directory.exists()


# -- the command line -------------------------------------------------------------------------------


def isthmus(*arguments: str, expect: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-c", "import sys; from isthmus.cli import main; sys.exit(main())"]
    run = subprocess.run([*command, *arguments, "--json"], capture_output=True, text=True, timeout=240)
    assert run.returncode == expect, run.stdout + run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def test_command_line_up_status_down(fresh_cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "isthmus.yaml"
    assert isthmus("sandbox", "status") == {"running": False}
    assert isthmus("sandbox", "down") == {"stopped": False, "kept": None}

    state = isthmus("sandbox", "up", "north", "--sasl", "PLAIN", "--yaml", str(file))
    try:
        (site,) = state["sites"]
        assert f"- {site['bootstrap']}" in file.read_text()
        produced = AdminClient({"bootstrap.servers": site["admin_bootstrap"]}).list_topics(timeout=10)
        assert produced.cluster_id == site["cluster_id"]
        refused = isthmus("sandbox", "up", expect=8)
        assert "up already" in refused["message"]
        assert isthmus("config", "show", "--config", str(file))
        pid = site["brokers"][0]["pid"]
        assert isthmus("sandbox", "status")["sites"][0]["brokers"][0]["alive"] is True
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not isthmus("sandbox", "status")["sites"][0]["brokers"][0]["alive"])
    finally:
        assert isthmus("sandbox", "down") == {"stopped": True, "kept": None}
    eventually(lambda: not exists(state["supervisor"]), 5)
    assert not Path(state["directory"]).exists()

    file.write_text("sites: {}\n")
    assert "is not the sandbox's own" in isthmus("sandbox", "up", "--yaml", str(file), expect=2)["message"]


def test_killed_supervisor_leaves_nothing_and_is_noticed(fresh_cache: Path, tmp_path: Path) -> None:
    kept = tmp_path / "data"
    state = isthmus("sandbox", "up", "north", "--data", str(kept))
    pid = state["sites"][0]["brokers"][0]["pid"]
    os.kill(state["supervisor"], signal.SIGKILL)
    eventually(lambda: not exists(pid), 10)
    assert isthmus("sandbox", "status") == {"running": False}
    again = isthmus("sandbox", "up", "north", "--data", str(kept))
    assert again["sites"][0]["cluster_id"] == state["sites"][0]["cluster_id"]
    assert isthmus("sandbox", "down") == {"stopped": True, "kept": str(kept)}
    assert kept.exists()


def test_fetch_verb(fresh_cache: Path) -> None:
    assert isthmus("sandbox", "fetch", "--verify")["fetched"] is False


# -- nothing is left behind -------------------------------------------------------------------------

OWNER = """
    import json, os, time
    from isthmus.sandbox import Sandbox
    box = Sandbox()
    broker = box.kafka("owned").brokers[0]
    if os.fork() == 0:  # a fork holds every pipe of its parent open
        time.sleep(60)
        os._exit(0)
    print(json.dumps({"pid": broker.pid, "keeper": broker._process._keeper.pid, "box": str(box.directory)}))
    import sys; sys.stdout.flush()
    time.sleep(60)
"""


@pytest.fixture
def owned() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A process that owns a broker, and has a fork."""
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert owner.stdout is not None
    with owner.stdout as report:
        facts = json.loads(report.readline())
    yield owner, facts
    os.killpg(owner.pid, signal.SIGKILL)
    owner.wait()


def test_owner_killed_leaves_no_process(owned: tuple[subprocess.Popen[bytes], dict[str, Any]]) -> None:
    owner, facts = owned
    assert exists(facts["pid"])
    owner.kill()
    owner.wait()
    eventually(lambda: not exists(facts["pid"]) and not exists(facts["keeper"]), 10)


def test_keeper_killed_takes_the_broker_along(
    owned: tuple[subprocess.Popen[bytes], dict[str, Any]],
) -> None:
    _, facts = owned
    os.kill(facts["keeper"], signal.SIGKILL)
    eventually(lambda: not exists(facts["pid"]), 10)


def test_directory_of_a_killed_owner_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = "import os; from isthmus.sandbox import Sandbox; print(Sandbox().directory, flush=True); os.kill(0, 9)"
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, start_new_session=True)
    left = Path(killed.stdout.decode().strip())
    assert left.exists()
    monkeypatch.setattr("tempfile.tempdir", None)
    with Sandbox() as box:
        assert box.directory.parent == left.parent
        assert not left.exists()
    shutil.rmtree(left.parent)


# -- Spark ------------------------------------------------------------------------------------------

SPARK_JOB = """
    import json, os, sys
    from isthmus.sandbox import Sandbox
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable

    with Sandbox() as box:
        cluster = box.spark(workers=2)
        builder = SparkSession.builder.config("spark.ui.enabled", "false")
        for key, value in cluster.session_config().items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()

        def where(_):
            import os, sys, time
            time.sleep(0.5)  # long enough that one executor cannot take all
            return os.environ.get("SPARK_LOCAL_IP"), sys.executable, os.getppid()

        def run():
            return spark.sparkContext.parallelize(range(8), 8).map(where).collect()

        first = run()
        cluster.workers[0].kill()
        second = run()
        answer = {
            "master": cluster.master_url,
            "pythons": sorted({python for _, python, _ in first}),
            "executors": len({parent for _, _, parent in first}),
            "after": len(second),
            "registered": cluster.registered_workers(),
        }
        cluster.workers[0].start()
        answer["again"] = cluster.registered_workers()
        spark.stop()
    print(json.dumps(answer))
"""


def test_spark_cluster_runs_a_job_and_survives_a_worker() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPARK_JOB)], capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout.splitlines()[-1])
    assert answer["master"].startswith("spark://127.0.0.1:")
    assert answer["pythons"] == [sys.executable]
    assert answer["executors"] == 2
    assert answer["after"] == 8
    assert (answer["registered"], answer["again"]) == (1, 2)
