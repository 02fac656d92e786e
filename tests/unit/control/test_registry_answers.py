"""Whatever a registry answers, it is read, or it is an error that names the registry, the request and what was expected."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.config import Registry, loads
from isthmus.control.registry import RegistryClient
from isthmus.control.registry_mode import mode_of
from isthmus.control.schema_copy import Known, SchemaCopy, Version
from isthmus.control.schemas import _compare_subjects
from isthmus.errors import IsthmusError, RegistryRefused

CONFIG = """
sites:
  east: {bootstrap: "a:1", registry: {url: "http://east.example:8081"}}
  west: {bootstrap: "b:1", registry: {url: "http://west.example:8081"}}
links: {l: {from: east, to: west, topics: [t], sync: {schemas: {deleted: copy, ids: IDS}}}}
"""
LINKS = {ids: loads(CONFIG.replace("IDS", ids)).links["l"] for ids in ("translate", "keep")}
LATEST = {
    "subject": "s",
    "version": 2,
    "id": 7,
    "schemaType": "JSON",
    "schema": '{"a": 1}',
    "references": [{"name": "r", "subject": "r", "version": 1}],
    "metadata": {"owner": "x"},
}
SOUND: dict[str, Any] = {
    "/subjects": ["s", "r"],
    "/subjects/s/versions": [2],
    "/subjects/r/versions": [1],
    "/subjects/s/versions/2": LATEST,
    "/subjects/r/versions/1": {"subject": "r", "version": 1, "id": 6, "schema": '"string"'},
    "/subjects/s": {"subject": "s", "version": 2, "id": 7, "schema": "{}"},
    "/subjects/r": {"subject": "r", "version": 1, "id": 6, "schema": "{}"},
    "/schemas/ids/7": {"schema": '{"b": 1}', "schemaType": "JSON"},
    "/schemas/ids/6": {"schema": '"string"'},
    "/schemas/ids/7/versions": [{"subject": "s", "version": 2}],
    "/config/s": {"compatibilityLevel": "FULL"},
    "/config/r": {"compatibilityLevel": "FULL"},
    "/config/isthmus-no-such-subject": {"compatibilityLevel": "NONE"},
    "/mode": {"mode": "READWRITE"},
    "/compatibility/subjects/s/versions": {"is_compatible": False},
}
S = Version.read(LATEST)
CALLS: dict[str, Callable[[SchemaCopy], Any]] = {
    "compare": lambda both: _compare_subjects(both, {}),
    "fetch": lambda both: [v.schema for v in both.fetch({("s", 2)}, ()).values() if not isinstance(v, IsthmusError)],
    "lookup": lambda both: both.lookup(Version.read({**LATEST, "references": None})),
    "strangers": lambda both: both.strangers("s"),
    "clash": lambda both: both.clash(S),
    "refused": lambda both: both.refused_beside(Version.read({**LATEST, "references": None})),
    "register": lambda both: both.register_one(Version.read({**LATEST, "references": None}), True),
    "bring": lambda both: both.bring([7]),
    "level": lambda both: both.target.own_level("s"),
    "mode": lambda both: mode_of(both.target),
}
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "7", [], {}, [None], "FULL", -1, 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@contextmanager
def registries(answers: Mapping[str, Any], ids: str = "translate") -> Iterator[SchemaCopy]:
    """Both registries of a link, that answer so; a request that is not known is answered with 404."""

    def send(verb: str, where: str, _: Any) -> tuple[int, str]:
        asked = where.partition("?")[0]
        if verb == "POST" and asked.startswith("/subjects") and asked.endswith("/versions"):
            asked = asked.removesuffix("/versions")
        if asked not in answers:
            return 404, '{"error_code": 40401, "message": "none"}'
        return 200, json.dumps(answers[asked])

    both = [RegistryClient(Registry(url=f"http://{site}.example", retry_for=0.01), site) for site in ("east", "west")]
    for client in both:
        client._send = send  # type: ignore[method-assign]
    made = SchemaCopy(LINKS[ids], *both, Known({}))
    try:
        yield made
    finally:
        made.close()


def test_what_registries_do_answer_is_read() -> None:
    for ids in ("translate", "keep"):
        with registries(SOUND, ids) as both:
            assert {change.action for change in CALLS["compare"](both)} <= {"create", "keep", "alter", "blocked"}
            for name, call in CALLS.items():
                assert call(both) is not None, name


@pytest.mark.parametrize(
    ("name", "where", "answer", "expected"),
    [
        ("compare", "/subjects", {"s": 1}, "a list of subjects was expected, and this is an object"),
        ("compare", "/subjects", {}, "a list of subjects was expected, and this is an object"),
        ("compare", "/subjects", ["s", None], "a subject should be text, and is null"),
        ("strangers", "/subjects/s/versions", ["2"], "a version should be a number, and is the text '2'"),
        ("lookup", "/subjects/s", {"id": "7", "version": 2}, "'id' should be a number, and is the text '7'"),
        ("register", "/subjects/s", [7], "an object with 'id' was expected, and this is a list"),
        ("register", "/subjects/s", {"id": 2**40}, "'id' should be a number, and is the number 1099511627776"),
        ("bring", "/schemas/ids/7/versions", ["s"], "an object with 'subject' was expected, and this is the text 's'"),
        ("clash", "/schemas/ids/7", {"schema": 5}, "'schema' should be text, and is the number 5"),
        ("level", "/config/s", {"compatibilityLevel": True}, "'compatibilityLevel' should be text, and is true"),
        ("level", "/config/s", {"compatibilityLevel": "full?"}, "should be a word such as FULL or READWRITE"),
        ("mode", "/mode", "READWRITE", "an object with 'mode' was expected, and this is the text 'READWRITE'"),
    ],
)
def test_an_answer_of_another_shape_is_named_with_what_was_expected(
    name: str, where: str, answer: Any, expected: str
) -> None:
    with registries({**SOUND, where: answer}) as both, pytest.raises(RegistryRefused) as told:
        CALLS[name](both)
    assert expected in told.value.message
    assert ".example: " in told.value.message
    assert where in told.value.message
    assert "Is registry.url right" in told.value.message


def mutated(value: Any, junk: Any, draw: st.DataObject) -> Any:
    """The same with something in it replaced, taken away or added."""
    places = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not places or draw.draw(st.booleans()):
        return junk
    made, place = copy.copy(value), draw.draw(st.sampled_from(places))
    if draw.draw(st.booleans()):
        made[place] = mutated(value[place], junk, draw)
    else:
        del made[place]
    return made


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(SOUND)), JUNK, st.sampled_from(["translate", "keep"]), st.data())
def test_whatever_is_answered_nothing_but_our_own_errors_is_raised(
    where: str, junk: Any, ids: str, draw: st.DataObject
) -> None:
    answers = {**SOUND, where: mutated(SOUND[where], junk, draw)}
    name = draw.draw(st.sampled_from(sorted(CALLS)))
    with registries(answers, ids) as both, suppress(IsthmusError):
        CALLS[name](both)


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=30) | JUNK.map(lambda value: json.dumps(value).encode()), st.sampled_from([200, 400, 404, 422])
)
def test_no_body_of_an_answer_is_a_crash(body: bytes, status: int) -> None:
    client = RegistryClient(Registry(url="http://west.example", retry_for=0.01), "west")
    client._send = lambda *_: (status, body.decode("utf-8", "replace"))  # type: ignore[method-assign]
    with closing(client), suppress(IsthmusError):
        mode_of(client)


def test_an_error_code_without_bounds_is_no_crash() -> None:
    client = RegistryClient(Registry(url="http://west.example", retry_for=0.01), "west")
    for text in ('{"error_code": 1e999}', "[" * 100_000, '{"error_code": []}', '["error_code"]'):
        client._send = lambda *_, text=text: (422, text)  # type: ignore[method-assign]
        with pytest.raises(RegistryRefused, match="422"):
            mode_of(client)
    client.close()
