"""Jars that run on people's machines are those that were tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.errors import SandboxError
from isthmus.sandbox.jars import DEFAULT_REGISTRY, kafka_jars, pinned, refuse_others, registry_jars
from isthmus.sandbox.spec import DEFAULT_KAFKA


def test_what_is_fetched_by_default_is_pinned() -> None:
    assert {kafka_jars(DEFAULT_KAFKA).name, registry_jars(DEFAULT_REGISTRY).name} <= pinned().keys()


def test_a_file_that_is_changed_missing_or_new_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, other = tmp_path / "good.jar", tmp_path / "other.jar"
    good.write_bytes(b"good")
    digest = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
    monkeypatch.setattr("isthmus.sandbox.jars.pinned", lambda: {"set": {"good.jar": digest}})
    refuse_others("set", tmp_path)
    refuse_others("another version", tmp_path)
    other.write_bytes(b"")
    with pytest.raises(SandboxError, match=r"fetched as set is not what .* tested with: other\.jar"):
        refuse_others("set", tmp_path)
    other.unlink()
    good.write_bytes(b"changed")
    with pytest.raises(SandboxError, match=r"good\.jar"):
        refuse_others("set", tmp_path)
    good.unlink()
    with pytest.raises(SandboxError, match=r"good\.jar"):
        refuse_others("set", tmp_path)
