"""The header that says where a record was born.

Invariant: a link that stamps has one header and one style of value. What the bytes are is decided in ``isthmus.rules.born``; what
a record without the header means is decided by where it lies: it was born there.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from isthmus.config.base import Model
from isthmus.config.mistakes import wrong
from isthmus.config.scalar import as_switch

ORIGIN_HEADER = "isthmus-origin"

Style = Literal["site", "cluster", "provenance"]


class Origin(Model):
    """Where a record was born, as a header. It is added to records that have none of this name, and never changed."""

    header: str = Field(default=ORIGIN_HEADER, description="Key of the header.", min_length=1, max_length=249)
    value: Style = Field(
        default="site",
        description="What it holds: `site`, the name of the source site; `cluster`, the id of the source cluster; "
        "`provenance`, the text `CLUSTER_ID,TOPIC,MILLISECONDS` with the source topic and the time of the first copy.",
    )


def origin_input(value: Any) -> Any:
    """``origin: on`` is the usual header, ``off`` none, other text is the header's key."""
    switch = as_switch(value) if isinstance(value, str) else value
    if isinstance(switch, bool):
        return Origin() if switch else None
    if isinstance(value, str):
        if value == "":
            raise wrong("expected on, off, or a header's key", found=False)
        return {"header": value}
    return value
