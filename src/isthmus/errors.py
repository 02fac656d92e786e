"""Every error Isthmus raises on purpose, drawn as one tree.

    IsthmusError                    exit 1   anything we meant to say
    ├── UsageError                  exit 2   the command line was wrong
    ├── ConfigError                 exit 3   isthmus.yaml was wrong; carries every mistake at once
    ├── ConnectionFailed            exit 4   a site could not be reached
    │   └── SiteRefused                      it answers, and refused a request; names request and error
    ├── NotAllowed                  exit 5   a site refused us
    │   ├── AuthenticationFailed             who we are
    │   └── AuthorisationFailed              what we may do; names the missing ACL
    ├── DataError                   exit 6   going on would lose, double or change records
    │   ├── ClusterChanged                   a site is not the cluster it was
    │   ├── SameCluster                      both ends of a link are one cluster
    │   ├── UnknownLink                      the destination has never heard of this link
    │   ├── BadState                         what we keep at a site cannot be read there, or is not signed
    │   ├── Damaged                          a comparison found that the two sides differ
    │   └── PartitionFault                   one partition stopped; the others go on
    │       ├── SourceDeleted                the source topic is gone
    │       ├── SourceRecreated              the source topic was deleted and created again
    │       ├── SourceTruncated              the source log ends before our position
    │       ├── RetentionGap                 the source log starts after our position
    │       ├── SourceUnreadable             missing authorisation to read
    │       ├── DestinationMissing           the destination topic or partition is gone
    │       ├── DestinationRecreated         the destination topic was created again
    │       ├── DestinationRefused           the destination refused a batch for good
    │       ├── CorruptBatch                 checksum or layout of a batch is broken
    │       ├── OldFormat                    a batch older than format v2
    │       ├── RecordTooLarge               one record exceeds the destination's limit
    │       ├── UnknownSchemaIds             records carry schema ids that no registry knows
    │       └── RuleFailed                   a rule raised or returned something unusable
    ├── RegistryRefused             exit 1   a schema registry refused a request for good
    ├── HookFailed                  exit 9   an operator's own command did not do what it was asked for
    ├── TakenOver                   exit 7   another replicator runs this link now
    ├── SandboxError                exit 8   a local broker or cluster could not be run
    └── Interrupted                 exit 130 stopped by the user, cleanly

Errors cross process borders (Spark executors, planner, driver), so each one keeps its typed
attributes in ``fields`` and pickles as ``(class, fields)``. A message says what happened, where, and
what to do; secrets never enter one.
"""

from __future__ import annotations

from typing import Any, ClassVar


def _rebuild(cls: type[IsthmusError], fields: dict[str, Any]) -> IsthmusError:
    return cls(**fields)


class IsthmusError(Exception):
    """Base class: ``fields`` is everything needed to rebuild the error in another process."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields: dict[str, Any] = {"message": message, **fields}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints for an error."""
        return {"error": type(self).__name__, **self.fields}


class UsageError(IsthmusError):
    """The command line was wrong."""

    exit_code = 2


class ConfigError(IsthmusError):
    """One or more mistakes in a configuration file.

    ``mistakes`` is a list of dictionaries with ``file``, ``line``, ``column``, ``path``, ``problem``
    and ``hint``.
    """

    exit_code = 3

    def __init__(self, message: str, mistakes: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message, mistakes=mistakes or [])
        self.mistakes = mistakes or []


class ConnectionFailed(IsthmusError):
    """A site could not be reached in time."""

    exit_code = 4

    def __init__(self, message: str, site: str = "") -> None:
        super().__init__(message, site=site)
        self.site = site


class SiteRefused(ConnectionFailed):
    """A site answered, and refused a request: not for want of rights, and its address is right. ``kafka`` is Kafka's name of the error."""

    def __init__(self, message: str, site: str = "", request: str = "", kafka: str = "") -> None:
        super().__init__(message, site)
        self.request, self.kafka = request, kafka
        self.fields.update(request=request, kafka=kafka)


class NotAllowed(IsthmusError):
    """A site refused us."""

    exit_code = 5

    def __init__(self, message: str, site: str = "", needed: str = "") -> None:
        super().__init__(message, site=site, needed=needed)
        self.site = site
        self.needed = needed


class AuthenticationFailed(NotAllowed):
    """The site does not believe who we are."""


class AuthorisationFailed(NotAllowed):
    """The site knows us and says no; ``needed`` names the ACL."""


class DataError(IsthmusError):
    """Going on would lose, double, reorder or change records."""

    exit_code = 6


class ClusterChanged(DataError):
    """A site answers with another cluster id than the one this link has worked with."""

    def __init__(self, message: str, site: str = "", expected: str = "", found: str = "") -> None:
        super().__init__(message, site=site, expected=expected, found=found)


class SameCluster(DataError):
    """Both ends of a link are one cluster."""


class UnknownLink(DataError):
    """The destination holds no state of this link."""


class BadState(DataError):
    """A record of a state topic cannot be read, or was not written by us; ``key`` and ``offset`` say which."""

    def __init__(self, message: str, site: str = "", topic: str = "", key: str = "", offset: int = -1) -> None:
        super().__init__(message, site=site, topic=topic, key=key, offset=offset)
        self.site, self.topic, self.key, self.offset = site, topic, key, offset


class Damaged(DataError):
    """Both sides of a link were compared, and differ; ``damage`` counts what is wrong, by class."""

    def __init__(self, message: str, link: str = "", damage: dict[str, int] | None = None) -> None:
        super().__init__(message, link=link, damage=damage or {})
        self.damage = damage or {}


class PartitionFault(DataError):
    """One partition stopped. Every subclass says why and what to do.

    ``topic``, ``partition`` and ``offset`` are the source's (offset -1: not tied to a record).
    """

    remedy: ClassVar[str] = ""

    def __init__(self, message: str, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SourceDeleted(PartitionFault):
    """The source topic (or partition) does not exist any more."""


class SourceRecreated(PartitionFault):
    """The source topic was deleted and created again: offsets mean other records now."""


class SourceTruncated(PartitionFault):
    """The source log ends before our position (unclean leader election or a restored backup)."""


class RetentionGap(PartitionFault):
    """The source deleted records before they were copied."""


class SourceUnreadable(PartitionFault):
    """We are not allowed to read the source topic."""

    exit_code = 5


class DestinationMissing(PartitionFault):
    """The destination topic or partition does not exist (any more)."""


class DestinationRecreated(PartitionFault):
    """The destination topic was deleted and created again: what was copied before is gone."""


class DestinationRefused(PartitionFault):
    """The destination refused a batch and would refuse it again."""


class CorruptBatch(PartitionFault):
    """Checksum or layout of a source batch is broken."""


class OldFormat(PartitionFault):
    """A source batch in message format v0 or v1."""


class RecordTooLarge(PartitionFault):
    """A single record is larger than the destination topic allows."""


class UnknownSchemaIds(PartitionFault):
    """Records carry schema ids that cannot be translated (yet); ``ids`` are the source's."""

    def __init__(
        self, message: str, topic: str = "", partition: int = -1, offset: int = -1, ids: list[int] | None = None
    ) -> None:
        super().__init__(message, topic, partition, offset)
        self.ids = ids or []
        self.fields["ids"] = self.ids


class RuleFailed(PartitionFault):
    """A rule raised, or returned something that is not a batch of records."""


class RegistryRefused(IsthmusError):
    """A schema registry answered that it will not; ``status`` is HTTP's, ``code`` the registry's own."""

    def __init__(self, message: str, site: str = "", status: int = 0, code: int = 0) -> None:
        super().__init__(message, site=site, status=status, code=code)
        self.site, self.status, self.code = site, status, code


class HookFailed(IsthmusError):
    """An operator's own command (``sites.SITE.hooks``) did not do what it was asked for."""

    exit_code = 9


class TakenOver(IsthmusError):
    """Another replicator runs this link now; we were fenced and wrote nothing after that. ``temporary``: it is a recovery
    operation, which gives the link back when it has caught up."""

    exit_code = 7

    def __init__(self, message: str, temporary: bool = False) -> None:
        super().__init__(message, temporary=temporary)
        self.temporary = temporary


class SandboxError(IsthmusError):
    """A local broker, registry or Spark cluster could not be fetched, started or stopped."""

    exit_code = 8


class Interrupted(IsthmusError):
    """Stopped by the user at a transaction boundary."""

    exit_code = 130
