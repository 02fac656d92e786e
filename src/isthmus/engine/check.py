"""Judging a configuration against the real sites: addresses, credentials, registries, identities, rights, names.

Invariant: reads only; every problem of every site and link is found in one go, and placed where the file says it. All sites are asked at once: several
that are silent cost no more time than one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import kafka.errors as kerrors

from isthmus.config import Config, Link, Site
from isthmus.config.mistakes import Problem
from isthmus.control import answers
from isthmus.control.ends import Ends
from isthmus.control.needs import lacking
from isthmus.control.registry import RegistryClient, path
from isthmus.control.rights import command_of, is_restricted, without_overruled
from isthmus.control.topics import nothing_found
from isthmus.engine.plan import discover
from isthmus.errors import AuthenticationFailed, ConfigError, IsthmusError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.features import unfit
from isthmus.kafka.loop import Loop, gather
from isthmus.rules import compile_rules

# Where it is missing, defaults are assumed.
OPTIONAL = "DESCRIBE_CONFIGS"


def check_live(config: Config, timeout: float = 10.0, patience: float = 2.0) -> list[Problem]:
    """What is wrong when the sites are asked."""
    loop = Loop()
    clusters = {name: Cluster(site, loop, "isthmus-check") for name, site in config.sites.items()}
    problems: list[Problem] = []
    asking = ThreadPoolExecutor(max(1, len(clusters)), "check")
    try:
        registries = {n: asking.submit(_check_registry, site, timeout) for n, site in config.sites.items()}
        silent: dict[str, IsthmusError] = loop.run(_connect, clusters, timeout, patience)
        for name, site in config.sites.items():
            problems += registries[name].result()
            if (error := silent.get(name)) is not None:
                key = "sasl" if isinstance(error, AuthenticationFailed) else "bootstrap"
                problems.append(Problem(("sites", name, key), error.message))
                clusters.pop(name).close()
            elif site.cluster_id and clusters[name].cluster_id != site.cluster_id:
                found = f"the site answers as cluster {clusters[name].cluster_id}"
                problems.append(Problem(("sites", name, "cluster_id"), found, "was it rebuilt?"))
        for link in config.links.values():
            problems += _check_link(link, clusters)
            problems += _check_rights(config, link, clusters)
    finally:
        asking.shutdown(wait=False, cancel_futures=True)
        for cluster in clusters.values():
            cluster.close()
        loop.close()
    return problems


async def _connect(clusters: dict[str, Cluster], timeout: float, patience: float) -> dict[str, IsthmusError]:
    """Reach all sites at once; those that cannot be reached, and why."""
    silent: dict[str, IsthmusError] = {}

    async def reach(name: str, cluster: Cluster) -> None:
        try:
            await cluster.connect(timeout, patience)
        except IsthmusError as error:
            silent[name] = error

    await gather([cluster.loop.spawn(reach(name, cluster)) for name, cluster in clusters.items()])
    return silent


def _check_registry(site: Site, timeout: float) -> list[Problem]:
    if site.registry is None:
        return []
    patience = {"timeout": min(timeout, site.registry.timeout), "retry_for": min(timeout, site.registry.retry_for)}
    client = None
    try:
        client = RegistryClient(site.registry.model_copy(update=patience), site.name)
        client.get(path("subjects"), answers.names)
    except IsthmusError as error:
        return [Problem(("sites", site.name, "registry"), error.message)]
    finally:
        if client is not None:
            client.close()
    return []


def _check_rights(config: Config, link: Link, clusters: dict[str, Cluster]) -> list[Problem]:
    """Rights that the link lacks; of those that a site does not tell, a warning."""
    at, source, target = ("links", link.name), clusters.get(link.source), clusters.get(link.target)
    if source is None or target is None or source.cluster_id == target.cluster_id:
        return []
    try:
        guarded = {cluster.site.name for cluster in (source, target) if cluster.call(is_restricted, cluster)}
        if not guarded:
            return []
        with Ends.of(config, link) as ends:
            missing, untold = ends.loop.run(lacking, ends)
            ends.link = _records_only(link)
            needed, _ = ends.loop.run(lacking, ends)
    except (IsthmusError, kerrors.KafkaError, OSError) as error:
        told = error.message if isinstance(error, IsthmusError) else str(error) or type(error).__name__
        return [Problem(at, f"its rights could not be checked: {told}", warning=True, at_key=True)]
    found = []
    for site, key in ((link.source, "from"), (link.target, "to")):
        for needs, words in (
            (missing, "a right is missing"),
            (untold, "the site does not tell whether we have a right"),
        ):
            here = without_overruled(need for need in needs if site in guarded and need.startswith(f"site {site}: "))
            # Without what is optional, or what only keeps resources in step, records are copied all the same.
            certain = {need for need in needed if OPTIONAL not in need} if needs is missing else set()
            found += [
                Problem((*at, key), f"{words}: {need}", command_of(need), warning=need not in certain) for need in here
            ]
    return found


def _records_only(link: Link) -> Link:
    """The link without what it keeps in step besides records."""
    rooms = {name: getattr(link.sync, name) for name in ("configs", "acls", "groups", "schemas")}
    off = {name: room.model_copy(update={"enabled": False}) for name, room in rooms.items()}
    return link.model_copy(update={"sync": link.sync.model_copy(update=off)})


def _check_link(link: Link, clusters: dict[str, Cluster]) -> list[Problem]:
    at = ("links", link.name)
    problems: list[Problem] = []
    try:
        compile_rules(link)
    except ConfigError as error:
        problems.append(Problem((*at, "rules"), error.message))
    source, target = clusters.get(link.source), clusters.get(link.target)
    if source and target and source.cluster_id and source.cluster_id == target.cluster_id:
        words = f"sites {link.source} and {link.target} are one cluster ({source.cluster_id})"
        problems.append(Problem((*at, "to"), words, "a link to itself would copy its own copies for ever"))
    if (missing := unfit(source, target, link.delivery == "exactly-once")) is not None:
        key, words, hint = missing
        problems.append(Problem((*at, key), words, hint))
    if source is None:
        return problems
    try:
        topics = source.call(discover, source, link)
        for number, name in enumerate(link.topics.include):
            if not name.startswith("/") and name not in topics and link.topics.matches(name):
                words = f"{name} does not exist at site {link.source}, or we may not describe it"
                hint = "grant ALLOW DESCRIBE and READ on it, or correct the name"
                problems.append(Problem((*at, "topics", "include", number), words, hint))
        problems += [Problem((*at, "rename"), topic.problem) for topic in topics.values() if topic.problem]
        if not topics and not problems:
            nothing = source.call(nothing_found, source, link)
            if nothing.amiss:
                problems.append(Problem((*at, "topics"), nothing.words, warning=True))
    except ConfigError as error:
        problems.append(Problem((*at, "rename"), error.message))
    except kerrors.KafkaError as error:
        problems.append(Problem((*at, "from"), source.explain(error, "listing topics").message))
    return problems
