"""Metrics of a run: served for as long as it lasts, fed by whoever is shown the states of its links."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from isthmus.cli import output
from isthmus.config import Config
from isthmus.config.metrics import Metrics
from isthmus.errors import UsageError

if TYPE_CHECKING:
    from isthmus.engine.snapshot import LinkState

Show = Callable[[list["LinkState"]], None]


def chosen_metrics(config: Config, port: int | None) -> Metrics | None:
    """What the file says of metrics, with the port of the command line if there is one."""
    if port is None:
        return config.metrics
    if config.metrics is None:
        raise UsageError("--metrics: the configuration has no metrics: yet; add it with a token, or with open: true")
    host, _ = config.metrics.address
    return config.metrics.model_copy(update={"listen": f"{host}:{port}"})


@contextlib.contextmanager
def exporting(metrics: Metrics | None, show: Show) -> Iterator[Show]:
    """Serves metrics while it is open; what it yields is ``show``, and feeds them."""
    if metrics is None:
        yield show
        return
    from isthmus.web.metrics import Exporter
    from isthmus.web.server import MetricsServer

    exporter, token = Exporter(metrics.redpanda_names), metrics.token

    def both(states: list[LinkState]) -> None:
        exporter.take(states)
        show(states)

    with MetricsServer(metrics.address, token.reveal if token is not None else None, exporter.text) as server:
        output.note(f"metrics: http://{metrics.address[0]}:{server.port}/metrics")
        yield both
