"""A connection to one site: brokers, leaders, topic ids, coordinators, requests.

Invariants:
- an error of kafka-python never leaves this room for another: ``connect`` and the admin calls turn it into
  a class of ``isthmus.errors`` that names the site and says what to do;
- an error that a request met knows its site (``whose``); one that a broker answered knows its request too (``refused``);
- metadata is asked for by name and never creates a topic.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kerrors
from kafka.future import Future
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from isthmus import __version__
from isthmus.config import Sasl, Site
from isthmus.errors import (
    AuthenticationFailed,
    AuthorisationFailed,
    ClusterChanged,
    ConnectionFailed,
    IsthmusError,
    SiteRefused,
)
from isthmus.kafka.loop import Loop
from isthmus.kafka.transport import FrameConnection, PlainFailure, TcpTransport, TlsTransport, hung_up, refused

if not os.environ.get("ISTHMUS_DEBUG"):
    # kafka-python reports each lost connection at ERROR; we report what it means instead.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)

NO_ID = uuid.UUID(int=0)
GROUP, TRANSACTION = 0, 1
# Answers of brokers that tell of a line, not of what was asked.
LIKE_A_LOST_ANSWER = (kerrors.RequestTimedOutError, kerrors.NetworkExceptionError)
# How brokers refuse what would not fit in one batch of a log.
TOO_LARGE = (
    kerrors.InvalidCommitOffsetSizeError,
    kerrors.MessageSizeTooLargeError,
    kerrors.RecordListTooLargeError,
)
# A quarter of Kafka's default limit of a batch.
COMMIT_BYTES = 256 << 10
# Backing off between attempts: from a loopback's pace to a pace that spares a broker in trouble.
FIRST_BACKOFF, LAST_BACKOFF = 0.02, 1.0


@dataclass(slots=True)
class PartitionInfo:
    leader: int
    leader_epoch: int
    replicas: int


@dataclass(slots=True)
class TopicInfo:
    name: str
    id: uuid.UUID
    partitions: dict[int, PartitionInfo]
    error: type[Exception] | None = None

    @property
    def replication(self) -> int:
        return max((p.replicas for p in self.partitions.values()), default=1)


@dataclass(slots=True)
class Metadata:
    cluster_id: str
    brokers: list[int]
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    controller: int = -1


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    """Hands out the site's token, read anew for each connection so that a rotated file is seen."""

    def __init__(self, sasl: Sasl) -> None:
        super().__init__()
        self._sasl = sasl

    def token(self) -> str:
        assert self._sasl.token is not None
        return self._sasl.token.reveal()


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's manager with our transports, secrets that are read for each connection, and a memory for why a connection failed.

    ``plain`` is whether each address of the site has failed for a reason that trying again is unlikely to cure: it is told to whoever does
    not want to wait. One that answers slowly, beside others that are down, is waited for.
    """

    last_error: Exception | None = None

    def __init__(self, site: Site, *args: Any, **kwargs: Any) -> None:
        self._site = site
        super().__init__(*args, **kwargs)
        self._plainly: set[Any] = set()

    @property
    def plain(self) -> bool:
        return all(broker.node_id in self._plainly for broker in self.cluster.bootstrap_brokers())

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        sock: socket.socket | None = None
        transport: Any = None
        self._plainly.discard(node.node_id)
        try:
            sock = await _dial(self._net, node, self.config["socket_options"], timeout_at)
            if self.ssl_enabled:
                tls = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
                if self._site.tls is not None and self._site.tls.key_password is not None:
                    tls["ssl_password"] = self._site.tls.key_password.reveal()
                transport = TlsTransport(self._net, sock, host=node.host, **tls)
            else:
                transport = TcpTransport(self._net, sock, host=node.host)
            await transport.handshake()
        except Exception as error:
            if sock is not None:
                sock.close()
            if transport is not None:
                transport._sock.close()  # TLS has taken the socket over
            self.last_error = error
            if isinstance(error, (PlainFailure, ssl.SSLError)):
                self._plainly.add(node.node_id)
            raise kerrors.KafkaConnectionError(f"{node.host}:{node.port}: {error}") from error
        return transport

    def _closed(self, error: Exception, node: Any, conn: Any, greeted: bool) -> None:
        """A broker that closes a new connection without a word mostly expects another protocol."""
        if not hung_up(error):
            return
        missing = "sasl" if greeted and not conn.sasl_enabled else "tls" if not greeted and not self.ssl_enabled else ""
        if missing:
            self.last_error = PlainFailure.expected(missing, greeted)
            self._plainly.add(node.node_id)

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        connection = super().get_connection(*args, **kwargs)
        # The manager makes its connections itself; one that was made just now has not connected yet.
        if connection.__class__ is not FrameConnection:
            connection.__class__ = FrameConnection
            if self._site.sasl is not None and self._site.sasl.password is not None:
                connection.config["sasl_plain_password"] = self._site.sasl.password.reveal()
        return connection

    async def _connect(self, node: Any, conn: Any, *args: Any, **kwargs: Any) -> None:
        await super()._connect(node, conn, *args, **kwargs)
        if self.cluster.is_bootstrap(node.node_id):  # nothing but the greeting and one question of ours goes over it
            greeted = conn.connected
            conn.close_future.add_errback(lambda error: self._closed(error, node, conn, greeted))
        if conn.refusal is not None:
            self.last_error = conn.refusal
            if self.cluster.is_bootstrap(node.node_id):
                self._auth_failures[node.node_id] = conn.refusal  # trying again with the same secret is no use


async def _dial(net: Any, node: Any, options: Any, timeout_at: float | None) -> socket.socket:
    """kafka-python's ``create_connection``, but for its leaving the socket of each failed attempt open."""
    dialler = KafkaNetSocket()
    problem: Exception = PlainFailure(f"the name {node.host} cannot be resolved (DNS)")
    for family, kind, protocol, _, address in dialler.dns_lookup(node.host, node.port):
        sock: socket.socket = dialler.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            for option in options:
                sock.setsockopt(*option)
            await dialler.sock_connect(net, sock, address, timeout_at=timeout_at)
        except (kerrors.KafkaError, OSError) as error:
            sock.close()
            problem = PlainFailure("connection refused: nothing listens there") if refused(error) else error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def connection_settings(site: Site) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    tls, sasl = site.tls, site.sasl
    settings["security_protocol"] = {
        (False, False): "PLAINTEXT",
        (True, False): "SSL",
        (False, True): "SASL_PLAINTEXT",
        (True, True): "SASL_SSL",
    }[tls is not None, sasl is not None]
    if tls is not None:
        settings["ssl_check_hostname"] = tls.verify_hostname
        settings["ssl_cafile"] = str(tls.ca) if tls.ca else None
        settings["ssl_certfile"] = str(tls.certificate) if tls.certificate else None
        settings["ssl_keyfile"] = str(tls.key) if tls.key else None
        settings["ssl_password"] = tls.key_password.reveal() if tls.key_password else None
    if sasl is not None:
        settings["sasl_mechanism"] = sasl.mechanism
        if sasl.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _Token(sasl)
        else:
            settings["sasl_plain_username"] = sasl.username
            settings["sasl_plain_password"] = sasl.password.reveal() if sasl.password else None
    return settings


class Cluster:
    """One site, connected. Coroutines run on ``loop``; ``call`` is for those who have no loop of their own."""

    def __init__(self, site: Site, loop: Loop | None = None, purpose: str = "isthmus") -> None:
        self.site = site
        self.loop = loop or Loop()
        self._owns_loop = loop is None
        self._manager = _Manager(
            site,
            self.loop.net,
            bootstrap_servers=list(site.bootstrap),
            client_id=purpose,
            client_software_name="isthmus",
            request_timeout_ms=int(site.request_timeout * 1000),
            # A Fetch response may hold one record of any size that the source accepted.
            receive_message_max_bytes=(1 << 31) - 1,
            # Our own windows bound what is in flight; the library's bound would refuse instead of wait.
            max_in_flight_requests_per_connection=1_000_000,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=1000,
            socket_options=[
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            ],
            **connection_settings(site),
        )
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._coordinators: dict[tuple[int, str], int] = {}
        self._controller: int | None = None
        self.cluster_id = ""
        self.features: dict[str, int] = {}
        # How much one commit of offsets may put into the log; smaller where the site was found to take less (offsets.py).
        self.commit_bytes = COMMIT_BYTES

    # -- connecting ---------------------------------------------------------------------------------------

    def call(self, work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run a coroutine function to its end on this thread."""
        return self.loop.run(work, *args)

    async def connect(self, timeout: float = 30.0, patience: float | None = None) -> Cluster:
        """Reach the site and learn its id and features, or say why not. ``patience`` is how long a plain failure (no such name, nobody
        listens, another protocol) is tried again: as long as the rest, unless somebody waits for the answer."""
        deadline = time.monotonic() + timeout
        enough = deadline if patience is None else min(deadline, time.monotonic() + patience)
        while True:
            try:
                bootstrap = self._manager.bootstrap_async(timeout_ms=max(0.0, deadline - time.monotonic()) * 1000)
                while patience is not None and not bootstrap.is_done:
                    if self._manager.plain and time.monotonic() >= enough:
                        raise kerrors.KafkaTimeoutError("no connection")
                    await self.loop.sleep(FIRST_BACKOFF)
                await bootstrap
                response = await self.request(
                    ApiVersionsRequest(client_software_name="isthmus", client_software_version=__version__)
                )
                self.cluster_id = (await self.metadata([])).cluster_id
                break
            except (kerrors.KafkaError, OSError) as error:
                # A connection that broke is made again; who refused us would do so again.
                broke = isinstance(error, (kerrors.RetriableError, kerrors.UnknownBrokerIdError, OSError))
                if not broke or time.monotonic() >= (enough if self._manager.plain else deadline):
                    raise self.explain(error) from None
                await self.loop.sleep(FIRST_BACKOFF)
        self.features = {f.name: f.max_version_level for f in (getattr(response, "finalized_features", None) or [])}
        return self

    def explain(self, error: Exception, doing: str = "") -> IsthmusError:
        """Our error for one of kafka-python's: which site, what happened, what to do."""
        site, where = self.site.name, ", ".join(self.site.bootstrap)
        cause: Exception = error
        if isinstance(error, (kerrors.KafkaTimeoutError, kerrors.NodeNotReadyError, kerrors.KafkaConnectionError)):
            cause = self._manager.last_error or error
        what = f" while {doing}" if doing else ""
        if isinstance(cause, kerrors.SaslAuthenticationFailedError):
            return AuthenticationFailed(
                f"site {site}: authentication failed{what}: check sites.{site}.sasl (mechanism, username, secret)",
                site=site,
            )
        if isinstance(cause, kerrors.UnsupportedSaslMechanismError):
            mechanism = self.site.sasl.mechanism if self.site.sasl else ""
            return AuthenticationFailed(
                f"site {site}: it does not offer {mechanism}; check sites.{site}.sasl.mechanism", site=site
            )
        if isinstance(cause, kerrors.AuthorizationError):
            needed = {
                "TopicAuthorizationFailedError": (
                    f"ALLOW READ on {cause.args[0] if cause.args else 'the topic'} (progress is kept under its name)"
                ),
                "GroupAuthorizationFailedError": f"ALLOW READ on the groups that begin with {STATE_PREFIX!r}",
                "ClusterAuthorizationFailedError": "ALLOW on the cluster (CREATE, IDEMPOTENT_WRITE, DESCRIBE)",
                "TransactionalIdAuthorizationFailedError": (
                    f"ALLOW WRITE on the transactional ids that begin with {STATE_PREFIX!r}"
                ),
            }.get(type(cause).__name__, "an ACL")
            if self.site.sasl is not None and self.site.sasl.username:
                needed += f" for User:{self.site.sasl.username}"
            return AuthorisationFailed(
                f"site {site}: not authorised{what} ({type(cause).__name__}); grant {needed}", site=site, needed=needed
            )
        if isinstance(cause, kerrors.BrokerResponseError) and not isinstance(cause, LIKE_A_LOST_ANSWER):
            return self._refusal(cause, what)
        reason = str(cause) or type(cause).__name__
        return ConnectionFailed(
            f"site {site}: cannot reach {where}{what}: {reason}; is the site up, and are "
            f"sites.{site}.bootstrap and tls right?",
            site=site,
        )

    def _refusal(self, error: Exception, what: str) -> SiteRefused:
        """The site answers, so its address is right: what it refused, with which error, and what may help."""
        site, request = self.site.name, getattr(error, "request", "a request")
        name = kind_of(type(error))
        of = f" ({words[:200]})" if (words := ", ".join(str(each) for each in error.args)) else ""
        if isinstance(error, kerrors.UnsupportedVersionError):
            cure = "it is too old, or no whole Kafka, for what was asked: see `isthmus config check --live`"
        elif isinstance(error, TOO_LARGE):
            cure = "raise message.max.bytes of its brokers, and max.message.bytes of __consumer_offsets if it is set"
        elif isinstance(error, kerrors.RetriableError):
            cure = "its brokers are not ready for it (one down, or starting?): look at them, then try again"
        else:
            cure = "the logs of its brokers say more"
        return SiteRefused(f"site {site}: it refused {request}{what} with {name}{of}; {cure}", site, request, name)

    def refused(self, answer: Any, code: int, words: str = "") -> kerrors.KafkaError:
        """The error that an answer of this site names; it knows site and request."""
        error = kerrors.for_code(code)(words) if words else kerrors.for_code(code)()
        name = answer if isinstance(answer, str) else type(answer).__name__
        error.site, error.request = self.site.name, name.removesuffix("Response")
        return error

    def close(self) -> None:
        self._manager.close()
        if self._owns_loop:
            self.loop.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests -----------------------------------------------------------------------------------------

    def send(self, request: Any, node: int | None = None, timeout: float | None = None) -> Future:
        """Send one request; the future holds the response or a kafka-python error. Nothing is retried."""
        try:
            future: Future = self._manager.send(
                request, node_id=node, request_timeout_ms=None if timeout is None else int(timeout * 1000)
            )
        except kerrors.KafkaError as error:
            error.site, error.request = self.site.name, type(request).__name__.removesuffix("Request")
            future = Future().failure(error)
        return future

    async def request(self, request: Any, node: int | None = None, timeout: float | None = None) -> Any:
        try:
            return await self.send(request, node, timeout)
        except kerrors.KafkaError as error:
            error.site, error.request = self.site.name, type(request).__name__.removesuffix("Request")
            raise

    def supports(self, request_class: Any, version: int) -> bool:
        """Whether both we and the brokers speak this version of a request."""
        data = self._manager.broker_version_data
        if data is None:
            return False
        try:
            return bool(data.api_version(request_class) >= version)
        except kerrors.IncompatibleBrokerVersion:
            return False

    @property
    def modern_transactions(self) -> bool:
        """Transaction version 2: Produce enlists partitions by itself and each commit bumps the epoch."""
        return self.features.get("transaction.version", 0) >= 2

    async def refresh_brokers(self) -> None:
        await self._manager.cluster.refresh_metadata()

    async def meet(self, nodes: Iterable[int]) -> None:
        """Learn the addresses of brokers that kafka-python has not heard of. By itself it asks every few minutes, and refuses to send to whom it does not
        know: a broker that was down when we came would be left out for as long after its return."""
        if any(self._manager.cluster.broker_metadata(node) is None for node in nodes):
            with suppress(kerrors.KafkaError, OSError):  # whoever sends to it is told so, and tries again
                await self.refresh_brokers()

    async def metadata(self, topics: list[str] | None, node: int | None = None) -> Metadata:
        """Leaders and ids of these topics (``None``: of all), as one broker knows them; a topic's error is a value.

        Raises ``ClusterChanged`` when another cluster answers than the one that we connected to.
        """
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
        request = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = await self.request(request, node)
        if self.cluster_id and response.cluster_id and response.cluster_id != self.cluster_id:
            raise ClusterChanged(
                f"site {self.site.name} was cluster {self.cluster_id} when we connected and is {response.cluster_id} now: "
                "offsets of the old cluster mean nothing there",
                self.site.name,
                self.cluster_id,
                response.cluster_id,
            )
        found: dict[str, TopicInfo] = {}
        for topic in response.topics:
            error = kerrors.for_code(topic.error_code) if topic.error_code else None
            partitions = {
                p.partition_index: PartitionInfo(p.leader_id, getattr(p, "leader_epoch", -1), len(p.replica_nodes))
                for p in topic.partitions
            }
            found[topic.name] = TopicInfo(topic.name, getattr(topic, "topic_id", None) or NO_ID, partitions, error)
        brokers = [b.node_id for b in response.brokers]
        await self.meet(brokers)
        return Metadata(response.cluster_id or "", brokers, found, getattr(response, "controller_id", -1))

    async def coordinator(self, kind: int, key: str) -> int:
        """The broker that keeps a group or a transactional id."""
        if (kind, key) not in self._coordinators:
            if self.supports(FindCoordinatorRequest, 4):
                response = await self.request(
                    FindCoordinatorRequest(key_type=kind, coordinator_keys=[key], min_version=4)
                )
                answer = response.coordinators[0]
            else:
                answer = await self.request(FindCoordinatorRequest(key=key, key_type=kind, max_version=3))
            if answer.error_code:
                raise self.refused("FindCoordinator", answer.error_code, key)
            await self.meet([answer.node_id])
            self._coordinators[kind, key] = answer.node_id
        return self._coordinators[kind, key]

    def known_coordinators(self, kind: int) -> dict[str, int]:
        """The coordinators that are known already, for those who ask for many at a time."""
        return {key: node for (its, key), node in self._coordinators.items() if its == kind}

    def remember_coordinator(self, kind: int, key: str, node: int) -> None:
        self._coordinators[kind, key] = node

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def ask_controller(
        self, request: Callable[[], Any], answers: Callable[[Any], Iterable[Any]], timeout: float = 60.0
    ) -> Any:
        """Ask whoever may change the cluster. With KRaft that is any broker, which passes it on. With ZooKeeper it is one of the brokers, and
        the others refuse what they are asked, whole: it is looked up then, remembered, and followed when it moves."""
        deadline, backoff = time.monotonic() + timeout, FIRST_BACKOFF
        while True:
            try:
                response = await self.request(request(), self._controller, timeout=timeout)
            except kerrors.KafkaError:
                self._controller = None  # it may be gone for good; whoever tries again asks any broker
                raise
            codes = {answer.error_code for answer in answers(response)}
            if kerrors.NotControllerError.errno not in codes or time.monotonic() > deadline:
                return response
            await self.loop.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 1.6)
            await self.refresh_brokers()
            controller = (await self.metadata([])).controller
            self._controller = controller if controller >= 0 else None

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Callable[[], Any],
        error_of: Callable[[Any], int],
        timeout: float = 30.0,
        resend: bool = True,
    ) -> Any:
        """Ask a coordinator until it gives an answer that isn't a passing one; the error code is the caller's. Without ``resend``, a request
        whose answer is lost is not sent again: the broker may still carry out the first one, at any later time."""
        deadline, backoff = time.monotonic() + timeout, FIRST_BACKOFF
        while True:
            sent = False
            try:
                node = await self.coordinator(kind, key)
                sent = True
                response = await self.request(request(), node)
                sent = False
                code = error_of(response)
                problem = kerrors.for_code(code) if code else None
                if problem is None or not issubclass(problem, kerrors.RetriableError):
                    return response
                error: Exception = self.refused(response, code, key)
            except kerrors.RetriableError as caught:
                error = caught
            except kerrors.UnknownBrokerIdError as caught:
                error = caught
            if time.monotonic() > deadline or (sent and not resend):
                self.forget_coordinator(kind, key)
                raise error
            if not isinstance(error, (kerrors.ConcurrentTransactionsError, kerrors.UnstableOffsetCommitError)):
                self.forget_coordinator(kind, key)
            await self.loop.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 1.6)


def whose(error: BaseException, *clusters: Cluster) -> Cluster:
    """Of which of these sites an error tells; of the last, if it does not say."""
    site = getattr(error, "site", None)
    return next((cluster for cluster in clusters if cluster.site.name == site), clusters[-1])


def kind_of(error: type[BaseException]) -> str:
    """Kafka's own name of an error, as brokers and their documents write it."""
    return str(getattr(error, "message", "") or error.__name__)


# Everything a link keeps at its destination (topics, group, transactional ids) is named with this prefix.
STATE_PREFIX = "_isthmus."
