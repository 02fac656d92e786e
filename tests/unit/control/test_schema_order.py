"""Versions are registered after what they refer to, and what was copied can be written down and read again."""

from __future__ import annotations

from typing import Any

from isthmus.config import Topics, loads
from isthmus.control.schema_copy import Copied, Known, SchemaCopy, Subject, Version

CONFIG = """
sites: {a: {bootstrap: "a:1", registry: {url: "http://a"}}, b: {bootstrap: "b:1", registry: {url: "http://b"}}}
links: {l: {from: a, to: b, topics: [t], sync: {schemas: {rename: "{source}.{subject}"}}}}
"""


def copy(memory: dict[str, Any] | None = None) -> SchemaCopy:
    return SchemaCopy(
        loads(CONFIG).links["l"],
        None,
        None,
        Known({name: Subject.read(name, value) for name, value in (memory or {}).items()}),
    )  # type: ignore[arg-type]


def one(subject: str, version: int, *references: tuple[str, int]) -> Version:
    return Version(subject, version, 0, "AVRO", "{}", tuple(("n", *reference) for reference in references))


def names(levels: list[list[Version]]) -> list[list[str]]:
    return [sorted(f"{v.subject}{v.version}" for v in level) for level in levels]


def test_what_is_referred_to_comes_first_and_versions_in_their_order() -> None:
    versions = [one("a", 1, ("b", 2)), one("a", 2), one("b", 1), one("b", 2), one("c", 1)]
    levels, stuck = copy().levels(versions)
    assert names(levels) == [["b1", "c1"], ["b2"], ["a1"], ["a2"]]
    assert stuck == []


def test_circles_and_holes_are_told_and_the_rest_goes_on() -> None:
    versions = [one("a", 1, ("b", 1)), one("b", 1, ("a", 1)), one("c", 1, ("nowhere", 1)), one("d", 1)]
    levels, stuck = copy().levels(versions)
    assert names(levels) == [["d1"]]
    assert sorted(v.subject for v in stuck) == ["a", "b", "c"]


def test_what_is_known_needs_not_come_again() -> None:
    known = Known({})
    known.note(("b", 2), "a.b", Copied(5, 50, 1, own=True))
    again = copy(known.unwritten())
    assert names(again.levels([one("a", 1, ("b", 2))])[0]) == [["a1"]]
    assert again.body(one("a", 1, ("b", 2)))["references"] == [{"name": "n", "subject": "a.b", "version": 1}]
    assert again.known.ids() == {5: 50}
    # Under another name it is another subject.
    assert again.known.find(("b", 2), "b") is None
    assert known.unwritten() == {}


def test_the_topic_of_a_registry_can_be_copied_as_a_plain_one() -> None:
    assert Topics(include=["_schemas"]).matches("_schemas")
