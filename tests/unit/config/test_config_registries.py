"""Registries of sites, and links that copy schemas: what passes, and what is told about mistakes."""

from __future__ import annotations

import pytest

from isthmus.config import Config, loads
from isthmus.config.sync_schemas import SyncSchemas
from isthmus.errors import ConfigError


def config(registry: str = "{url: 'http://r:8081'}", link: str = "sync: {schemas: on}") -> Config:
    return loads(
        f"sites:\n  a: {{bootstrap: 'a:1', registry: {registry}}}\n  b: {{bootstrap: 'b:1', registry: {{url: 'https://r/api/'}}}}\n"
        f"  c: {{bootstrap: 'c:1'}}\nlinks:\n  l: {{from: a, to: b, topics: [t], {link}}}\n"
    )


def mistakes(*arguments: str, **more: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(*arguments, **more)
    return caught.value.message


def test_short_forms() -> None:
    assert config().links["l"].sync.schemas == SyncSchemas(enabled=True)
    assert not config(link="sync: {schemas: off}").links["l"].sync.schemas.enabled
    assert not config(link="sync: {}").links["l"].sync.schemas.enabled
    assert config(link="sync: {schemas: [one, '/two.*/']}").links["l"].sync.schemas.include == ["one", "/two.*/"]
    assert config(link="sync: {schemas: {versions: latest}}").links["l"].sync.schemas.enabled
    assert config().sites["b"].registry is not None
    assert config().sites["b"].registry.url == "https://r/api"


def test_matching_and_renaming() -> None:
    schemas = SyncSchemas(include=["/a.*/", "b"], exclude=["ab"], rename="{source}.{subject}")
    assert [name for name in ("a", "ab", "b", "ba") if schemas.matches(name)] == ["a", "b"]
    assert schemas.destination("a/x y", "east", "west", "l") == "east.a/x y"


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("{url: 'r:8081'}", "expected an address"),
        ("{url: 'http://'}", "expected an address"),
        ("{url: 'http://u:hush@r'}", "no user and password in the address"),
        ("{url: 'http://r', username: u}", "registry.password: missing"),
        ("{url: 'http://r', username: u, password: p, token: t}", "a token replaces"),
        ("{url: 'http://r', tls: {}}", "the address is not https"),
        ("{url: 'http://r', retries: 3}", "unknown key"),
    ],
)
def test_mistakes_of_a_registry(registry: str, expected: str) -> None:
    told = mistakes(registry)
    assert expected in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("sync: {schemas: {rename: all}}", "put {subject} in it"),
        ("sync: {schemas: {rename: '{topic}-{subject}'}}", "unknown variable"),
        ("sync: {schemas: ['/[/']}", "bad regular expression"),
        ("rules: [{schema_ids: {}}]", "this link copies no schemas"),
    ],
)
def test_mistakes_of_a_link(link: str, expected: str) -> None:
    assert expected in mistakes(link=link)


def test_both_ends_need_a_registry() -> None:
    text = "sites: {a: {bootstrap: 'a:1'}, b: {bootstrap: 'b:1'}}\nlinks: {l: {from: a, to: b, topics: [t], sync: {schemas: on}}}"
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert 'site "a" has no registry' in caught.value.message
    assert 'site "b" has no registry' in caught.value.message
