"""``origin`` and ``loop`` of a link: their short and long forms, their mistakes, each at its place."""

from __future__ import annotations

import pickle

import pytest

from isthmus.config import Link
from isthmus.config.loop import Loop, Override
from isthmus.config.origin import Origin

SITES = "sites:\n  a: {bootstrap: 'a:9092'}\n  b: {bootstrap: 'b:9092'}\n"


@pytest.fixture
def read(good):
    return lambda body: good(SITES + f"links:\n  l:\n    from: a\n    to: b\n    topics: [x]\n    {body}\n").links["l"]


@pytest.mark.parametrize(
    ("body", "origin", "loop"),
    [
        ("origin: off", None, None),
        ("origin: on", Origin(), None),
        ("origin: yes", Origin(), None),
        ("origin: born-at", Origin(header="born-at"), None),
        ("origin: {}", Origin(), None),
        ("origin: {value: cluster}", Origin(value="cluster"), None),
        ("origin: {header: h, value: provenance}", Origin(header="h", value="provenance"), None),
        ("loop: off", None, None),
        ("loop: ", None, None),
        ("loop: returning", Origin(), Loop(drop="returning")),
        ("loop: foreign", Origin(), Loop(drop="foreign")),
        ("loop: foreign\n    origin: h", Origin(header="h"), Loop(drop="foreign")),
        ("loop: {drop: returning, same_topic: on}", Origin(), Loop(drop="returning", same_topic=True)),
        ("loop: {drop: returning, overrides: }", Origin(), Loop(drop="returning")),
    ],
)
def test_forms(read, body, origin, loop):
    link = read(body)
    assert (link.origin, link.loop) == (origin, loop)
    assert pickle.loads(pickle.dumps(link)) == link


def test_a_link_of_code_gets_its_origin_too():
    fields = {"name": "l", "source": "a", "target": "b", "topics": ["x"]}
    assert Link(**fields, loop="returning").origin == Origin()
    assert Link(**fields, loop=Loop(drop="foreign")).origin == Origin()
    assert Link(**fields).origin is None


def test_overrides_on_one_line_and_as_a_list(read):
    one_line = read("loop: {drop: returning, overrides: 'DC-1,_schemas,-;DC-1,topic1,0-1539634429528; a.*, .+ ,5-;'}")
    assert one_line.loop.overrides == [
        Override(origin="DC-1", topic="_schemas"),
        Override(origin="DC-1", topic="topic1", since=0, until=1539634429528),
        Override(origin="a.*", topic=".+", since=5),
    ]
    listed = read(
        "loop: {drop: foreign, overrides: [{origin: 'DC-[1,2]', since: 2018-10-15T20:13:49.528Z, until: 1600000000000}]}"
    )
    assert listed.loop.overrides == [Override(origin="DC-[1,2]", since=1539634429528, until=1600000000000)]


def test_an_override_matches_whole_names():
    override = Override(origin="DC-1", topic="topic.")
    assert override.matches("DC-1", "topic1")
    assert not override.matches("DC-11", "topic1")
    assert not override.matches("DC-1", "topic12")


ONE_LINE = "expected ORIGIN,TOPIC,FROM-TO with times in milliseconds, several separated by semicolons"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "loop: on",
            '1:7 links.l.loop: expected off, returning, foreign, or a mapping with drop, found "on"; pairs and rings take '
            "returning, meshes foreign",
        ),
        (
            "loop: retruning",
            '1:7 links.l.loop: expected off, returning, foreign, or a mapping with drop, found "retruning"; did you mean '
            '"returning"?',
        ),
        ("loop: [returning]", "1:7 links.l.loop: expected a mapping, found a list"),
        ("loop: {same_topic: on}", "1:1 links.l.loop.drop: missing"),
        ("loop: {drop: all}", '1:14 links.l.loop.drop: expected returning or foreign, found "all"'),
        (
            "loop: {drop: foreign, same_topic: on}",
            "1:35 links.l.loop.same_topic: only with drop: returning; foreign leaves out whole origins",
        ),
        (
            "loop: {drop: returning, overrides: 'a,b'}",
            f'1:36 links.l.loop.overrides: {ONE_LINE}, found "a,b"; an open range is -',
        ),
        (
            "loop: {drop: returning, overrides: 'a,b{1,2},-'}",
            f'1:36 links.l.loop.overrides: {ONE_LINE}, found "a,b{{1,2}},-"; an expression that holds a comma or semicolon needs the '
            "long form: a list of {origin, topic, since, until}",
        ),
        ("loop: {drop: returning, overrides: ';'}", f'1:36 links.l.loop.overrides: {ONE_LINE}, found ";"'),
        (
            "loop: {drop: returning, overrides: '(,b,-'}",
            "1:36 links.l.loop.overrides: bad regular expression at character 1: missing ), unterminated subpattern",
        ),
        (
            "loop: {drop: returning, overrides: [{topic: x}]}",
            "1:37 links.l.loop.overrides[0].origin: missing",
        ),
        (
            "loop: {drop: returning, overrides: [{origin: x, since: -1}]}",
            '1:56 links.l.loop.overrides[0].since: expected a time after 1970, found "-1"',
        ),
        (
            "loop: {drop: returning, overrides: [{origin: x, since: 6, until: 5}]}",
            "1:66 links.l.loop.overrides[0].until: ends before it begins",
        ),
        (
            "origin: {value: name}",
            '1:17 links.l.origin.value: expected site, cluster or provenance, found "name"',
        ),
        ("origin: {headers: h}", '1:10 links.l.origin.headers: unknown key; did you mean "header"?'),
        ("origin: ''", "1:9 links.l.origin: expected on, off, or a header's key"),
        (
            "origin: isthmus-offset",
            "1:9 links.l.origin: the header of the offset has this key; give one of them another",
        ),
        (
            "loop: returning\norigin: off",
            "2:9 links.l.origin: a loop rule needs to know where records were born; leave origin out, or set it",
        ),
    ],
)
def test_mistakes(link, body, expected):
    """Places are those in the body, which the file has further down and to the right."""
    place, _, rest = expected.partition(" ")
    line, column = map(int, place.split(":"))
    assert link(body) == [f"{line + 8}:{column + 4} {rest}"]
