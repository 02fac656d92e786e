"""Files that the configuration names, and how they travel to other machines.

Invariant: a relative path means relative to the configuration file, wherever the process runs. A
``LocalFile`` is always the path of a readable file on the machine that holds it: pickling carries the
content along, and unpickling where the path does not exist writes it to a private temporary file,
because OpenSSL reads certificates and keys from files only.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from isthmus.config.mistakes import wrong
from isthmus.errors import ConfigError

# The key under which the loader passes the configuration file's directory to the validators.
BASE = "base"

_landing: Path | None = None


def resolve(name: str, info: ValidationInfo) -> Path:
    """The absolute path that ``name`` means in the configuration file."""
    context = info.context if isinstance(info.context, dict) else {}
    return Path(os.path.abspath(Path(context.get(BASE, ".")) / Path(name).expanduser()))


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """The reason in words, without the path and without a byte of the content."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return (error.strerror or type(error).__name__).lower()


class LocalFile(str):
    """The absolute path of a PEM file."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            content = Path(self).read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self!s}: {why_unreadable(error)}") from None
        return _arrive, (str(self), content)

    def __copy__(self) -> LocalFile:
        return self

    def __deepcopy__(self, memo: Any) -> LocalFile:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "title": "file"}

    @classmethod
    def _validate(cls, value: Any, info: ValidationInfo) -> LocalFile:
        if isinstance(value, Path):
            value = str(value)
        if not isinstance(value, str) or value == "":
            raise wrong("expected the path of a PEM file")
        path = resolve(value, info)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise wrong(f"cannot read {path}: {why_unreadable(error)}", found=False) from None
        if b"-----BEGIN " not in content:
            raise wrong(
                f"{path} is not a PEM file",
                "Java keystores convert with keytool and openssl pkcs12",
                found=False,
            )
        return cls(path)


def _arrive(path: str, content: bytes) -> LocalFile:
    if os.access(path, os.R_OK):
        return LocalFile(path)
    global _landing
    if _landing is None or not _landing.is_dir():
        _landing = Path(tempfile.mkdtemp(prefix="isthmus-"))  # readable by this user only
        atexit.register(shutil.rmtree, _landing, ignore_errors=True)
    # Named by content, so that many tasks of one worker share one file.
    landed = _landing / f"{hashlib.sha256(content).hexdigest()}.pem"
    if not landed.exists():
        partial = landed.with_suffix(f".{os.getpid()}")
        partial.touch(mode=0o600)
        partial.write_bytes(content)
        partial.replace(landed)
    return LocalFile(landed)
