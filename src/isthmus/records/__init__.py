"""Record batches: raw bytes <-> columns <-> Arrow, by compiled kernels.

Invariant: importing this package compiles nothing; the first use of one of its names does, or loads what
was compiled before.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.records.arrow import decode, from_arrow, to_arrow
    from isthmus.records.model import Records
    from isthmus.records.outgoing import Outgoing, stamp
    from isthmus.records.rule import Rule
    from isthmus.records.transcode import Copied, Transcoder

__all__ = [
    "Copied",
    "Outgoing",
    "Records",
    "Rule",
    "Transcoder",
    "decode",
    "from_arrow",
    "stamp",
    "to_arrow",
]

_HOMES = {
    "Copied": "transcode",
    "Outgoing": "outgoing",
    "Records": "model",
    "Rule": "rule",
    "Transcoder": "transcode",
    "decode": "arrow",
    "from_arrow": "arrow",
    "stamp": "outgoing",
    "to_arrow": "arrow",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
