"""What a rule is, as the transcoder sees it.

Invariant: a rule is a pure function that pickles. It is called once for a batch of records, never for
one record.
"""

from __future__ import annotations

from typing import Protocol

from isthmus.records.model import Records


class Rule(Protocol):
    """One step between fetch and produce."""

    @property
    def touches_records(self) -> bool:
        """False promises that ``apply`` returns what it was given, so batches may pass unopened."""
        ...

    def topic(self, name: str) -> str:
        """The destination topic of a source topic."""
        ...

    def apply(self, records: Records) -> Records:
        """The records to write."""
        ...
