"""A secret: a password, a key's passphrase, a token.

Invariant: it never prints. ``repr``, ``str``, formatting, JSON and ``model_dump`` all give ``********``;
only :meth:`Secret.reveal` gives the value. A secret from a file is read anew at each reveal, so a
rotated password or token is used by the next connection. Pickling resolves the value, because an
executor has neither the driver's environment nor, perhaps, its files; where the file does exist after
unpickling (one machine, or a mounted secret) it is still read anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from isthmus.config.mistakes import Problem, did_you_mean, several, wrong
from isthmus.config.paths import resolve, why_unreadable
from isthmus.errors import ConfigError

MASK = "********"
_REFERENCES = "{env: NAME} or {file: PATH}"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_Origin = Literal["text", "env", "file"]


class Secret:
    """``Secret("text")``, ``Secret.from_env("NAME")`` or ``Secret.from_file("path")``."""

    __slots__ = ("_name", "_origin", "_value")

    def __init__(self, value: str) -> None:
        self._origin: _Origin = "text"
        self._name = ""
        self._value: str | None = value

    @classmethod
    def from_env(cls, name: str) -> Secret:
        return cls._make("env", name, None)

    @classmethod
    def from_file(cls, path: str | Path) -> Secret:
        return cls._make("file", os.path.abspath(path), None)

    @classmethod
    def _make(cls, origin: _Origin, name: str, value: str | None) -> Secret:
        secret = cls.__new__(cls)
        secret._origin, secret._name, secret._value = origin, name, value
        return secret

    @property
    def file(self) -> str | None:
        """The path that is read at each reveal, if there is one."""
        return self._name if self._origin == "file" else None

    @property
    def plain(self) -> bool:
        """Whether the value itself was given, and not where it is."""
        return self._origin == "text"

    def reveal(self) -> str:
        """The value, read now."""
        if self._origin == "file":
            try:
                return Path(self._name).read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                if self._value is None:
                    raise ConfigError(f"secret file {self._name}: {why_unreadable(error)}") from None
        elif self._value is None:
            value = os.environ.get(self._name)
            if value is None:
                raise ConfigError(f"secret: variable {self._name} is not set")
            return value
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret._make, (self._origin, self._name, self.reveal())

    # A secret does not change, so a copy is itself (and copying must not read files, as pickling does).
    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str]:
        return (self._origin, self._name if self._origin != "text" else str(self._value))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda _: MASK, when_used="always"),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        def reference(key: str, description: str) -> dict[str, Any]:
            return {
                "type": "object",
                "properties": {key: {"type": "string", "description": description}},
                "required": [key],
                "additionalProperties": False,
            }

        return {
            "title": "secret",
            "anyOf": [
                {"type": "string", "minLength": 1},
                reference("env", "Name of the environment variable that holds the value."),
                reference("file", "File that holds the value; read anew for each connection."),
            ],
        }

    @classmethod
    def of(cls, value: Any, info: ValidationInfo) -> Secret:
        """A secret that stands where other things may stand too."""
        return cls._validate(value, info)

    @classmethod
    def _validate(cls, value: Any, info: ValidationInfo) -> Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            if value == "":
                raise wrong("the secret is empty", found=False)
            return cls(str(value))
        if not isinstance(value, dict):
            raise wrong(f"expected text, {_REFERENCES}", found=False)
        unknown = [
            Problem((key,), "unknown key", did_you_mean(key, ("env", "file")), at_key=True)
            for key in value
            if key not in ("env", "file")
        ]
        if unknown:
            raise several(unknown)
        if len(value) != 1:
            raise wrong(f"expected one of {_REFERENCES}", found=False)
        ((key, name),) = value.items()
        if not isinstance(name, str) or name == "":
            raise wrong(f"expected text, {_REFERENCES}", found=False, at=(key,))
        if key == "env":
            return cls._checked_env(str(name))
        return cls._checked_file(str(name), info)

    @classmethod
    def _checked_env(cls, name: str) -> Secret:
        # Only what looks like a variable is repeated: somebody may have put the secret itself here.
        shown = f"variable {name}" if _VARIABLE.fullmatch(name) else "the variable named here"
        if name not in os.environ:
            raise wrong(f"{shown} is not set", found=False, at=("env",))
        if os.environ[name] == "":
            raise wrong(f"{shown} is empty", found=False, at=("env",))
        return cls.from_env(name)

    @classmethod
    def _checked_file(cls, name: str, info: ValidationInfo) -> Secret:
        path = resolve(name, info)
        try:
            text = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise wrong(f"cannot read {path}: {why_unreadable(error)}", found=False, at=("file",)) from None
        if text == "":
            raise wrong(f"{path} is empty", found=False, at=("file",))
        return cls.from_file(path)
