"""A site: a named cluster and how to connect to it.

Invariant: a site that passed has addresses with ports, readable certificates, and exactly the
credentials that its mechanism uses.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, model_validator

from isthmus.config.base import Model
from isthmus.config.hooks import Hooks
from isthmus.config.mistakes import Problem, several, wrong
from isthmus.config.names import Name
from isthmus.config.quantities import Duration, Switch
from isthmus.config.registry import Registry
from isthmus.config.secret import Secret
from isthmus.config.state import State
from isthmus.config.tls import Tls, tls_input

_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>[0-9]{1,5})")
_SCHEME = re.compile(r"[A-Za-z_+-]+://")


Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Sasl(Model):
    """How the site knows who we are."""

    mechanism: Mechanism = Field(description="SASL mechanism.")
    username: str | None = Field(default=None, description="User name, for PLAIN and SCRAM.", min_length=1)
    password: Secret | None = Field(default=None, description="Password, for PLAIN and SCRAM.")
    token: Secret | None = Field(
        default=None,
        description="Bearer token, for OAUTHBEARER. From a file it is read anew for each connection.",
    )
    in_the_clear: Switch = Field(
        default=False,
        description="Send a password (PLAIN) or a token (OAUTHBEARER) without TLS, for anybody on the way to read. On this machine it needs no word.",
    )

    @property
    def hides(self) -> bool:
        """Whether the mechanism itself keeps the secret from those on the way."""
        return self.mechanism.startswith("SCRAM")

    @model_validator(mode="after")
    def _check(self) -> Sasl:
        wanted = ("token",) if self.mechanism == "OAUTHBEARER" else ("username", "password")
        problems = []
        for key in ("username", "password", "token"):
            given = getattr(self, key) is not None
            if key in wanted and not given:
                needs = f"{self.mechanism} needs {' and '.join(wanted)}"
                problems.append(Problem((key,), "missing", needs, at_key=True))
            elif given and key not in wanted:
                hint = f"it takes {' and '.join(wanted)}"
                problems.append(Problem((key,), f"{self.mechanism} does not take this", hint))
        if problems:
            raise several(problems)
        return self


def _addresses(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, list):
        raise wrong("expected a list of host:port")
    if not value:
        raise wrong("expected at least one host:port", found=False)
    return value


def _address(value: Any) -> str:
    hint = ""
    if isinstance(value, str):
        match = _ADDRESS.fullmatch(value)
        if match and 0 < int(match["port"]) < 65536:
            return str(value)
        if match:
            hint = "a port is between 1 and 65535"
        elif _SCHEME.match(value):
            hint = "leave the scheme out; TLS and SASL have keys of their own"
        elif re.fullmatch(r"[A-Za-z0-9_.-]+", value):
            hint = "add the port, often 9092 or 9093"
        elif value.count(":") > 1:
            hint = "write an IPv6 address in brackets: [::1]:9092"
    raise wrong("expected host:port", hint)


Address = Annotated[str, BeforeValidator(_address), WithJsonSchema({"type": "string", "title": "host:port"})]


class Site(Model):
    """A named cluster. The name stays when the cluster is rebuilt; the cluster id does not."""

    name: Name = Field(description="The key under which the site stands.")
    bootstrap: Annotated[list[Address], BeforeValidator(_addresses, json_schema_input_type=list[Address] | str)] = (
        Field(description="Addresses to find the brokers by, as a list or separated by commas.")
    )
    tls: Annotated[Tls | None, BeforeValidator(tls_input, json_schema_input_type=Tls | Switch | None)] = Field(
        default=None,
        description="TLS. `true` means TLS with the system's authorities; left out means no TLS.",
    )
    sasl: Sasl | None = Field(default=None, description="SASL credentials. Left out means none.")
    cluster_id: str | None = Field(
        default=None,
        description="The cluster id that the site must answer with. Set it to stop rather than to work on a "
        "cluster that was replaced.",
        min_length=1,
    )
    request_timeout: Duration = Field(default=30.0, description="How long one request to a broker may take.")
    registry: Registry | None = Field(default=None, description="The site's schema registry. Left out means none.")
    hooks: Hooks | None = Field(
        default=None,
        description="Commands of your own that fence the site in a failover, instead of its ACLs. Left out means none.",
    )
    _signing: State | None = PrivateAttr(default=None)

    @property
    def signing(self) -> State | None:
        """What signs the state that is kept here: the same for all sites (``state``), and with each of them wherever it goes."""
        return self._signing

    def signed_by(self, signing: State) -> Site:
        site = self.model_copy()
        site._signing = signing
        return site
