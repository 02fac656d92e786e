"""Proof that a record of a state table was written by somebody who has the secret (``state.secret``).

Invariants:
- a proof is about one place: cluster, topic and key. The same record anywhere else proves nothing;
- records of a key are numbered, and the highest number counts, wherever it stands in the log: an old record that somebody writes again
  changes nothing while a newer one is there;
- that a key was forgotten is a signed record too: anybody can write a tombstone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

FORMAT = 1
# The member by which a signed record is told from one that is not.
MARK = "isthmus-signed"


class Place(NamedTuple):
    """Where a record stands."""

    cluster: str
    topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Signed:
    """A record that is proved: its number, and its body as JSON (``None``: forgotten)."""

    number: int
    body: str | None


def sign(key: bytes, place: Place, record: Signed) -> bytes:
    envelope = {MARK: FORMAT, "number": record.number, "body": record.body, "proof": _proof(key, place, record)}
    return json.dumps(envelope, separators=(",", ":")).encode()


def opened(keys: Sequence[bytes], place: Place, raw: bytes | None) -> tuple[Signed | None, int | None]:
    """What a record says that is signed (``None`` if it does not even say so), and which of these secrets has signed it for this place, if one has."""
    envelope = _envelope(raw)
    if envelope is None:
        return None, None
    number, body = envelope.get("number"), envelope.get("body")
    if type(number) is not int or not isinstance(body, str | None):
        return None, None
    record, given = Signed(number, body), str(envelope.get("proof")).encode("utf-8", "replace")
    proofs = (hmac.compare_digest(_proof(key, place, record).encode(), given) for key in keys)
    return record, next((which for which, proved in enumerate(proofs) if proved), None)


def _envelope(raw: bytes | None) -> dict[str, object] | None:
    if raw is None or MARK.encode() not in raw:
        return None
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get(MARK) == FORMAT else None


def _proof(key: bytes, place: Place, record: Signed) -> str:
    # Each part with its length: no two records give the same bytes.
    parts = [str(FORMAT), *place, str(record.number), "" if record.body is None else f"={record.body}"]
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in raw)
    return hmac.new(key, message, hashlib.sha256).hexdigest()
