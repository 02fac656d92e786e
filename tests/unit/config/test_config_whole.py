"""The configuration as a whole: its interface, its properties, and that nothing ever escapes the loader."""

from __future__ import annotations

import json
import os
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

import isthmus.config
from isthmus.config import Config, Link, Site, json_schema, load, loads, render
from isthmus.errors import ConfigError, UsageError

GOOD = """\
sites:
  a: {bootstrap: "a:9092", tls: true, sasl: {mechanism: PLAIN, username: u, password: p}}
  b: {bootstrap: [b:9092], cluster_id: x, request_timeout: 5s}
links:
  l:
    from: a
    to: b
    topics: {include: [x, /y.*/], exclude: [z]}
    rename: "{source}.{topic}"
    start: {offsets: {x: {0: 1}}}
    rate_limit: 1MB
    headers: {offset: off}
    rules: [a.b:c, {invert: {lost: d}}]
    tasks: 2
    spark: {spark.x: 1}
spark: {spark.y: 2}
"""


def test_the_public_names_are_pinned():
    assert sorted(isthmus.config.__all__) == [
        "Config", "Headers", "Link", "LocalFile", "Mistake", "Registry", "Sasl", "Secret", "Site", "StartOffsets",
        "StartTimestamp", "Tls", "Topics", "config_error", "is_internal", "json_schema", "load", "loads", "place", "render",
    ]  # fmt: skip
    assert all(hasattr(isthmus.config, name) for name in isthmus.config.__all__)


def test_a_mistake_as_people_read_it(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(
        "sites:\n  a: {bootstrap: 'a:1'}\n  b: {bootstrap: 'b:1'}\nlinks:\n  orders:\n    from: a\n    to: b\n    topcis: [x]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load("isthmus.yaml")
    assert str(caught.value) == 'isthmus.yaml:8:5: links.orders.topcis: unknown key; did you mean "topics"?'
    assert [render(m) for m in caught.value.mistakes] == [str(caught.value)]
    assert caught.value.exit_code == 3
    assert pickle.loads(pickle.dumps(caught.value)).mistakes == caught.value.mistakes


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ("spark.master: 'local[4]'", ""),
        ("spark.master: 'spark://127.0.0.1:7077'", ""),
        ("spark.master: 'spark://localhost:7077,[::1]:7077'", ""),
        (
            "spark.master: 'spark://localhost:7077,elsewhere:7077'",
            "spark.authenticate: true and spark.network.crypto.enabled: true",
        ),
        (
            "spark.master: 'spark://127.0.0.1.example.com:7077'",
            "spark.authenticate: true and spark.network.crypto.enabled: true",
        ),
        ("spark.master: yarn", "spark.authenticate: true and spark.network.crypto.enabled: true"),
        ("spark.master: 'k8s://a:1', spark.authenticate: true", "spark.network.crypto.enabled: true"),
        ("spark.master: yarn, spark.network.crypto.enabled: true", "spark.authenticate: true"),
        ("spark.master: yarn, spark.authenticate: true, spark.network.crypto.enabled: true", ""),
        ("spark.master: yarn, spark.authenticate: true, spark.ssl.rpc.enabled: true", ""),
        ("spark.master: yarn, spark.isthmus.open: true", ""),
    ],
)
def test_passwords_travel_guarded_or_the_file_says_otherwise(options, missing):
    for text in (GOOD.replace("spark.y: 2", options), GOOD.replace("spark: {spark.x: 1}", f"spark: {{{options}}}")):
        if not missing:
            loads(text)
            continue
        with pytest.raises(ConfigError, match="the sites' passwords would travel") as caught:
            loads(text)
        assert f"set {missing}, or spark.isthmus.open: true" in str(caught.value)
        (mistake,) = caught.value.mistakes
        assert text.splitlines()[mistake["line"] - 1][mistake["column"] - 1 :].startswith(options.partition(" ")[2][:5])


@pytest.mark.parametrize(
    ("site", "told"),
    [
        ("bootstrap: 'a:1', sasl: {mechanism: PLAIN, username: u, password: p}", "without TLS the password travels"),
        ("bootstrap: 'a:1', sasl: {mechanism: OAUTHBEARER, token: t}", "without TLS the token travels"),
        (
            "bootstrap: '127.0.0.1:1,127.evil.example:1', sasl: {mechanism: OAUTHBEARER, token: t}",
            "without TLS the token travels",
        ),
        ("bootstrap: 'a:1', registry: {url: 'http://r', username: u, password: p}", "over http the secret travels"),
        ("bootstrap: 'a:1', registry: {url: 'http://r', token: t}", "over http the secret travels"),
        ("bootstrap: 'a:1', sasl: {mechanism: SCRAM-SHA-256, username: u, password: p}", ""),
        ("bootstrap: 'a:1', tls: true, sasl: {mechanism: PLAIN, username: u, password: p}", ""),
        ("bootstrap: 'a:1', sasl: {mechanism: PLAIN, username: u, password: p, in_the_clear: true}", ""),
        ("bootstrap: '127.0.0.1:1,localhost:2,[::1]:3', sasl: {mechanism: PLAIN, username: u, password: p}", ""),
        ("bootstrap: 'a:1', registry: {url: 'http://r'}", ""),
        ("bootstrap: 'a:1', registry: {url: 'http://r', token: t, in_the_clear: true}", ""),
        ("bootstrap: 'a:1', registry: {url: 'http://localhost:8081', token: t}", ""),
        ("bootstrap: 'a:1', registry: {url: 'https://r', token: t}", ""),
    ],
)
def test_secrets_do_not_travel_in_the_clear_unless_the_file_says_so(site, told):
    text = f"sites: {{a: {{{site}}}}}\n"
    if not told:
        loads(text)
        return
    with pytest.raises(ConfigError, match=told) as caught:
        loads(text)
    assert "in_the_clear: true" in str(caught.value)


def test_spark_options_may_be_secrets(tmp_path, monkeypatch):
    (tmp_path / "spark").write_text("from-a-file\n")
    monkeypatch.setenv("SPARK_WORD", "from-a-variable")
    text = GOOD.replace(
        "spark.y: 2", "spark.one: {file: spark}, spark.two: {env: SPARK_WORD}, spark.three: {file: nowhere}"
    )
    with pytest.raises(ConfigError, match=r'three"\.file: cannot read'):
        loads(text, base=tmp_path)
    config = loads(text.replace(", spark.three: {file: nowhere}", ""), base=tmp_path)
    assert config.spark["spark.one"].reveal() == "from-a-file"
    assert config.spark["spark.two"].reveal() == "from-a-variable"
    assert "from-a" not in repr(config) + config.model_dump_json()
    with pytest.raises(ConfigError, match=r"expected one value, \{env: NAME\} or \{file: PATH\}"):
        loads(GOOD.replace("spark.y: 2", "spark.y: {a: b}"))


def test_spark_options():
    config = loads(GOOD)
    assert config.spark == {"spark.master": "local[*]", "spark.y": "2"}
    assert config.spark_options("l") == {"spark.master": "local[*]", "spark.y": "2", "spark.x": "1"}
    assert loads(GOOD.replace("spark.y: 2", "spark.master: yarn, spark.isthmus.open: true")).spark == {
        "spark.master": "yarn",
        "spark.isthmus.open": "true",
    }
    assert loads("sites:\n  a: {bootstrap: 'a:1'}\n").spark == {"spark.master": "local[*]"}


def test_picking_by_name():
    config = loads(GOOD)
    assert config.link("l").name == "l"
    assert config.site("a").name == "a"
    with pytest.raises(UsageError, match='there is no link "ll" in the configuration; did you mean "l"'):
        config.link("ll")
    with pytest.raises(UsageError, match='there is no site "q" in the configuration; known: a, b'):
        config.site("q")


def test_from_code():
    sites = {name: Site(name=name, bootstrap=[f"{name}:1"]) for name in "ab"}
    link = Link(name="l", source="a", target="b", topics=["x"])
    config = Config(sites=sites, links={"l": link})
    assert Config.model_validate({"sites": {"a": {"bootstrap": ["a:1"]}}}).sites["a"].name == "a"
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ValueError, match='named "a" inside'):
        Config(sites={"b": sites["a"]})
    with pytest.raises(ValueError, match="there is no such site"):
        Config(sites={"a": sites["a"]}, links={"l": link})


def test_relative_paths_in_loads(tmp_path):
    (tmp_path / "pw").write_text("x")
    sasl = "{mechanism: SCRAM-SHA-256, username: u, password: {file: pw}}"
    config = loads(f"sites:\n  a:\n    bootstrap: a:1\n    sasl: {sasl}\n", base=tmp_path)
    assert config.sites["a"].sasl is not None


def test_a_dump_with_the_file_s_keys_loads_again():
    text = GOOD.replace(", sasl: {mechanism: PLAIN, username: u, password: p}", "")
    data = loads(text).model_dump(mode="json", by_alias=True)
    for group in ("sites", "links"):
        for member in data[group].values():
            del member["name"]
    assert loads(json.dumps(data)) == loads(text)


def _values() -> st.SearchStrategy[object]:
    words = [
        "",
        "x",
        "a:1",
        "off",
        "-1",
        "0",
        "1s",
        "/(/",
        "/x/",
        "{topic}",
        "${NO}",
        "$${",
        "__x",
        "null",
        "é\n",
    ]
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(words) | st.text(max_size=8)
    keys = st.sampled_from(["env", "file", "include", "from", "to", "timestamp", "offsets", "name", "0", "<<", "x"])
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    )


def _spots(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _spots(value, (*path, key))


def found_in(text):
    """The mistakes in a text; any other exception is a bug."""
    try:
        loads(text)
    except ConfigError as error:
        return error.mistakes or pytest.fail("an error without a mistake")
    return []


PLAIN_GOOD = YAML(typ="safe", pure=True).load(GOOD)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(spot=st.sampled_from(list(_spots(PLAIN_GOOD))), value=_values(), more=_values())
def test_any_value_anywhere_is_good_or_a_mistake_with_a_place(spot, value, more):
    data = json.loads(json.dumps(PLAIN_GOOD))
    node = {"root": data}
    for key in ("root", *spot)[:-1]:
        node = node[key]
    last = ("root", *spot)[-1]
    node[last] = value
    if isinstance(node, dict):
        node["another"] = more
    text = json.dumps(node["root"] if not spot else data)
    for mistake in found_in(text):
        assert mistake["line"] == 1
        assert 1 <= mistake["column"] <= len(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab:{}[]-?!&*|>%@`'\"\\#,\n\t $<\x00é1", max_size=40))
def test_any_text_is_good_or_a_mistake(text):
    found_in(text)


def test_the_schema_knows_every_key():
    schema = json_schema()
    assert set(schema["properties"]) == set(Config.model_fields)
    link = schema["$defs"]["Link"]
    assert set(link["properties"]) == (set(Link.model_fields) - {"name", "source", "target"}) | {"from", "to"}
    assert link["required"] == ["from", "to", "topics"]
    assert link["properties"]["lease"]["default"] == "5m"
    for definition in [schema, *schema["$defs"].values()]:
        for key, node in definition.get("properties", {}).items():
            assert node.get("description", "").endswith("."), key
    references = set(json.dumps(schema).split('"#/$defs/')[1:])
    assert {r.split('"')[0] for r in references} <= set(schema["$defs"])
    json.dumps(schema)


def test_the_environment_is_not_changed():
    before = dict(os.environ)
    loads(GOOD)
    assert dict(os.environ) == before
