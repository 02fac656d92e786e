"""How a client gets into a site: the settings for librdkafka, and the site's entry in isthmus.yaml.

Invariant: every secret that an entry needs lies in a file of the site's directory, readable by its owner
alone; entries name the files.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from isthmus.errors import SandboxError
from isthmus.sandbox.certificates import Certificates
from isthmus.sandbox.spec import KafkaSpec

TOKEN_SECONDS = 30 * 24 * 3600  # nobody renews a sandbox's token file


def certificates(directory: Path) -> Certificates:
    """The certificate files of the site in a directory."""
    return Certificates(directory / "certificates")


def write_secrets(spec: KafkaSpec, directory: Path) -> None:
    """One file a user: a password, or a token where the mechanism wants one."""
    if spec.sasl is None:
        return
    for user, password in spec.users.items():
        secret = _unsigned_token(user) if spec.sasl == "OAUTHBEARER" else password
        path = _secret_path(directory, user)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secret)


def client_config(spec: KafkaSpec, bootstrap: str, directory: Path, user: str | None) -> dict[str, Any]:
    """Settings for a librdkafka client."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap}
    if not spec.guarded:
        return config
    config["security.protocol"] = spec.client_protocol
    if spec.tls:
        config["ssl.ca.location"] = str(certificates(directory).authority)
    if not spec.authenticated:
        return config
    name = _known_user(spec, user)
    if spec.mutual_tls:
        config["ssl.certificate.location"] = str(certificates(directory).user_certificate(name))
        config["ssl.key.location"] = str(certificates(directory).user_key(name))
    if spec.sasl == "OAUTHBEARER":
        config["sasl.mechanism"] = spec.sasl
        config["enable.sasl.oauthbearer.unsecure.jwt"] = True
        config["sasl.oauthbearer.config"] = f"principal={name}"
    elif spec.sasl is not None:
        config["sasl.mechanism"] = spec.sasl
        config["sasl.username"] = name
        config["sasl.password"] = spec.users[name]
    return config


def site_yaml(spec: KafkaSpec, bootstrap: str, directory: Path, user: str | None) -> dict[str, Any]:
    """The site's entry in isthmus.yaml, with only the keys that apply."""
    entry: dict[str, Any] = {"bootstrap": bootstrap.split(",")}
    name = _known_user(spec, user) if spec.authenticated else ""
    if spec.tls:
        files = certificates(directory)
        entry["tls"] = {"ca": str(files.authority)}
        if spec.mutual_tls:
            entry["tls"]["certificate"] = str(files.user_certificate(name))
            entry["tls"]["key"] = str(files.user_key(name))
    if spec.sasl is not None:
        secret = {"file": str(_secret_path(directory, name))}
        if spec.sasl == "OAUTHBEARER":
            entry["sasl"] = {"mechanism": spec.sasl, "token": secret}
        else:
            entry["sasl"] = {"mechanism": spec.sasl, "username": name, "password": secret}
    return entry


def _known_user(spec: KafkaSpec, user: str | None) -> str:
    name = next(iter(spec.users)) if user is None else user
    if name not in spec.users:
        known = ", ".join(spec.users)
        raise SandboxError(f"Sandbox site {spec.name!r} knows no user {name!r}; it knows {known}.")
    return name


def _secret_path(directory: Path, user: str) -> Path:
    return directory / "secrets" / user


def _unsigned_token(user: str) -> str:
    """A JSON web token without a signature, as the broker's test handler takes it."""
    now = int(time.time())
    header = {"alg": "none"}
    claims = {"sub": user, "iat": now, "exp": now + TOKEN_SECONDS}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)]
    return ".".join([*parts, ""])
