"""Connections for verbs that talk to sites: on one loop, closed at the end, errors explained."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import kafka.errors as kerrors

from isthmus.config import Site
from isthmus.kafka.cluster import Cluster, whose
from isthmus.kafka.loop import Loop


@contextlib.contextmanager
def connected(*sites: Site, timeout: float = 10.0, patience: float = 2.0) -> Iterator[list[Cluster]]:
    """Clusters of these sites. A plain failure to connect is not tried again for long: somebody waits for the answer."""
    loop = Loop()
    clusters = [Cluster(site, loop, "isthmus-cli") for site in sites]
    try:
        for cluster in clusters:
            loop.run(cluster.connect, timeout, patience)
        yield clusters
    except kerrors.KafkaError as error:
        raise whose(error, *clusters).explain(error) from error
    finally:
        for cluster in clusters:
            cluster.close()
        loop.close()
