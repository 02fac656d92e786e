"""``${VAR}`` in scalars."""

from __future__ import annotations

import pytest

from isthmus.config.built_in_rules import BUILT_IN, Option
from isthmus.config.variables import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${A}", "1"),
        ("x${A}y${B}z", "x1y2z"),
        ("${NO:-default}", "default"),
        ("${NO:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${A:-default}", "1"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A and $(A) and $", "$A and $(A) and $"),
        ("${NO:-a b:c/d}", "a b:c/d"),
    ],
)
def test_expansion(text, expected):
    assert expand(text, {"A": "1", "B": "2", "EMPTY": ""}) == (expected, [])


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A:default}", "${A-x}", "${a b}"])
def test_bad_references(text):
    _, problems = expand(text, {"A": "1"})
    assert problems == [("bad variable reference", "write ${NAME} or ${NAME:-default}, or $${ for a plain ${")]


def test_the_value_of_a_variable_is_not_expanded_again():
    assert expand("${A}", {"A": "${B}", "B": "x"}) == ("${B}", [])


def test_every_missing_variable_is_reported_at_its_place(lines):
    text = "sites:\n  a:\n    bootstrap: ${NO_1}:9092\n    cluster_id: ${NO_2}\n    request_timeout: ${NO_3}\n"
    assert lines(text) == [
        "3:16 sites.a.bootstrap: variable NO_1 is not set; set it, or write ${NO_1:-default}",
        "4:17 sites.a.cluster_id: variable NO_2 is not set; set it, or write ${NO_2:-default}",
        "5:22 sites.a.request_timeout: variable NO_3 is not set; set it, or write ${NO_3:-default}",
    ]


def test_a_missing_variable_is_the_only_mistake_at_its_place(lines):
    text = "sites:\n  a: {bootstrap: 'a:1'}\n  b: {bootstrap: 'b:1'}\nlinks:\n  l:\n    from: ${NO}\n    to: b\n    topics: [x]\n"
    assert lines(text) == ["6:11 links.l.from: variable NO is not set; set it, or write ${NO:-default}"]


def test_values_become_what_the_field_wants(good, monkeypatch):
    anything = Option("", lambda value: True, {})
    monkeypatch.setitem(BUILT_IN, "built", dict.fromkeys(("bare", "quoted", "list"), anything))
    for name, value in {"TASKS": "4", "PORT": "9092", "OFF": "no", "RATE": "10 MB/s", "ID": "007"}.items():
        monkeypatch.setenv(name, value)
    config = good(
        "sites:\n  a:\n    bootstrap: a:${PORT}\n    tls:\n      verify_hostname: ${OFF}\n    cluster_id: ${ID}\n"
        '  b: {bootstrap: "b:${PORT}"}\n'
        "links:\n  l:\n    from: a\n    to: b\n    topics:\n      - x-${ID}\n      - /y-${ID}\\..*/\n"
        "    tasks: ${TASKS}\n    rate_limit: ${RATE}\n"
        '    rules:\n      - built:\n          bare: ${TASKS}\n          quoted: "${TASKS}"\n'
        "          list: [1, 1.5, true, null, '1', 0x10, .inf]\n"
        "    spark:\n      spark.executor.cores: ${TASKS}\n      spark.x: true\n      spark.y: 1.10\n"
    )
    a, link = config.sites["a"], config.links["l"]
    assert a.bootstrap == ["a:9092"]
    assert a.tls is not None
    assert a.tls.verify_hostname is False
    assert a.cluster_id == "007"  # text keeps its zeros
    assert link.tasks == 4
    assert link.rate_limit == 10_000_000
    assert link.topics.include == ["x-007", "/y-007\\..*/"]
    expected = {"bare": 4, "quoted": "4", "list": [1, 1.5, True, None, "1", 16, float("inf")]}
    assert link.rules == [{"built": expected}]
    assert link.spark == {"spark.executor.cores": "4", "spark.x": "true", "spark.y": "1.10"}
    assert type(link.rules[0]["built"]["quoted"]) is str


def test_an_empty_variable_without_quotes_is_nothing_as_in_yaml(good, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    config = good("sites:\n  a:\n    bootstrap: a:1\n    cluster_id: ${EMPTY}\n    tls: ${NO:-}\n")
    assert config.sites["a"].cluster_id is None
    assert config.sites["a"].tls is None


def test_keys_are_expanded_too_and_shown_as_written(good, lines, monkeypatch):
    monkeypatch.setenv("SITE", "east")
    assert list(good("sites:\n  ${SITE}: {bootstrap: 'a:1'}\n").sites) == ["east"]
    (found,) = lines("sites:\n  ${SITE}: {bootstrap: 'a'}\n")
    assert found.startswith("2:24 sites.${SITE}.bootstrap: expected host:port")


def test_the_value_of_a_variable_never_enters_a_mistake(mistakes, monkeypatch):
    monkeypatch.setenv("PW", "hunter2 secret")
    text = (
        "sites:\n  a:\n    bootstrap: ${PW}\n    request_timeout: ${PW}\n    tls: ${PW}\n    sasl: ${PW}\n"
        "  ${PW}: {bootstrap: 'x:1'}\n"
        "links:\n  l:\n    from: ${PW}\n    to: a\n    topics: ['${PW}', '/(${PW}/']\n    rename: ${PW}\n"
        "    start: ${PW}\n    rate_limit: ${PW}\n    tasks: ${PW}\n    compression: ${PW}\n    rules: ['${PW}']\n"
        "    spark: ${PW}\n    headers: ${PW}\n"
    )
    found = mistakes(text)
    assert len(found) >= 14
    assert "hunter2" not in str(found)
