"""Each mistake that a link can have, with its exact place; and what its methods answer."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from isthmus.config import Headers, Link, StartOffsets, StartTimestamp, Topics
from isthmus.errors import ConfigError

SITES = "sites:\n  a: {bootstrap: 'a:9092'}\n  b: {bootstrap: 'b:9092'}\n  c: {bootstrap: 'c:9092'}\n"
APART = "tell them apart with rename, or give both a loop rule"


def make(**fields):
    return Link(**{"name": "l", "source": "a", "target": "b", "topics": ["x"], **fields})


def test_defaults(good):
    link = good(SITES + "links:\n  orders:\n    from: a\n    to: b\n    topics: [x]\n").links["orders"]
    assert (link.name, link.source, link.target) == ("orders", "a", "b")
    assert link.topics == Topics(include=["x"])
    assert (link.rename, link.start, link.rate_limit, link.commit_interval) == (
        "{topic}",
        "earliest",
        None,
        1.0,
    )
    assert (link.compression, link.headers.offset, link.rules) == ("keep", "isthmus-offset", [])
    assert (link.delivery, link.on_corrupt, link.tasks, link.lease) == ("exactly-once", "stop", None, 300.0)
    assert (link.replication_factor, link.spark) == (None, {})


def test_everything_at_once(good):
    link = good(
        SITES
        + r"""links:
  orders:
    from: a
    to: b
    topics:
      include: [orders, /pay\..*/]
      exclude: pay.test
    rename: "{source}-{target}-{link}.{topic}"
    start: {offsets: {orders: {0: 5, "1": 6}}}
    rate_limit: 64MiB
    commit_interval: 250ms
    compression: zstd
    headers: {offset: src}
    rules: [pkg.mod:fn, {invert: {lost_ids: [x]}}, {invert: }]
    delivery: at-least-once
    on_corrupt: skip
    tasks: 3
    lease: 1h
    replication_factor: 2
    spark: {spark.executor.memory: 2g}
"""
    ).links["orders"]
    assert link.start == StartOffsets(offsets={"orders": {0: 5, 1: 6}})
    assert link.rules == ["pkg.mod:fn", {"invert": {"lost_ids": ["x"]}}, {"invert": {}}]
    assert link.topics.exclude == ["pay.test"]
    assert link.destination_topic("orders") == "a-b-orders.orders"
    assert pickle.loads(pickle.dumps(link)) == link


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *((text, None) for text in ("off", "false", "no", "null", "", "~")),
        *((text, "isthmus-offset") for text in ("on", "true")),
        ("k", "k"),
        ("'2'", "2"),
    ],
)
def test_the_offset_header(good, text, name):
    body = f"links:\n  l:\n    from: a\n    to: b\n    topics: [x]\n    headers:\n      offset: {text}\n"
    assert good(SITES + body).links["l"].headers.offset == name


@pytest.mark.parametrize(("text", "name"), [("off", None), ("on", "isthmus-offset"), ("", "isthmus-offset")])
def test_headers_as_a_switch(good, text, name):
    body = f"links:\n  l:\n    from: a\n    to: b\n    topics: [x]\n    headers: {text}\n"
    assert good(SITES + body).links["l"].headers == Headers(offset=name)


def test_lists_and_headings_with_nothing_below_them_are_empty(good):
    body = "links:\n  l:\n    from: a\n    to: b\n    topics: {include: x, exclude: }\n    rules:\n    spark:\n"
    link = good(SITES + body).links["l"]
    assert (link.topics.include, link.topics.exclude, link.rules, link.spark) == (["x"], [], [], {})
    assert good(SITES + "links:\nspark:\n").links == {}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", "latest"),
        (
            "{timestamp: 2026-01-31T08:00:00Z}",
            StartTimestamp(timestamp=datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ),
        (
            "{timestamp: '2026-01-31 08:00:00+02:00'}",
            StartTimestamp(timestamp=datetime(2026, 1, 31, 8, tzinfo=timezone(timedelta(hours=2)))),
        ),
    ],
)
def test_start(good, start, expected):
    body = f"links:\n  l:\n    from: a\n    to: b\n    topics: [x]\n    start: {start}\n"
    assert good(SITES + body).links["l"].start == expected


START = "expected earliest, latest, {timestamp: TIME} or {offsets: {TOPIC: {PARTITION: OFFSET}}}"
ENTRY = 'a topic\'s name has letters, digits, ".", "_" and "-" only'
SLASHES = 'a regular expression stands between slashes: "/orders-.*/"'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("topcis: [y]", ['9:5 links.l.topcis: unknown key; did you mean "topics"?']),
        ("source: a", ['9:5 links.l.source: unknown key; did you mean "from"?']),
        ("tasks: -1", ['9:12 links.l.tasks: must be 1 or more, found "-1"']),
        ("tasks: 0", ['9:12 links.l.tasks: must be 1 or more, found "0"']),
        ("tasks: 1.5", ['9:12 links.l.tasks: expected a whole number, found "1.5"']),
        ("tasks: true", ['9:12 links.l.tasks: expected a whole number, found "true"']),
        ("tasks: four", ['9:12 links.l.tasks: expected a whole number, found "four"']),
        ("tasks: [4]", ["9:12 links.l.tasks: expected a whole number, found a list"]),
        ("tasks: 99999999999", ['9:12 links.l.tasks: must be 2147483647 or less, found "99999999999"']),
        ("replication_factor: 0", ['9:25 links.l.replication_factor: must be 1 or more, found "0"']),
        (
            "rate_limit: 0",
            ['9:17 links.l.rate_limit: must be more than 0, found "0"; leave it out for no limit'],
        ),
        (
            "rate_limit: 10 Mb/s",
            [
                '9:17 links.l.rate_limit: expected bytes a second such as 1000000, "10 MB/s" or "64MiB", found '
                '"10 Mb/s"; units are B, kB, MB, GB, KiB, MiB and GiB: bytes, not bits'
            ],
        ),
        ("lease: 0s", ['9:12 links.l.lease: must be more than 0, found "0s"']),
        (
            "lease: 1s\ncommit_interval: 2s",
            ["9:12 links.l.lease: a lease must be at least as long as the commit interval"],
        ),
        (
            "commit_interval: 1h",
            ["9:22 links.l.commit_interval: a lease must be at least as long as the commit interval"],
        ),
        (
            "compression: zst",
            [
                "9:18 links.l.compression: expected keep, none, gzip, snappy, lz4 or zstd, found "
                '"zst"; did you mean "zstd"?'
            ],
        ),
        (
            "compression:",
            ["9:5 links.l.compression: expected keep, none, gzip, snappy, lz4 or zstd, found nothing"],
        ),
        (
            "delivery: exactly_once",
            [
                '9:15 links.l.delivery: expected exactly-once or at-least-once, found "exactly_once"; '
                'did you mean "exactly-once"?'
            ],
        ),
        ("on_corrupt: [skip]", ["9:17 links.l.on_corrupt: expected stop or skip, found a list"]),
        ("headers: 3", ["9:14 links.l.headers: expected a mapping, found text"]),
        ("headers: {offset: [x]}", ["9:23 links.l.headers.offset: expected text, found a list"]),
        ("headers: {offset: ''}", ["9:23 links.l.headers.offset: expected a header's key, or off"]),
        ("headers: {ofset: x}", ['9:15 links.l.headers.ofset: unknown key; did you mean "offset"?']),
        (
            "start: earlest",
            ['9:12 links.l.start: expected earliest or latest, found "earlest"; did you mean "earliest"?'],
        ),
        ("start: {}", [f"9:12 links.l.start: {START}, found a mapping"]),
        ("start: {timestmp: x}", [f"9:12 links.l.start: {START}, found a mapping"]),
        ("start:", [f"9:5 links.l.start: {START}, found nothing"]),
        (
            "start: {timestamp: yesterday}",
            [
                "9:24 links.l.start.timestamp: expected an ISO-8601 time with its zone such as "
                '2026-01-31T08:00:00Z, found "yesterday"'
            ],
        ),
        (
            "start: {timestamp: 2026-01-31T08:00:00}",
            [
                '9:24 links.l.start.timestamp: the time has no zone, found "2026-01-31T08:00:00"; '
                'add "Z" for UTC or an offset such as "+02:00"'
            ],
        ),
        (
            "start: {offsets: {x: {0: -1, -2: 3}, y: {}}}",
            [
                '9:30 links.l.start.offsets.x.0: must be 0 or more, found "-1"',
                "9:34 links.l.start.offsets.x.-2: must be 0 or more",
            ],
        ),
        (
            "start: {offsets: {x: {0: 1}, y: {}}}",
            ['9:34 links.l.start.offsets.y: the link does not copy this topic; see its "topics"'],
        ),
        ("start: {offsets: {x: 5}}", ["9:26 links.l.start.offsets.x: expected a mapping, found text"]),
        ("rules: x.y:z", ["9:12 links.l.rules: expected a list, found text"]),
        (
            "rules:\n  - drop\n  - a b\n  - [x]\n  - {x: 1}\n  - {x: {}, y: {}}\n  - {x y: {}}",
            [
                '10:9 links.l.rules[0]: expected module:function, or a built-in rule with its options, found "drop"; '
                "a built-in rule is a key with its options below it",
                '11:9 links.l.rules[1]: expected module:function, or a built-in rule with its options, found "a b"',
                "12:9 links.l.rules[2]: expected module:function, or a built-in rule with its options, found a list",
                '13:13 links.l.rules[3].x: expected the rule\'s options as a mapping, found "1"',
                "14:9 links.l.rules[4]: expected one rule in each entry of the list; begin each rule with its own dash",
                '15:15 links.l.rules[5]."x y": expected module:function, or a built-in rule with its options',
            ],
        ),
        (
            "rules:\n  - {schema_idz: {}}\n  - drop:\n  - schema_ids:\n      unknown: drop\n      kyes: false\n      values: 1",
            [
                '10:10 links.l.rules[0].schema_idz: there is no such rule; did you mean "schema_ids"?',
                "11:9 links.l.rules[1].drop: there is no such rule; known: invert, schema_ids",
                "13:20 links.l.rules[2].schema_ids.unknown: expected one of stop, pass, skip",
                '14:11 links.l.rules[2].schema_ids.kyes: unknown option; did you mean "keys"?',
                "15:19 links.l.rules[2].schema_ids.values: expected true or false",
            ],
        ),
        (
            "rules: [{invert: {lost: 5, header: '', value: name, offset: 5, lost_ids: [1], survivor_ids: x}}]",
            [
                "9:29 links.l.rules[0].invert.lost: expected a name",
                "9:40 links.l.rules[0].invert.header: expected a name",
                "9:51 links.l.rules[0].invert.value: expected one of site, cluster, provenance",
                "9:65 links.l.rules[0].invert.offset: expected the key of a header, or off",
                "9:78 links.l.rules[0].invert.lost_ids: expected a list of cluster ids, oldest first",
            ],
        ),
        (
            "sync:\n  acls:\n    principals: {'/User:(.*)/': 'User:\\2'}",
            [
                '11:37 links.l.sync.acls.principals."/User:(.*)/": bad reference: invalid group reference 2, found "User:\\2"; '
                "the expression has 1 group",
            ],
        ),
        (
            "sync:\n  acls:\n    principals: {'/(?P<n>x)/': 'User:\\g<m>'}",
            [
                '11:36 links.l.sync.acls.principals."/(?P<n>x)/": bad reference: unknown group name \'m\', found "User:\\g<m>"; the expression has 1 group',
            ],
        ),
        (
            "spark:\n  master: local\n  executor: {memory: 2g}\n  spark.x: [1]\n  spark.: 1",
            [
                '10:7 links.l.spark.master: a Spark option begins with "spark."; did you mean "spark.master"?',
                '11:7 links.l.spark.executor: a Spark option begins with "spark."; options are flat: '
                "spark.executor.memory: 2g",
                '12:16 links.l.spark."spark.x": expected one value, {env: NAME} or {file: PATH}; options are flat: spark.executor.memory: 2g',
                '13:7 links.l.spark."spark.": a Spark option begins with "spark."',
            ],
        ),
        (
            "spark: local[2]",
            [
                "9:12 links.l.spark: expected a mapping of Spark options such as spark.executor.memory: 2g, "
                'found "local[2]"'
            ],
        ),
        (
            "rename: '{topci}'",
            ['9:13 links.l.rename: unknown variable in the template, found "{topci}"; did you mean "topic"?'],
        ),
        (
            "rename: '{topic'",
            ['9:13 links.l.rename: a brace without its partner, found "{topic"; variables look like "{topic}"'],
        ),
        ("rename: 'a b {topic}'", [f'9:13 links.l.rename: {ENTRY}, found "a b {{topic}}"']),
        ("rename: ''", ['9:13 links.l.rename: expected a template such as "{source}.{topic}", found ""']),
        (
            "rename: __{topic}",
            [
                "9:13 links.l.rename: names that begin with __ or _isthmus. belong to Kafka and Isthmus, "
                'found "__{topic}"'
            ],
        ),
    ],
)
def test_mistakes(link, body, expected):
    assert link(body) == expected


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("topics: []", ["8:13 links.l.topics: must not be empty"]),
        ("topics: {}", ["8:5 links.l.topics.include: missing"]),
        ("topics:", ["8:5 links.l.topics: expected a mapping, found nothing"]),
        ("topics: {inclde: [a]}", ['8:14 links.l.topics.inclde: unknown key; did you mean "include"?']),
        ("topics: {include: [a], exclude: 3}", None),
        ("topics: {include: {a: b}}", ["8:23 links.l.topics.include: expected a list, found a mapping"]),
        ("topics: [a, b*]", [f'8:17 links.l.topics[1]: {ENTRY}, found "b*"; {SLASHES}']),
        ("topics: [/a]", [f'8:14 links.l.topics[0]: {ENTRY}, found "/a"; {SLASHES}']),
        ("topics: [..]", [f'8:14 links.l.topics[0]: {ENTRY}, found ".."']),
        ("topics: b*", [f'8:13 links.l.topics: {ENTRY}, found "b*"; {SLASHES}']),
        (
            "topics: {include: [a], exclude: [/x(/, '//', '/[/']}",
            [
                "8:38 links.l.topics.exclude[0]: bad regular expression at character 2: missing ), unterminated "
                "subpattern",
                '8:44 links.l.topics.exclude[1]: empty regular expression; every topic is "/.*/"',
                "8:50 links.l.topics.exclude[2]: bad regular expression at character 1: unterminated character set",
            ],
        ),
        (
            "topics: [__consumer_offsets, _isthmus.state]",
            [
                "8:14 links.l.topics[0]: internal topics (__* and _isthmus.*) are never replicated, found "
                '"__consumer_offsets"',
                '8:34 links.l.topics[1]: internal topics (__* and _isthmus.*) are never replicated, found "_isthmus.state"',
            ],
        ),
        (
            "topics: [[a]]",
            ["8:14 links.l.topics[0]: expected a topic's name, or a regular expression between slashes, found a list"],
        ),
    ],
)
def test_mistakes_in_topics(link, good, topics, expected):
    if expected is None:
        text = SITES + f"links:\n  l:\n    from: a\n    to: b\n    {topics}\n"
        assert good(text).links["l"].topics.exclude == ["3"]
    else:
        assert link("", topics) == expected


def test_a_long_topic(link):
    (found,) = link("", f"topics: [{'x' * 250}]")
    assert found.startswith("8:14 links.l.topics[0]: a topic's name has at most 249 characters, found \"xxx")
    assert found.endswith('..."')


@pytest.mark.parametrize("topics", ["[x, y]", "[/x.*/]", "[x, /y/]"])
def test_a_rename_without_the_topic(link, good, topics):
    assert link("rename: all", f"topics: {topics}") == [
        "9:13 links.l.rename: every topic would get the same name; put {topic} in it"
    ]
    one = good(SITES + "links:\n  l:\n    from: a\n    to: b\n    topics: [x]\n    rename: all\n").links["l"]
    assert one.destination_topic("x") == "all"


def test_a_rename_that_makes_an_illegal_name(link):
    (found,) = link("rename: 'prefix-{topic}'", f"topics: [ok, {'x' * 245}]")
    assert found.startswith('8:18 links.l.topics[1]: would be renamed to "prefix-xxx')
    assert found.endswith("a topic's name has at most 249 characters")
    assert link("rename: '_{topic}'", "topics: [_x]") == [
        '8:14 links.l.topics[0]: would be renamed to "__x": internal topics (__* and _isthmus.*) are never replicated'
    ]


def test_ends(lines):
    text = (
        SITES
        + "links:\n  l:\n    from: aa\n    to: nowhere\n    topics: [x]\n  m:\n    from: b\n    to: b\n    topics: [x]\n"
    )
    assert lines(text) == [
        '7:11 links.l.from: there is no such site; did you mean "a"?',
        "8:9 links.l.to: there is no such site; known: a, b, c",
        '12:9 links.m.to: the same site as "from"; a link joins two sites',
    ]
    assert lines(SITES + "links:\n  l: {}\n") == [
        "6:3 links.l.from: missing",
        "6:3 links.l.to: missing",
        "6:3 links.l.topics: missing",
    ]


def test_links_that_write_one_topic(lines):
    text = (
        SITES + "links:\n  one:\n    from: a\n    to: c\n    topics: [x, y]\n"
        "  two:\n    from: b\n    to: c\n    topics: [z, y]\n"
        "  three:\n    from: b\n    to: c\n    topics: [q]\n    rename: x\n"
        "  four:\n    from: b\n    to: c\n    topics: [x, y]\n    rename: '{source}.{topic}'\n"
    )
    assert lines(text) == [
        '13:17 links.two.topics[1]: link "one" writes topic "y" at site "c" too; ' + APART,
        '17:14 links.three.topics[0]: link "one" writes topic "x" at site "c" too; ' + APART,
    ]


def test_a_pattern_of_another_link_between_the_same_sites(lines, good):
    text = SITES + (
        "links:\n  one:\n    from: a\n    to: c\n    topics: [/x.*/]\n"
        "  two:\n    from: a\n    to: c\n    topics: [xy]\n"
    )
    assert lines(text) == ['13:14 links.two.topics[0]: link "one" writes topic "xy" at site "c" too; ' + APART]
    assert good(text.replace("[/x.*/]", "{include: [/x.*/], exclude: [xy]}"))
    assert good(text.replace("  two:\n    from: a", "  two:\n    from: b"))


def test_joint_mistakes_are_found_beside_bad_fields(lines):
    text = (
        "sites:\n  a: {bootstrap: 'k:1', request_timeout: 5}\n  b: {bootstrap: 'k:1', tls: maybe}\n"
        "links:\n  l:\n    from: nope\n    to: b\n    topics: [x, y]\n    rename: all\n    tasks: -1\n"
        "  m:\n    from: a\n    to: b\n    topics: [x]\n    lease: 1ms\n    rename: '{topic'\n"
        "  n:\n    from: a\n    to: b\n    topics: [x]\n    tasks: x\n"
        "  o:\n    from: a\n    to: b\n    topics: [x]\n    unknown: x\n"
    )
    assert [line.split(" ")[0] for line in lines(text)] == [
        "2:42", "3:18", "3:30", "6:11", "9:13", "10:12", "15:12", "16:13", "21:12", "25:14", "26:5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "name", "matches"),
    [
        (["orders"], "orders", True),
        (["orders"], "orders2", False),
        (["/orders/"], "orders2", False),
        ([r"/orders\..*/"], "orders.eu", True),
        ([r"/orders\..*/"], "ordersXeu", False),
        (["/a|b/"], "b", True),
        (["/a|b/"], "ab", False),
        (["/.*/"], "__consumer_offsets", False),
        (["/.*/"], "_isthmus.state", False),
        (["/.*/"], "_isthmusx", True),
        (["/.*/"], "_x", True),
        (["/(?i)ORDERS/"], "orders", True),
        (["/[[]a/"], "[a", True),
    ],
)
def test_matching(entries, name, matches):
    assert Topics(include=entries).matches(name) is matches


def test_excluding_wins():
    topics = Topics(include=["/.*/", "a"], exclude=["a", "/b.*/"])
    assert [name for name in ("a", "b1", "c") if topics.matches(name)] == ["c"]
    assert topics.named() == []


def test_destination_topic():
    link = make(rename="{source}.{target}.{link}.{topic}", topics=["/.*/"])
    assert link.destination_topic("x") == "a.b.l.x"
    with pytest.raises(ConfigError, match="at most 249 characters"):
        link.destination_topic("x" * 248)


def test_links_are_frozen_and_refuse_unknown_fields():
    with pytest.raises(ValidationError):
        make().tasks = 3
    with pytest.raises(ValidationError):
        make(colour="red")


def test_links_from_code():
    link = make(start=StartTimestamp(timestamp=datetime.now(UTC)), lease=60, commit_interval=0.5, rate_limit=1000)
    assert (link.lease, link.commit_interval, link.rate_limit) == (60.0, 0.5, 1000)
    assert pickle.loads(pickle.dumps(link)) == link
    with pytest.raises(ValidationError, match="every topic would get the same name"):
        make(rename="all", topics=["x", "y"])
