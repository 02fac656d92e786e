"""What a sandbox site is asked to be.

Invariant: a spec that exists makes sense; contradictions are refused when it is made, before anything is
fetched or started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from isthmus.errors import SandboxError

DEFAULT_KAFKA = "4.3.1"
# Older ones cannot be formatted with SCRAM users.
OLDEST_KAFKA = (3, 5)
DEFAULT_USERS = {"isthmus": "isthmus-secret"}
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

# A name becomes a directory and a certificate's subject; a password becomes a quoted word in a JAAS line
# and in an argument of Kafka's storage tool.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PASSWORD = re.compile(r"[!#-+\--\[\]^-~]+")


@dataclass(frozen=True)
class KafkaSpec:
    """A Kafka site: how many brokers, of which version, how guarded."""

    name: str
    brokers: int = 1
    version: str = DEFAULT_KAFKA
    tls: bool = False
    mutual_tls: bool = False
    sasl: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    acls: bool = False
    super_users: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    fast_start: bool = True
    heap: str = "384m"

    def __post_init__(self) -> None:
        for name in (self.name, *self.users):
            if not _NAME.fullmatch(name):
                raise SandboxError(f"{name!r} is no usable name: take letters, digits, '.', '_' and '-'.")
        for user, password in self.users.items():
            if not _PASSWORD.fullmatch(password):
                raise SandboxError(
                    f"The password of sandbox user {user!r} must be printable ASCII without quotes, commas, "
                    "backslashes and blanks."
                )
        numbers = re.match(r"(\d+)\.(\d+)", self.version)
        if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST_KAFKA:
            raise SandboxError(
                f"The sandbox cannot run Kafka {self.version}: it needs {OLDEST_KAFKA[0]}.{OLDEST_KAFKA[1]} or newer, whose storage tool makes SCRAM "
                f"users. Give --version {DEFAULT_KAFKA} or 3.9.2, which are tested."
            )
        if not 1 <= self.brokers <= 9:
            raise SandboxError(f"A sandbox site has 1 to 9 brokers, not {self.brokers}.")
        if self.sasl is not None and self.sasl not in SASL_MECHANISMS:
            raise SandboxError(f"Unknown SASL mechanism {self.sasl!r}; known: {', '.join(SASL_MECHANISMS)}.")
        if self.mutual_tls:
            object.__setattr__(self, "tls", True)
        if self.authenticated and not self.users:
            object.__setattr__(self, "users", dict(DEFAULT_USERS))

    @property
    def guarded(self) -> bool:
        """Clients come in by a listener of their own, apart from the inner one."""
        return self.tls or self.sasl is not None

    @property
    def authenticated(self) -> bool:
        """Clients have names."""
        return self.mutual_tls or self.sasl is not None

    @property
    def client_protocol(self) -> str:
        """Kafka's word for how clients connect."""
        if self.sasl is not None:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"
