"""Records that would go round, or arrive twice, are found in the file; names that say they are copies are refused."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from isthmus.config import Link, loads
from isthmus.config.copies import Copies, Way, unfilled
from isthmus.config.examples import examples
from isthmus.config.ways import check_ways, depends_on_names
from isthmus.errors import ConfigError

EVERYTHING = "[/.*/]"


def text_of(*links: str) -> str:
    """A file of links, each as ``from to loop``, then keys of its own."""
    ends = [link.split()[:2] for link in links]
    lines = ["sites:", *(f"  {site}: {{bootstrap: '{site}:9092'}}" for site in sorted({s for e in ends for s in e}))]
    lines.append("links:")
    names = []
    for link in links:
        source, target, loop, *rest = link.split(maxsplit=3)
        name = f"{source}{target}" + "2" * names.count(source + target)
        names.append(source + target)
        keys = ", ".join(["topics: [x]"] * ("topics:" not in link) + rest)
        lines.append(f"  {name}: {{from: {source}, to: {target}, loop: {loop}, {keys}}}")
    return "\n".join(lines)


def told(*links: str) -> list[str]:
    """The mistakes of a file, by link: ``ab.loop: ...``."""
    try:
        loads(text_of(*links))
    except ConfigError as error:
        return [f"{m['path'].removeprefix('links.')}: {m['problem']}; {m['hint']}" for m in error.mistakes]
    return []


def needed(*links: str) -> dict[str, str]:
    """Which rule each link is told to set."""
    return {
        line.partition(".")[0]: "foreign" if "set loop: foreign" in line else "returning"
        for line in told(*links)
        if "set loop: " in line
    }


MESH = [(one, other) for one in "abc" for other in "abc" if one != other]
SPOKES = [(spoke, "h") for spoke in "abc"]
FROM_HUB = [("h", spoke) for spoke in "abc"]


def linked(ends: list[tuple[str, str]], loop: str) -> list[str]:
    return [f"{source} {target} {loop}" for source, target in ends]


def test_a_pair() -> None:
    assert told("a b off", "b a off") == [
        'ab.loop: what is born at site "b" in topic "x" comes home: b -> a -> b (links ba, ab); set loop: returning',
        'ba.loop: what is born at site "a" in topic "x" comes home: a -> b -> a (links ab, ba); set loop: returning',
    ]
    assert told("a b returning", "b a returning") == []
    assert told("a b foreign", "b a foreign") == []
    assert told("a b off", "b a returning") == [
        'ab.loop: what is born at site "a" in topic "x" comes home: a -> b -> a (links ab, ba); link "ba" cannot tell: '
        "set loop, or at least origin"
    ]
    assert told("a b off origin: on", "b a returning") == [
        'ab.loop: what is born at site "b" in topic "x" comes home: b -> a -> b (links ba, ab); set loop: returning'
    ]


def test_a_ring() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    assert needed(*linked(ring, "off")) == dict.fromkeys(("ab", "bc", "ca"), "returning")
    assert told(*linked(ring, "returning")) == []


def test_a_mesh() -> None:
    every = {source + target: "foreign" for source, target in MESH}
    assert needed(*linked(MESH, "off")) == every
    assert needed(*linked(MESH, "returning")) == every
    assert told(*linked(MESH, "foreign")) == []
    assert (
        'bc.loop: what is born at site "a" in topic "x" reaches site "c" twice: a -> c (link ac), and a -> b -> c (links ab, bc);'
        " set loop: foreign: a site of a mesh, and a spoke of a hub, sends only what was born there"
    ) in told(*linked(MESH, "returning"))


def test_a_hub() -> None:
    spokes = {spoke + "h": "foreign" for spoke in "abc"}
    assert needed(*linked(SPOKES + FROM_HUB, "off")) == spokes | {"h" + spoke: "returning" for spoke in "abc"}
    assert needed(*linked(SPOKES + FROM_HUB, "returning")) == spokes
    assert told(*linked(SPOKES, "foreign"), *linked(FROM_HUB, "returning")) == []


def test_two_ways_to_one_site() -> None:
    assert told("a b off", "a c off", "b d off", "c d off") == [
        'cd.loop: what is born at site "a" in topic "x" reaches site "d" twice: a -> b -> d (links ab, bd), and a -> c -> d (links '
        "ac, cd); set loop: foreign: a site of a mesh, and a spoke of a hub, sends only what was born there"
    ]
    # Links side by side may make two topics of one, and no rule helps if they make one of it.
    assert told("a b returning", "a b returning rename: y") == []
    assert told("a b returning", "a b returning") == [
        'ab2.topics: what is born at site "a" in topic "x" reaches site "b" twice: a -> b (link ab), and a -> b (link ab2);'
        " tell them apart with rename, or exclude it from one of them"
    ]
    assert told("a b off", "a b off") == [
        'ab2.topics[0]: link "ab" writes topic "x" at site "b" too; tell them apart with rename, or give both a loop rule'
    ]
    assert told("a c returning", "b c returning") == []
    assert len(told("a c returning", "b c off")) == 1


@pytest.mark.parametrize(
    ("there", "back", "wrong"),
    [
        ("topics: [x, y]", "topics: [y, z]", True),
        ("topics: [x]", "topics: [y]", False),
        ("topics: [x]", "topics: ['/x|y/']", True),
        ("topics: [/.*/]", "topics: ['/orders[.]v[0-9]+/']", True),
        ("topics: [/.*/]", "topics: ['/(?!a).*/']", True),
        ("topics: {include: [/.*/], exclude: [x]}", "topics: [x]", False),
        ("topics: ['/dc1-.*/']", "topics: ['/dc2-.*/']", False),
        ("topics: ['/(dc1|dc2)-.*/']", "topics: ['/dc2-.*/']", True),
        ("topics: ['/orders-.*/']", "topics: ['/.*-eu/']", True),
        # An expression that has no example is compared as it stands.
        (r"topics: ['/(a)(b)\1\2/']", r"topics: ['/(a)(b)\1\2/']", True),
        ("topics: [x], rename: y", "topics: [y]", True),
        ("topics: [x], rename: y", "topics: [x]", True),
        ("topics: [x], rename: y", "topics: [z]", False),
        ("topics: [/.*/], rename: '{source}.{topic}'", "topics: [/.*/], rename: '{source}.{topic}'", True),
        ("topics: [x], rename: '{source}.{topic}'", "topics: [x], rename: '{source}.{topic}'", False),
    ],
)
def test_which_topics_meet(there: str, back: str, wrong: bool) -> None:
    assert bool(told(f"a b off {there}", f"b a off {back}")) is wrong
    assert told(f"a b returning {there}", f"b a returning {back}") == []


def test_origins_that_links_would_not_understand() -> None:
    assert told("a b returning origin: one", "b a returning origin: two") == [
        'ab.origin: what is born at site "a" in topic "x" comes home: a -> b -> a (links ab, ba); link "ba" looks at header "two",'
        ' this one stamps "one"',
        'ba.origin: what is born at site "b" in topic "x" comes home: b -> a -> b (links ba, ab); link "ab" looks at header "one",'
        ' this one stamps "two"',
    ]
    assert told("a b returning", "b c off origin: {value: cluster}") == [
        'bc.origin: link "ab" at site "b" stamps header "isthmus-origin" with value: site; stamp alike, or use another header'
    ]
    assert told("a b returning", "c d off origin: {value: cluster}") == []


def test_the_same_topic_only() -> None:
    both = '{"drop":"returning","same_topic":"on"}'
    assert told(f"a b {both}", f"b a {both}") == []
    # It may come home under another name, once; and what would grow for ever is known by its name.
    assert told(f"a b {both}", f"b a {both} rename: 'back.{{topic}}'") == []
    assert told(f"a b {both} topics: [/.*/]", f"b a {both} topics: [/.*/], rename: 'back.{{topic}}'") == []


def test_names_that_only_the_sites_know() -> None:
    def fields(*links: str) -> dict[str, dict[str, Any]]:
        return {name: link.__dict__ for name, link in loads(text_of(*links)).links.items()}

    hidden = fields(r"a b off topics: ['/(x)y\1/']", "b a off topics: ['/x[^x]x/']")
    assert check_ways(hidden, ["xax", "y"]) == []
    assert {problem.loc[1] for problem in check_ways(hidden, ["xyx"])} == {"ab", "ba"}
    assert depends_on_names(hidden)
    # No name can make these go round.
    everything = "topics: [/.*/]"
    assert not depends_on_names(fields(f"a b returning {everything}", f"b a returning {everything}"))
    assert not depends_on_names(fields(f"a b off {everything}", f"b c off {everything}"))
    assert not depends_on_names(fields("a b off topics: [x]", "b a off topics: [y]"))


def test_a_link_that_seeds_again_is_not_followed() -> None:
    assert told("a b off", "b a off topics: [x], rules: [{invert: {}}]") == []


# --- names --------------------------------------------------------------------------------------------


def topics(link: str, *links: str) -> Link:
    return loads(text_of(*links)).links[link]


def test_first_strategy_names_hold_the_site() -> None:
    there = topics("ab", "a b off topics: ['/dc1-.*/']", "b a off topics: ['/dc2-.*/']").topics
    assert [name for name in ("dc1-topic", "dc2-topic") if there.matches(name)] == ["dc1-topic"]


def test_second_strategy_copies_have_names_of_their_own() -> None:
    rest = "topics: [/.*/], rename: '{topic}.replica'"
    excluded = "topics: {include: [/.*/], exclude: ['/.*[.]replica/']}, rename: '{topic}.replica'"
    for links in ((f"a b returning {rest}", f"b a returning {rest}"), (f"a b off {excluded}", f"b a off {excluded}")):
        link = topics("ab", *links)
        assert [n for n in ("topic1", "topic2.replica") if link.topics.matches(n)] == ["topic1"]
        again = pickle.loads(pickle.dumps(link))
        assert again == link
        assert not again.topics.matches("topic2.replica")
    assert len(told(f"a b off {rest}", f"b a off {rest}")) == 2


def test_returning_refuses_what_came_from_the_destination_and_foreign_everything() -> None:
    rename = "topics: [/.*/], rename: '{source}.{topic}'"
    ring = [f"a b returning {rename}", f"b c returning {rename}", f"c a returning {rename}"]
    home = topics("ca", *ring)
    assert [n for n in ("x", "b.x", "b.a.x", "a.x") if home.topics.matches(n)] == ["x", "b.x", "a.x"]
    mesh = [f"{source} {target} foreign {rename}" for source, target in MESH]
    link = topics("ab", *mesh)
    assert [n for n in ("x", "a.x", "b.x", "c.x", "c.b.x") if link.topics.matches(n)] == ["x", "a.x"]
    # By way of a hub that keeps names.
    hub = [
        f"a h foreign {rename}",
        f"b h foreign {rename}",
        "h a returning topics: [/.*/]",
        "h b returning topics: [/.*/]",
    ]
    assert [n for n in ("x", "a.x", "b.x") if topics("ha", *hub).topics.matches(n)] == ["x", "b.x"]
    assert [n for n in ("x", "a.x", "b.x") if topics("ah", *hub).topics.matches(n)] == ["x", "a.x"]


def test_a_name_that_is_included_as_such_is_meant() -> None:
    links = ["a b returning topics: [/.*/], rename: 'a.{topic}'", "b a returning topics: [a.x], rename: x"]
    assert topics("ba", *links).topics.matches("a.x")
    assert topics("ab", *links).topics.matches("x")  # which the other link writes, too


def test_a_link_of_code_is_not_changed_by_a_file() -> None:
    text = text_of(
        "a b returning topics: [/.*/], rename: '{topic}.r'", "b a returning topics: [/.*/], rename: '{topic}.r'"
    )
    config = loads(text)
    link = config.links["ab"]
    alone = type(config)(sites=config.sites, links={"ab": link})
    assert alone.links["ab"].topics.matches("x.r")
    assert not link.topics.matches("x.r")
    assert link.topics.refusing(None).matches("x.r")


@pytest.mark.parametrize(
    ("template", "name", "topic"),
    [
        ("{topic}", "x", "x"),
        ("a.{topic}", "a.x", "x"),
        ("a.{topic}", "a.", None),
        ("a.{topic}", "b.x", None),
        ("{topic}-{topic}", "x-x", "x"),
        ("{topic}-{topic}", "x-y", None),
        ("all", "all", None),
        ("all", "x", None),
    ],
)
def test_a_template_read_backwards(template: str, name: str, topic: str | None) -> None:
    assert unfilled(template, name) == topic


def test_names_are_followed_along_links_that_keep_them() -> None:
    ways = (Way("a", "b", "{topic}"), Way("b", "a", "{topic}"), Way("c", "a", "c.{topic}"))
    assert Copies("b", "a", "returning", ways).came_from("c.z") == "a"
    assert Copies("a", "b", "returning", ways).came_from("c.z") is None
    assert Copies("a", "b", "foreign", ways).came_from("c.z") == "c"
    assert Copies("b", "a", "returning", ways).came_from("z") is None


# --- examples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        ".*",
        r"orders\..*",
        "orders|payments",
        r"(?:eu|us)-\w+-\d{2}",
        "[^a-z].?",
        "(?i)ABC[^_]*",
        r"(?!test).*\D",
        "a{2,3}(b+?)c*",
        r"[.\d_-]+",
        "x(?=y)y",
        "(?>a|b)c++",
    ],
)
def test_examples_match(expression: str) -> None:
    found = examples(f"/{expression}/")
    assert found
    assert all(re.fullmatch(expression, name) for name in found)


def test_what_no_topic_is_called_has_no_example() -> None:
    assert examples("/ +/") == ()
    assert examples(r"/(a)\1/") == ()
