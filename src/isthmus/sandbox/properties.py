"""A broker's ``server.properties``, from a site's spec.

Invariant: pure; what comes out depends on the arguments alone. Every listener is on 127.0.0.1.

A guarded site has two listeners: CLIENT with TLS and SASL as asked, and INNER without, for the brokers among
themselves and for administration. Nobody has a name on INNER, and the nameless user is a super user, so
ACLs never lock the sandbox out. An open site has INNER alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.sandbox.spec import KafkaSpec


@dataclass(frozen=True)
class NodePorts:
    """Where one node listens; ``client`` equals ``inner`` at an open site."""

    client: int
    inner: int
    controller: int


@dataclass(frozen=True)
class NodeFiles:
    """What one node reads and writes; the stores are only there if the site has TLS."""

    data: Path
    key_store: Path | None = None
    trust_store: Path | None = None


def server_properties(spec: KafkaSpec, node_id: int, ports: Sequence[NodePorts], files: NodeFiles) -> dict[str, str]:
    """The settings of node ``node_id`` (from 1) of a site whose nodes have these ports."""
    mine = ports[node_id - 1]
    copies = str(min(3, spec.brokers))
    enough = "2" if spec.brokers >= 3 else "1"
    listeners = {"INNER": f"127.0.0.1:{mine.inner}", "CONTROLLER": f"127.0.0.1:{mine.controller}"}
    protocols = {"INNER": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    if spec.guarded:
        listeners["CLIENT"] = f"127.0.0.1:{mine.client}"
        protocols["CLIENT"] = spec.client_protocol
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{number}@127.0.0.1:{node.controller}" for number, node in enumerate(ports, 1)
        ),
        "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in protocols.items()),
        "inter.broker.listener.name": "INNER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(files.data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
        # Fifty partitions of each internal topic, the default, is most of what a small broker would do.
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.num.partitions": "5",
        # A first member is not kept waiting for others.
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker's leadership moves, and the broker may register again, only when its session is
        # over: less than the default of 9 s, but long enough that a busy machine fences nobody.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # Few threads and a small cleaner buffer (128 MiB by default) keep a broker near 300 MiB.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "log.cleaner.dedupe.buffer.size": "8388608",
    }
    settings |= _tls(spec, files)
    settings |= _sasl(spec)
    if spec.acls:
        settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings["super.users"] = ";".join(f"User:{user}" for user in ("ANONYMOUS", *spec.super_users))
    return settings | dict(spec.config)


def _tls(spec: KafkaSpec, files: NodeFiles) -> dict[str, str]:
    if not spec.tls:
        return {}
    return {
        "listener.name.client.ssl.keystore.type": "PEM",
        "listener.name.client.ssl.keystore.location": str(files.key_store),
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(files.trust_store),
        "listener.name.client.ssl.client.auth": "required" if spec.mutual_tls else "none",
        # A certificate's common name is the user's name.
        "listener.name.client.ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
    }


def _sasl(spec: KafkaSpec) -> dict[str, str]:
    if spec.sasl is None:
        return {}
    security = "org.apache.kafka.common.security"
    prefix = f"listener.name.client.{spec.sasl.lower()}"
    settings = {"sasl.enabled.mechanisms": spec.sasl}
    if spec.sasl == "PLAIN":
        users = " ".join(f'user_{name}="{password}"' for name, password in spec.users.items())
        settings[f"{prefix}.sasl.jaas.config"] = f"{security}.plain.PlainLoginModule required {users};"
    elif spec.sasl == "OAUTHBEARER":
        # Kafka's own stand-in for a token service: tokens carry a name and an end, and no signature.
        settings[f"{prefix}.sasl.jaas.config"] = (
            f'{security}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        )
        settings[f"{prefix}.sasl.server.callback.handler.class"] = (
            f"{security}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        )
    else:
        settings[f"{prefix}.sasl.jaas.config"] = f"{security}.scram.ScramLoginModule required;"
    return settings


def scram_arguments(spec: KafkaSpec) -> list[str]:
    """What the storage tool is told, so that SCRAM users exist from the first moment."""
    if spec.sasl is None or not spec.sasl.startswith("SCRAM"):
        return []
    return [
        argument
        for name, password in spec.users.items()
        for argument in ("--add-scram", f'{spec.sasl}=[name="{name}",password="{password}"]')
    ]


def written(settings: Mapping[str, str]) -> str:
    """The text of a properties file; a backslash is the format's escape sign."""
    return "".join(f"{key}={value}\n" for key, value in settings.items()).replace("\\", "\\\\")
