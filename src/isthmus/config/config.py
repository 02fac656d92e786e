"""The whole of isthmus.yaml.

Invariant: in a ``Config`` every link joins two different, known sites, no two sites are one cluster by
their addresses, two links write one explicitly named topic only where both have a loop rule, and no record that the links can be
seen to pass goes round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, model_validator

from isthmus.config.base import Model
from isthmus.config.copies import copies_of, ways_of
from isthmus.config.link import Link, fill_origin
from isthmus.config.metrics import Metrics
from isthmus.config.mistakes import Loc, Problem, did_you_mean, several
from isthmus.config.names import is_loopback
from isthmus.config.rename import fill
from isthmus.config.site import Site
from isthmus.config.spark import MASTER, OPEN, Options, SparkOptions, open_master
from isthmus.config.state import State
from isthmus.config.ways import check_ways
from isthmus.errors import UsageError

_Member = TypeVar("_Member")
DEFAULT_SPARK: Options = {"spark.master": "local[*]"}


def _with_default_master(options: Options) -> Options:
    return {**DEFAULT_SPARK, **options}


class Config(Model):
    """What isthmus.yaml says."""

    sites: dict[str, Site] = Field(description="The clusters, by name.", min_length=1)
    links: dict[str, Link] = Field(default={}, description="The replications between them, by name.")
    spark: Annotated[SparkOptions, AfterValidator(_with_default_master)] = Field(
        default=DEFAULT_SPARK,
        description="Spark options for all links, such as `spark.master`. Without `spark.master` Spark runs "
        "inside the process on all cores (`local[*]`).",
        repr=False,
    )
    metrics: Metrics | None = Field(
        default=None, description="Where `isthmus run` serves metrics. Left out means nowhere."
    )
    state: State | None = Field(
        default=None,
        description="The secret that signs what Isthmus keeps at the sites. Left out means that it is not signed.",
    )

    def site(self, name: str) -> Site:
        """The site of this name, or a usage error that names the nearest one."""
        return _pick("site", name, self.sites)

    def link(self, name: str) -> Link:
        """The link of this name, or a usage error that names the nearest one."""
        return _pick("link", name, self.links)

    def spark_options(self, link: str) -> Options:
        """The Spark options of one link: the common ones, overridden by its own."""
        return {**self.spark, **self.link(link).spark}

    @model_validator(mode="before")
    @classmethod
    def _fill_names(cls, data: Any) -> Any:
        return fill_names(data)

    @model_validator(mode="after")
    def _check(self) -> Config:
        problems = check_config(
            {name: site.__dict__ for name, site in self.sites.items()},
            {name: link.__dict__ for name, link in self.links.items()},
            self.spark,
        )
        if problems:
            raise several(problems)
        ways = ways_of(link.__dict__ for link in self.links.values())
        for name, link in self.links.items():
            # A link may come from code, and belong to another file too: it is not changed.
            self.links[name] = link.model_copy(update={"topics": link.topics.refusing(copies_of(link.__dict__, ways))})
        if self.state is not None:
            for name, site in self.sites.items():
                self.sites[name] = site.signed_by(self.state)
        return self


def _pick(kind: str, name: str, known: Mapping[str, _Member]) -> _Member:
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f'there is no {kind} "{name}" in the configuration' + (f"; {hint}" if hint else ""))
    return known[name]


def fill_names(data: Any) -> Any:
    """Give each site and link its key as its name, and links the origin header that their loop rule needs."""
    if not isinstance(data, dict):
        return data
    filled = dict(data)
    for group in ("sites", "links"):
        members = data.get(group)
        if isinstance(members, dict):
            filled[group] = {
                key: fill_origin({**member, "name": key}) if isinstance(member, dict) else member
                for key, member in members.items()
            }
        elif members is None and group in data:
            filled[group] = {}  # a heading with nothing below it
    return filled


def check_config(
    sites: Mapping[str, Mapping[str, Any]], links: Mapping[str, Mapping[str, Any]], spark: Options | None
) -> list[Problem]:
    """What sites, links and Spark's options must satisfy together; takes the fields by name, as far as they are good."""
    clashes, ways = _check_destinations(links), check_ways(links)
    # One link, one word: a loop rule that it lacks, or the topic that stands in another one too.
    need_rule = {way.loc[1] for way in ways if way.loc[-1] == "loop"}
    clashing = {clash.loc[1] for clash in clashes}
    return [
        *_check_names(sites, links),
        *_check_ends(sites, links),
        *_check_addresses(sites),
        *(clash for clash in clashes if clash.loc[1] not in need_rule),
        *(way for way in ways if way.loc[-1] != "topics" or way.loc[1] not in clashing),
        *_check_registries(sites, links),
        *_check_masters(links, spark or {}),
        *_check_clear(sites),
    ]


def _check_names(sites: Mapping[str, Any], links: Mapping[str, Any]) -> list[Problem]:
    """Only code can get this wrong: the file never says the name twice."""
    return [
        Problem((group, key), f'named "{member["name"]}" inside', at_key=True)
        for group, members in (("sites", sites), ("links", links))
        for key, member in members.items()
        if member.get("name", key) != key
    ]


def _check_ends(sites: Mapping[str, Any], links: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    problems = []
    for name, link in links.items():
        for key, field in (("from", "source"), ("to", "target")):
            site = link.get(field)
            if site is not None and site not in sites:
                problems.append(Problem(("links", name, key), "there is no such site", did_you_mean(site, sites)))
        if link.get("source") is not None and link.get("source") == link.get("target"):
            problems.append(Problem(("links", name, "to"), 'the same site as "from"', "a link joins two sites"))
    return problems


def _check_addresses(sites: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    problems = []
    owners: dict[str, str] = {}
    for name, site in sites.items():
        for number, address in enumerate(site.get("bootstrap") or []):
            owner = owners.setdefault(address.casefold(), name)
            if owner != name:
                problems.append(
                    Problem(
                        ("sites", name, "bootstrap", number),
                        f'site "{owner}" has this address too',
                        "two sites are two clusters",
                    )
                )
    return problems


def _check_destinations(links: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    whole = {
        name: link for name, link in links.items() if {"name", "source", "target", "topics", "rename"} <= set(link)
    }
    problems = []
    writers: dict[tuple[str, str], str] = {}
    for name, link in whole.items():
        named = set(link["topics"].named())
        for number, topic in enumerate(link["topics"].include):
            if topic not in named:
                continue
            renamed = _destination(link, topic)
            writer = writers.setdefault((link["target"], renamed), name)
            if writer == name:
                # Another link between the same two sites may take the same topic by a pattern.
                writer = next((other for other, its in whole.items() if _takes(its, link, topic, renamed)), name)
            if writer != name and not (link.get("loop") and whole[writer].get("loop")):
                problems.append(
                    Problem(
                        ("links", name, "topics", "include", number),
                        f'link "{writer}" writes topic "{renamed}" at site "{link["target"]}" too',
                        "tell them apart with rename, or give both a loop rule",
                    )
                )
    return problems


def _takes(other: Mapping[str, Any], link: Mapping[str, Any], topic: str, renamed: str) -> bool:
    return (
        other is not link
        and (other["source"], other["target"]) == (link["source"], link["target"])
        and topic not in other["topics"].include
        and other["topics"].matches(topic)
        and _destination(other, topic) == renamed
    )


def _destination(link: Mapping[str, Any], topic: str) -> str:
    return fill(link["rename"], topic=topic, source=link["source"], target=link["target"], link=link["name"])


def _check_registries(sites: Mapping[str, Mapping[str, Any]], links: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Who copies schemas, or their ids in records, needs a registry at both ends."""
    problems = []
    for name, link in links.items():
        copies = "sync" in link and link["sync"].schemas.enabled
        listed = [
            n for n, rule in enumerate(link.get("rules") or []) if isinstance(rule, dict) and "schema_ids" in rule
        ]
        if listed and not copies and "sync" in link:
            hint = "the rule needs to know which schemas were copied: set sync.schemas"
            problems.append(Problem(("links", name, "rules", listed[0]), "this link copies no schemas", hint))
        if copies:
            problems += [
                Problem(("links", name, "sync", "schemas"), f'site "{site}" has no registry', "set its registry.url")
                for site in (str(link.get("source")), str(link.get("target")))
                if site in sites and "registry" in sites[site] and sites[site]["registry"] is None
            ]
    return problems


def _check_masters(links: Mapping[str, Mapping[str, Any]], spark: Options) -> list[Problem]:
    """Masters that work, with the sites' passwords in it, would reach unguarded."""
    found: dict[Loc, str] = {}
    for name, link in links.items():
        own: Options = link.get("spark") or {}
        where: Loc = ("links", name, "spark", MASTER) if MASTER in own else ("spark", MASTER)
        if missing := open_master({**spark, **own}):
            found.setdefault(where, missing)
    return [
        Problem(
            where,
            "the sites' passwords would travel to this master for anybody to read",
            f"set {missing}, or {OPEN}: true where the network is guarded otherwise",
        )
        for where, missing in found.items()
    ]


def _check_clear(sites: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Passwords and tokens that would travel for anybody to read."""
    problems: list[Problem] = []
    for name, site in sites.items():
        sasl, registry = site.get("sasl"), site.get("registry")
        away = not all(is_loopback(address.rpartition(":")[0]) for address in site.get("bootstrap") or ())
        if sasl and "tls" in site and site["tls"] is None and away and not sasl.in_the_clear and not sasl.hides:
            what = "token" if sasl.token is not None else "password"
            hint = "set tls, or sasl.in_the_clear: true where the network is guarded otherwise"
            problems.append(
                Problem(
                    ("sites", name, "sasl", "mechanism"), f"without TLS the {what} travels for anybody to read", hint
                )
            )
        if registry and registry.in_the_open and not registry.in_the_clear:
            hint = "use https, or in_the_clear: true where the network is guarded otherwise"
            problems.append(
                Problem(("sites", name, "registry", "url"), "over http the secret travels for anybody to read", hint)
            )
    return problems
