"""A site's schema registry: where it is and how it knows who we are.

Invariant: a registry that passed has an http or https address without credentials in it, and either a user name with its
password, or a token, or neither.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from isthmus.config.base import Model
from isthmus.config.mistakes import Problem, several, wrong
from isthmus.config.names import is_loopback
from isthmus.config.quantities import Count, Duration, Switch
from isthmus.config.secret import Secret
from isthmus.config.tls import Tls


def _url(value: Any) -> str:
    expected = 'expected an address such as "https://registry.example:8081"'
    if not isinstance(value, str):
        raise wrong(expected)
    try:
        parts = urlsplit(value)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise wrong(expected) from None
    if parts.username is not None or parts.password is not None:
        # Not repeated: it holds a secret.
        raise wrong("no user and password in the address", 'set "username" and "password"', found=False)
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise wrong(expected, "" if "://" in value else "begin with http:// or https://")
    if parts.query or parts.fragment or re.search(r"\s", value):
        raise wrong(expected)
    return str(value).rstrip("/")


Url = Annotated[str, BeforeValidator(_url), WithJsonSchema({"type": "string", "title": "http(s) address"})]


class Registry(Model):
    """A schema registry that speaks the Confluent API."""

    url: Url = Field(description="Its address, with the path of the API if it has one.")
    username: str | None = Field(default=None, description="User name, for HTTP basic authentication.", min_length=1)
    password: Secret | None = Field(default=None, description="Password, for HTTP basic authentication.")
    token: Secret | None = Field(
        default=None, description="Bearer token. From a file it is read anew for each request."
    )
    tls: Tls | None = Field(
        default=None, description="Certificates for https. Left out means the system's authorities."
    )
    timeout: Duration = Field(default=10.0, description="How long one request may take.")
    retry_for: Duration = Field(
        default=30.0, description="How long a request that fails in passing (5xx, no answer) is tried again."
    )
    in_the_clear: Switch = Field(
        default=False,
        description="Send a password or a token over http, for anybody on the way to read. On this machine it needs no word.",
    )
    connections: Count = Field(default=8, description="Requests at the same time.")

    @property
    def in_the_open(self) -> bool:
        """Whether a secret of it travels so that others can read it."""
        secret = self.password is not None or self.token is not None
        parts = urlsplit(self.url)
        return secret and parts.scheme == "http" and not is_loopback(parts.hostname or "")

    @model_validator(mode="after")
    def _check(self) -> Registry:
        problems = []
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            problems.append(Problem((missing,), "missing", "username and password go together", at_key=True))
        if self.token is not None and self.username is not None:
            problems.append(Problem(("token",), "a token replaces username and password", "set one of the two"))
        if self.tls is not None and self.url.startswith("http://"):
            problems.append(Problem(("tls",), "the address is not https", 'begin "url" with https://'))
        if problems:
            raise several(problems)
        return self
