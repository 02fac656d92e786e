"""Follows records along the links of a file, before anything runs: none may reach a site twice, or come home.

Invariants:
- what is followed are names that topics may have: those that links include by name, and examples of what their expressions match, alone and
  two of them put together. So what is found can happen; what no example shows is found when the sites' own topics are followed;
- a link passes a record on as its rules would: by name (``topics``, and copies that a loop rule refuses), and by the origin header that the
  record has by then. Overrides do not count: they are exceptions. Links that re-seed a site (``invert``) are left out;
- each mistake stands at the one link that has to change, with both ways and the rule to set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isthmus.config.copies import Copies, copies_of, ways_of
from isthmus.config.examples import examples
from isthmus.config.loop import Loop
from isthmus.config.mistakes import Problem
from isthmus.config.origin import Origin
from isthmus.config.patterns import is_pattern, matches_any
from isthmus.config.rename import fill

#: So many examples of each expression are put together with those of the others.
_JOINED = 2
_NEEDED = ("name", "source", "target", "topics", "rename", "origin", "loop", "rules")
_HINTS = {
    "returning": "set loop: returning",
    "foreign": "set loop: foreign: a site of a mesh, and a spoke of a hub, sends only what was born there",
}


class Stop(NamedTuple):
    """Where a record is: at a site, in a topic, with origins by header, after these links."""

    site: str
    topic: str
    origins: Mapping[str, str]
    path: tuple[str, ...]


#: A stop, and the one before it; none where the record was born.
Arrival = tuple[Stop, Stop | None]


class _Found(NamedTuple):
    """A mistake of one link: under which key, what happens, what to do, and which rule it needs."""

    key: str
    text: str
    hint: str
    needed: str


@dataclass(slots=True)
class _Step:
    """A link, as the walk needs it."""

    name: str
    source: str
    target: str
    template: str
    origin: Origin | None
    loop: Loop | None
    names: frozenset[str]
    patterns: list[str]
    exclude: list[str]
    copies: Copies | None = None
    _takes: dict[str, bool] = field(default_factory=dict)

    def takes(self, topic: str) -> bool:
        """Whether the link copies the topic of this name."""
        known = self._takes.get(topic)
        if known is None:
            # An expression of which there is no example stands for itself.
            known = topic in self.names or topic in self.patterns
            if not known and matches_any(self.patterns, topic):
                known = self.copies is None or self.copies.came_from(topic) is None
            known = known and not matches_any(self.exclude, topic)
            self._takes[topic] = known
        return known

    def renamed(self, topic: str) -> str:
        return fill(self.template, topic=topic, source=self.source, target=self.target, link=self.name)

    def leaves_out(self, stop: Stop, born_in: str) -> bool:
        """Whether the loop rule leaves the record out."""
        if self.loop is None or self.origin is None:
            return False
        origin = stop.origins.get(self.origin.header)
        if origin is None or self.loop.drop == "foreign":
            return origin is not None
        if self.loop.same_topic:
            birth_topic = born_in if self.origin.value == "provenance" else stop.topic
            if self.renamed(stop.topic) != birth_topic:
                return False
        return origin in (self.target, self.source)

    def passed(self, stop: Stop) -> Stop:
        """Where the record is after this link."""
        origins = stop.origins
        if self.origin is not None and self.origin.header not in origins:
            origins = {**origins, self.origin.header: self.source}
        return Stop(self.target, self.renamed(stop.topic), origins, (*stop.path, self.name))


def check_ways(links: Mapping[str, Mapping[str, Any]], topics: Iterable[str] = ()) -> list[Problem]:
    """What would go round, or arrive twice; and links that would not understand each other's origins.

    ``topics`` are names to follow besides those that the links give away themselves.
    """
    whole = {
        name: link for name, link in links.items() if set(_NEEDED) <= set(link) and link["source"] != link["target"]
    }
    return [*_check_styles(whole), *_Walk(_steps(whole)).problems(topics)]


def depends_on_names(links: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether something might go round if expressions matched more than their examples show. Links with loop rules, and links that
    lead one way, leave no doubt."""
    steps = _steps(links)
    for step in steps.values():
        if step.patterns:
            step.patterns, step.exclude, step.copies = ["/.*/"], [], None
    return bool(_Walk(steps).problems(()))


def _steps(links: Mapping[str, Mapping[str, Any]]) -> dict[str, _Step]:
    ways = ways_of(links.values())
    steps = {}
    for name, link in links.items():
        if any(isinstance(rule, dict) and "invert" in rule for rule in link["rules"]):
            continue
        topics = link["topics"]
        steps[name] = _Step(
            name,
            link["source"],
            link["target"],
            link["rename"],
            link["origin"],
            link["loop"],
            frozenset(entry for entry in topics.include if not is_pattern(entry)),
            [entry for entry in topics.include if is_pattern(entry)],
            topics.exclude,
            copies_of(link, ways),
        )
    return steps


class _Walk:
    """The walks from every site, and which links have to change."""

    def __init__(self, steps: dict[str, _Step]) -> None:
        self._steps = steps
        self._leaving: dict[str, list[_Step]] = {}
        for step in steps.values():
            self._leaving.setdefault(step.source, []).append(step)
        # By link: the rule that it needs, and what happens without.
        self._found: dict[str, _Found] = {}

    def problems(self, topics: Iterable[str]) -> list[Problem]:
        """One problem for each link that has to change."""
        patterns = {entry: examples(entry) for step in self._steps.values() for entry in step.patterns}
        shown = [name for found in patterns.values() for name in found[:_JOINED]]
        names = [
            *(name for step in self._steps.values() for name in sorted(step.names)),
            *(name for entry, found in patterns.items() for name in found or (entry,)),
            # What begins as one expression wants it may end as another one does.
            *(one + other for one in shown for other in shown),
            *topics,
        ]
        for site in self._leaving:
            for name in dict.fromkeys(names):
                if any(step.takes(name) for step in self._leaving[site]):
                    self._follow(site, name)
        return [
            Problem(("links", name, found.key), found.text, found.hint, at_key=True)
            for name, found in self._found.items()
        ]

    def _follow(self, site: str, topic: str) -> None:
        """Follow a record that is born at a site."""
        start = Stop(site, topic, {}, ())
        reached: dict[str, list[Arrival]] = {site: [(start, None)]}
        todo = deque([start])
        while todo:
            stop = todo.popleft()
            for step in self._onward(stop, topic):
                there = step.passed(stop)
                arrivals = reached.setdefault(there.site, [])
                if self._is_wrong(step, stop, there, arrivals):
                    self._blame(step, start, stop, there, arrivals[0][0])
                    continue
                arrivals.append((there, stop))
                todo.append(there)

    def _onward(self, stop: Stop, born_in: str) -> Iterator[_Step]:
        for step in self._leaving.get(stop.site, ()):
            if step.takes(stop.topic) and not step.leaves_out(stop, born_in):
                yield step

    def _sites(self, start: Stop, stop: Stop) -> list[str]:
        """The sites that a record has seen, in order."""
        return [start.site, *(self._steps[name].target for name in stop.path)]

    def _is_wrong(self, step: _Step, stop: Stop, there: Stop, arrivals: list[Arrival]) -> bool:
        if step.name in stop.path:
            return True  # it would go round for ever
        if any(other.topic == there.topic for other, _ in arrivals):
            return True
        if step.loop is not None and step.loop.same_topic:
            return False  # under another name it may come, says the link
        # Several links side by side may make several topics of one.
        return any(before is None or before[:2] != stop[:2] for _, before in arrivals)

    def _blame(self, step: _Step, start: Stop, stop: Stop, there: Stop, first: Stop) -> None:
        """Say what happens, at the link that has to change."""
        home, again = there.site == start.site, there.site in self._sites(start, stop)
        what = f'what is born at site "{start.site}" in topic "{start.topic}"'
        if home:
            text = f"{what} comes home: {self._told(start, there)}"
        elif again:
            text = f'{what} reaches site "{there.site}" again: {self._told(start, there)}'
        else:
            text = (
                f'{what} reaches site "{there.site}" twice: {self._told(start, first)}, and {self._told(start, there)}'
            )
        needed = "returning" if home else "foreign"
        if first.path[:-1] == there.path[:-1] and not again:  # two links side by side: no rule helps
            self._note(step.name, "", text, "tell them apart with rename, or exclude it from one of them", "topics")
            return
        has = step.loop.drop if step.loop else None
        if has is None or (needed == "foreign" and has == "returning"):
            self._note(step.name, needed, text, _HINTS[needed])
            return
        if step.loop is not None and step.loop.same_topic:
            self._note(step.name, needed, text, "set same_topic: off, or exclude its copies")
            return
        # The rule is there and does not see where the record was born: the first link has not told it.
        stamp, header = self._steps[there.path[0]], step.origin.header if step.origin else ""
        if stamp.origin is None:
            self._note(stamp.name, needed, text, f'link "{step.name}" cannot tell: set loop, or at least origin')
        else:
            hint = f'link "{step.name}" looks at header "{header}", this one stamps "{stamp.origin.header}"'
            self._note(stamp.name, needed, text, hint, key="origin")

    def _note(self, link: str, needed: str, text: str, hint: str, key: str = "loop") -> None:
        """One problem a link, of the strongest rule that it needs."""
        if link not in self._found or (needed == "foreign" and self._found[link].needed == "returning"):
            self._found[link] = _Found(key, text, hint, needed)

    def _told(self, start: Stop, stop: Stop) -> str:
        links = ", ".join(stop.path)
        return f"{' -> '.join(self._sites(start, stop))} ({'link' if len(stop.path) == 1 else 'links'} {links})"


def _check_styles(links: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Links that meet at a site have to mean the same by the same header."""
    problems = []
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for name, link in links.items():
        origin = link["origin"]
        if origin is None:
            continue
        for site in (link["source"], link["target"]):
            other, style = seen.setdefault((site, origin.header), (name, origin.value))
            if style != origin.value:
                words = f'link "{other}" at site "{site}" stamps header "{origin.header}" with value: {style}'
                problems.append(Problem(("links", name, "origin"), words, "stamp alike, or use another header"))
                break
    return problems
