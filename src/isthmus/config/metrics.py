"""Where metrics are served, and to whom.

Invariant: nobody reads metrics without a token unless the file says that anybody may.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from isthmus.config.base import Model
from isthmus.config.mistakes import Problem, several, wrong
from isthmus.config.quantities import Switch
from isthmus.config.secret import Secret

_LISTEN = re.compile(r"(?:(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")
LOOPBACK = "127.0.0.1"


def _listen(value: Any) -> str:
    match = _LISTEN.fullmatch(str(value)) if isinstance(value, (str, int)) else None
    if match is None or int(match["port"]) > 65535:
        raise wrong("expected a port, or host:port")
    return f"{match['host'] or LOOPBACK}:{match['port']}"


Listen = Annotated[str, BeforeValidator(_listen), WithJsonSchema({"type": ["string", "integer"], "title": "port"})]


class Metrics(Model):
    """Metrics of `isthmus run` for Prometheus and the like (OpenMetrics), at `/metrics`."""

    listen: Listen = Field(
        description="Port, or host and port. A port alone is served on 127.0.0.1 only; 0 takes a free one."
    )
    token: Secret | None = Field(
        default=None, description="Readers show it as `Authorization: Bearer TOKEN`. Needed unless `open` is set."
    )
    open: Switch = Field(default=False, description="Serve metrics to whoever can connect, without a token.")
    redpanda_names: Switch = Field(
        default=False,
        description="Also under the names of Redpanda's migrator (`redpanda_migrator_*`, `redpanda_lag`), for dashboards that "
        "know those.",
    )

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @model_validator(mode="after")
    def _check(self) -> Metrics:
        if self.token is None and not self.open:
            raise several([Problem(("token",), "missing", "set a token, or `open: true` to do without", at_key=True)])
        return self
