"""TLS to a site's brokers or to its registry: whom to trust, and how to be known.

Invariant: a key has its certificate, and a passphrase has its key.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from isthmus.config.base import Model
from isthmus.config.mistakes import Problem, several
from isthmus.config.paths import LocalFile
from isthmus.config.quantities import Switch
from isthmus.config.scalar import as_switch
from isthmus.config.secret import Secret


class Tls(Model):
    """TLS, with a client certificate if the site wants one."""

    ca: LocalFile | None = Field(
        default=None,
        description="PEM file with the authorities to trust; left out, the system's.",
    )
    certificate: LocalFile | None = Field(
        default=None,
        description="PEM file with the client certificate, for mutual TLS; it may hold the key too.",
    )
    key: LocalFile | None = Field(default=None, description="PEM file with the client certificate's private key.")
    key_password: Secret | None = Field(default=None, description="Passphrase of the private key.")
    verify_hostname: Switch = Field(
        default=True, description="Check that the server's certificate names the host that was connected to."
    )

    @model_validator(mode="after")
    def _check(self) -> Tls:
        problems = []
        if self.key and not self.certificate:
            problems.append(Problem(("key",), "a key needs its certificate", 'set "certificate" too'))
        if self.key_password and not (self.key or self.certificate):
            problems.append(Problem(("key_password",), "there is no key to open", 'set "certificate" and "key"'))
        if problems:
            raise several(problems)
        return self


def tls_input(value: Any) -> Any:
    """``tls: true`` is TLS with the system's authorities, ``tls: false`` is none."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return Tls() if switch else None
    return value
