"""How Isthmus knows its own state again: the secret that signs it.

Invariant: a secret that is easy to guess is refused. Whoever has it can write state that every command believes.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from isthmus.config.base import Model
from isthmus.config.mistakes import Problem, several
from isthmus.config.secret import Secret
from isthmus.errors import ConfigError

SHORTEST = 32


class State(Model):
    """What Isthmus keeps in `_isthmus.` topics is signed, so that nobody else can write it (docs/security.md)."""

    secret: Secret = Field(description="Signs state and proves it: the same for all who run Isthmus at these sites.")
    previous: list[Secret] = Field(
        default=[],
        description="Secrets that were in use before. State that they have signed is still believed, and signed anew when it is written.",
    )

    @model_validator(mode="after")
    def _check(self) -> State:
        problems = [
            Problem(where, f"shorter than {SHORTEST} characters", "make one with `openssl rand -hex 32`")
            for where, secret in (
                (("secret",), self.secret),
                *((("previous", n), s) for n, s in enumerate(self.previous)),
            )
            if len(secret.reveal()) < SHORTEST
        ]
        if problems:
            raise several(problems)
        return self

    def keys(self) -> tuple[bytes, ...]:
        """The secrets as they are now, the one that signs first. A file may have been emptied since it was checked."""
        found = tuple(each.reveal().encode() for each in (self.secret, *self.previous))
        if any(len(each) < SHORTEST for each in found):
            raise ConfigError(
                f"state.secret or state.previous has become shorter than {SHORTEST} characters; was a file emptied?"
            )
        return found
