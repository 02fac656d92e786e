"""A site's own certificate authority, and the certificates that it signs.

Invariant: files are made once for a site's directory and then kept, so clients' copies stay good across
restarts and wipes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Certificates:
    """PEM files in one directory."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def broker(self) -> Path:
        """Key and chain in one file, as Kafka wants its key store."""
        return self.directory / "broker.pem"

    def user_certificate(self, user: str) -> Path:
        return self.directory / f"user-{user}.pem"

    def user_key(self, user: str) -> Path:
        return self.directory / f"user-{user}.key"


def make_certificates(directory: Path, users: Iterable[str]) -> Certificates:
    """A certificate for the brokers and one for each user, whose common name is the user's."""
    files = Certificates(directory)
    if files.authority.exists():
        return files
    directory.mkdir(parents=True)
    directory.chmod(0o700)
    authority = trustme.CA()
    broker = authority.issue_cert("127.0.0.1", "localhost", common_name="broker")
    files.broker.write_bytes(_key(broker) + _chain(broker))
    for user in users:
        certificate = authority.issue_cert(f"{user}.sandbox", common_name=user)
        files.user_certificate(user).write_bytes(_chain(certificate))
        files.user_key(user).write_bytes(_key(certificate))
    authority.cert_pem.write_to_path(str(files.authority))  # last: says that the others are there
    return files


def _chain(certificate: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def _key(certificate: trustme.LeafCert) -> bytes:
    # Kafka reads PKCS #8 only.
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
