"""Schemas follow the data: between two real registries (Apicurio), asked by urllib, which shares no code with the product;
and records carry the destination's ids, read by confluent-kafka.

What Apicurio does not have (modes, metadata, a compatibility level that is told apart from the global one) is in
test_strict_registries.py.
"""

from __future__ import annotations

import json
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import links
import pytest
from links import Message, Setup

from isthmus.config import loads
from isthmus.control.change import Change, Outcome
from isthmus.control.resources import apply_link, plan_links
from isthmus.sandbox import KafkaSite, Registry, Sandbox
from isthmus.sandbox.supervisor import describe

AVRO = '{"type":"record","name":"Order","fields":[{"name":"x","type":"int"}]}'
AVRO_2 = '{"type":"record","name":"Order","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}'
HOLDER = '{"type":"record","name":"Holder","fields":[{"name":"order","type":"Order"}]}'
PROTO = 'syntax = "proto3"; message P { int32 x = 1; message Inner { int32 y = 1; } }'
JSON_SCHEMA = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url: str, verb: str, path: str, body: Any = None) -> Any:
    """One request; None for what is not there."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=verb)
    try:
        with _opener.open(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return None
            raise AssertionError(f"{verb} {path}: {error.code} {error.read()!r}") from None


def register(registry: Any, subject: str, schema: str, **more: Any) -> int:
    answer = ask(registry.url, "POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **more})
    return int(answer["id"])


def schema_of(registry: Any, id_: int) -> str | None:
    answer = ask(registry.url, "GET", f"/schemas/ids/{id_}")
    return str(answer["schema"]) if answer else None


def version(registry: Any, subject: str, number: int | str) -> Any:
    return ask(registry.url, "GET", f"/subjects/{quote(subject, safe='')}/versions/{number}")


def versions(registry: Any, subject: str, deleted: bool = False) -> Any:
    query = "?deleted=true" if deleted else ""
    return ask(registry.url, "GET", f"/subjects/{quote(subject, safe='')}/versions{query}")


def linked(
    sites: tuple[KafkaSite, KafkaSite], east: Any, west: Any, schemas: Any, topics: Any = "none", **more: Any
) -> Setup:
    """A link that copies schemas from one registry to the other."""
    entries = {
        site.name: {**site.site_yaml(), "registry": registry if isinstance(registry, dict) else {"url": registry.url}}
        for site, registry in zip(sites, (east, west), strict=True)
    }
    link = {"from": sites[0].name, "to": sites[1].name, "topics": topics, "sync": {"schemas": schemas}, **more}
    return links.configure({site.name: site for site in sites}, {links.new_name(): link}, entries)


def plan(setup: Setup) -> dict[str, Change]:
    (made,) = plan_links(setup.config, [setup.config.links[setup.link]], only=["schemas"])
    return {change.name: change for change in made.changes}


def apply(setup: Setup) -> dict[str, Outcome]:
    said, outcomes = apply_link(setup.config, setup.config.links[setup.link], only=["schemas"])
    assert not [change for change in said if change.action == "blocked"], said
    return {outcome.change.name: outcome for outcome in outcomes}


def applied(setup: Setup) -> dict[str, str]:
    """Carry out; the action of each change, all of which were done, and nothing is left to do."""
    outcomes = apply(setup)
    assert all(outcome.done for outcome in outcomes.values()), outcomes
    assert not [change for change in plan(setup).values() if change.action != "keep"]
    return {name: outcome.change.action for name, outcome in outcomes.items()}


@pytest.fixture(scope="module")
def registries(box: Sandbox) -> Iterator[tuple[Registry, Registry]]:
    east, west = (box.registry(name, wait=False) for name in ("east", "west"))
    for registry in (east, west):
        registry.wait()
    for size in range(1, 41):  # more than these tests register at east, so that ids differ
        register(west, "taken", json.dumps({"type": "fixed", "name": "Taken", "size": size}))
    yield east, west
    for registry in (east, west):
        registry.discard()


def test_subjects_follow_with_all_that_they_refer_to(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    east, west = registries
    register(east, "a/order", AVRO)
    register(east, "a/order", AVRO_2)
    holds = [{"name": "Order", "subject": "a/order", "version": 2}]
    register(east, "a-holder", HOLDER, references=holds)
    register(east, "a-proto", PROTO, schemaType="PROTOBUF")
    register(east, "a-json", JSON_SCHEMA, schemaType="JSON")
    register(east, "a-secret", '{"type":"long"}')
    register(east, "b-other", '{"type":"bytes"}')
    ask(east.url, "PUT", "/config/a-holder", {"compatibility": "FULL"})
    schemas = {"include": ["/a-.*/"], "exclude": ["a-secret"], "rename": "copy.{subject}"}
    setup = linked(east_and_west, east, west, schemas)

    before = ask(west.url, "GET", "/subjects")
    planned = plan(setup)
    assert {change.action for change in planned.values()} == {"create"}
    assert {"copy.a/order", "copy.a-holder", "copy.a-proto", "copy.a-json"} == set(planned), (
        "a/order is copied because a-holder refers to it"
    )
    assert ask(west.url, "GET", "/subjects") == before, "a plan changes nothing"
    levels = {name for name, change in planned.items() for diff in change.diff if diff.key == "compatibility"}
    assert levels == {"copy.a-holder"}, "only where it is set"
    assert set(applied(setup).values()) == {"create"}

    found = version(west, "copy.a-holder", 1)
    assert found["schema"] == HOLDER
    # Only what is referred to was asked for, so version 2 has become version 1 there.
    assert found["references"] == [{"name": "Order", "subject": "copy.a/order", "version": 1}]
    assert version(west, "copy.a/order", 1)["schema"] == AVRO_2
    assert version(west, "copy.a-proto", 1) == {**version(west, "copy.a-proto", "latest"), "schemaType": "PROTOBUF"}
    assert version(west, "copy.a-json", 1)["schemaType"] == "JSON"
    assert version(west, "copy.a-secret", 1) is version(west, "copy.b-other", 1) is None
    assert ask(west.url, "GET", "/config/copy.a-holder") == {"compatibilityLevel": "FULL"}
    assert ask(west.url, "GET", "/config/copy.a-json") == ask(west.url, "GET", "/config")

    # Another run, with nothing new, does nothing; a new version, and a level that changed, are found.
    assert apply(setup) == {}
    register(east, "a-json", JSON_SCHEMA.replace('"object"', '"string"'), schemaType="JSON")
    ask(east.url, "PUT", "/config/a-holder", {"compatibility": "BACKWARD"})
    assert applied(setup) == {"copy.a-json": "grow", "copy.a-holder": "alter"}
    assert versions(west, "copy.a-json") == [1, 2]
    assert ask(west.url, "GET", "/config/copy.a-holder") == {"compatibilityLevel": "BACKWARD"}

    ask(east.url, "DELETE", "/config/a-holder")
    assert applied(setup) == {"copy.a-holder": "alter"}
    assert ask(west.url, "GET", "/config/copy.a-holder") == ask(west.url, "GET", "/config")

    # Somebody took a subject away at the destination: it comes back.
    ask(west.url, "DELETE", "/subjects/copy.a-json")
    assert applied(setup) == {"copy.a-json": "create"}
    assert [version(west, "copy.a-json", n)["schema"] for n in versions(west, "copy.a-json")] == [
        version(east, "a-json", n)["schema"] for n in (1, 2)
    ]


def test_latest_versions_deleted_versions_and_what_is_there_already(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    east, west = registries
    for schema in (AVRO, AVRO_2):
        register(east, "l-order", schema)
        register(east, "d-order", schema)
        register(west, "r-order", schema)
        register(east, "r-order", schema)
    latest = linked(east_and_west, east, west, {"include": "/l-.*/", "versions": "latest"})
    assert applied(latest) == {"l-order": "create"}
    assert [version(west, "l-order", n)["schema"] for n in versions(west, "l-order")] == [AVRO_2]

    # What is there already is not registered again; its ids are noted, once.
    reuse = linked(east_and_west, east, west, {"include": "r-order"})
    assert applied(reuse) == {"r-order": "alter"}
    assert versions(west, "r-order", deleted=True) == [1, 2]

    ask(east.url, "DELETE", "/subjects/d-order/versions/1")
    skip = linked(east_and_west, east, west, {"include": "d-order", "rename": "skip.{subject}"})
    assert applied(skip) == {"skip.d-order": "create"}
    assert versions(west, "skip.d-order", deleted=True) == [1]
    copy = linked(east_and_west, east, west, {"include": "d-order", "deleted": "copy", "rename": "all.{subject}"})
    assert applied(copy) == {"all.d-order": "create"}
    assert (versions(west, "all.d-order"), versions(west, "all.d-order", deleted=True)) == ([2], [1, 2])
    # Soft-deleted later at the source: followed only where that was chosen.
    register(east, "d-order", AVRO_2.replace('"y"', '"z"'))
    assert applied(copy) == {"all.d-order": "grow"}
    ask(east.url, "DELETE", "/subjects/d-order/versions/2")
    assert applied(copy) == {"all.d-order": "delete"}
    assert versions(west, "all.d-order") == [3]
    # A subject of which nothing is left: this registry lists its versions, and gives none of them out.
    register(east, "d-gone", AVRO)
    ask(east.url, "DELETE", "/subjects/d-gone")
    copy = linked(east_and_west, east, west, {"include": "/d-.*/", "deleted": "copy", "rename": "gone.{subject}"})
    said, (outcome,) = apply_link(copy.config, copy.config.links[copy.link], only=["schemas"])
    assert [(change.name, change.action, "40401" in change.why) for change in said] == [
        ("gone.d-gone", "blocked", True)
    ]
    assert (outcome.change.name, outcome.error) == ("gone.d-order", "")


def test_levels_of_the_destination_guard_what_others_have_registered(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    """History is copied past a level among copies, and the level stands again; beside somebody else's versions it is obeyed."""
    east, west = registries
    other = '{"type":"record","name":"Order","fields":[{"name":"theirs","type":"string"}]}'
    register(east, "g-history", AVRO)
    register(west, "g-own", other)
    for subject in ("g-history", "g-own"):
        register(east, subject, AVRO.replace('"x"', '"unlike"'))
    both = linked(east_and_west, east, west, {"include": "/g-.*/"})
    register(west, "g-history", AVRO)  # a copy
    for subject in ("g-history", "g-own"):
        ask(west.url, "PUT", f"/config/{subject}", {"compatibility": "FULL"})
    planned = plan(both)
    assert {name: change.action for name, change in planned.items()} == {"g-history": "grow", "g-own": "blocked"}
    assert "subject g-own has a version that is not at east" in planned["g-own"].why
    _, (outcome,) = apply_link(both.config, both.config.links[both.link], only=["schemas"])
    assert (outcome.change.name, outcome.error) == ("g-history", "")
    assert (versions(west, "g-history"), versions(west, "g-own")) == ([1, 2], [1])
    for subject in ("g-history", "g-own"):
        assert ask(west.url, "GET", f"/config/{subject}") == {"compatibilityLevel": "FULL"}


def test_a_failed_over_registry_brings_its_new_schemas_home(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    east, west = registries
    register(east, "home", AVRO)
    assert applied(linked(east_and_west, east, west, "home")) == {"home": "create"}
    new = register(west, "home", AVRO_2)
    back = linked((east_and_west[1], east_and_west[0]), west, east, "home")
    assert applied(back) == {"home": "grow"}
    assert version(east, "home", 2)["schema"] == AVRO_2 == schema_of(west, new)
    assert versions(east, "home") == [1, 2]


def test_the_sandbox_names_a_registry_in_its_site(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    """What ``isthmus sandbox up --registries`` writes is a configuration."""
    site, registry = east_and_west[0], registries[0]
    told = describe(site, registry)
    assert told["registry"] == {"url": registry.url}
    assert loads(json.dumps({"sites": {site.name: told["yaml"]}})).sites[site.name].registry is not None
    assert "registry" not in describe(site, None)["yaml"]


def test_a_registry_that_is_slow_is_waited_for(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    east, west = registries
    register(east, "slow", AVRO)
    setup = linked(east_and_west, east, {"url": west.url, "timeout": "500ms"}, "slow")
    west.pause()
    waker = threading.Timer(1.5, west.resume)
    waker.start()
    assert applied(setup) == {"slow": "create"}
    waker.join()


# -- a registry's own topic -----------------------------------------------------------------------------------


def test_the_topic_of_a_registry_is_copied_as_a_backup(east: KafkaSite, west: KafkaSite) -> None:
    """A stand-in for a registry that keeps its schemas in Kafka, which the one of the sandbox does not: records of the form in
    which Confluent's writes them, with tombstones, in a compacted topic of its name."""

    def entry(kind: str, value: Any, **key: Any) -> Message:
        written = None if value is None else json.dumps(value).encode()
        return Message(written, json.dumps({"keytype": kind, **key, "magic": 1}).encode())

    topic = links.create_topic(east, "_schemas", cleanup_policy="compact")
    schemas = [
        entry(
            "SCHEMA",
            {"subject": "order", "version": n, "id": n, "schema": AVRO, "deleted": False},
            subject="order",
            version=n,
        )
        for n in (1, 2, 3)
    ]
    later = [
        entry("CONFIG", {"compatibilityLevel": "FULL"}, subject="order"),
        entry("DELETE_SUBJECT", {"subject": "order", "version": 2}, subject="order"),
        entry("SCHEMA", None, subject="order", version=1),
        entry("CONFIG", None, subject="order"),
        entry("NOOP", None),
    ]
    setup = links.one_link(east, west, [topic], sync={"groups": False})
    try:
        links.produce(east, topic, schemas)
        links.copy_until_caught_up(setup)
        links.produce(east, topic, later)
        links.copy_until_caught_up(setup)
        assert links.compare(east, west, topic) == 8
        assert links.topic_config(west, topic)["cleanup.policy"] == "compact"
        state = {record.key: record.value for record in links.read(west, topic)[0]}
        assert {key for key, value in state.items() if value is not None} == {
            message.key for message in (*schemas[1:], later[1])
        }
    finally:
        for site in (east, west):
            if topic in links.topics_of(site):
                links.delete_topic(site, topic)


# -- records ----------------------------------------------------------------------------------------------


def framed(id_: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">I", id_) + payload


def test_records_carry_the_ids_of_the_destination(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    """Keys and values, Protobuf's indexes, other payloads; and a schema that is registered while records flow."""
    east, west = registries
    topic = links.create_topic(east_and_west[0], links.new_name("ids"), 2)
    avro = register(east, f"{topic}-value", AVRO.replace("Order", "Flow"))
    proto = register(east, f"{topic}-proto", PROTO.replace("P ", "Flow "), schemaType="PROTOBUF")
    setup = linked(
        east_and_west, east, west, [f"/{topic}.*/"], topics=[topic], rules=[{"schema_ids": {}}], compression="zstd"
    )
    applied(setup)
    late = register(east, f"{topic}-value", AVRO_2.replace("Order", "Flow"))  # nobody has copied this one
    messages = [
        Message(framed(avro, b"\x02payload"), framed(proto, b"\x04\x02\x00key")),
        Message(framed(late, b"late"), b"plain key"),
        Message(None, framed(avro, b"")),
        Message(b"", b"\0\0"),
        Message(b"plain text", None),
    ]
    links.produce(east_and_west[0], topic, messages)
    links.copy_until_caught_up(setup)
    found = [(record.key, record.value) for record in links.read(east_and_west[1], topic)[0]]

    def there(id_: int) -> int:
        """The id that a client of the destination would have to find: by its schema's text."""
        subject = f"{topic}-proto" if id_ == proto else f"{topic}-value"
        for number in versions(west, subject):
            one = version(west, subject, number)
            if one["schema"] == schema_of(east, id_):
                return int(one["id"])
        raise AssertionError(f"{subject} at west has no schema of id {id_} at east")

    assert there(avro) != avro
    assert found == [
        (framed(there(proto), b"\x04\x02\x00key"), framed(there(avro), b"\x02payload")),
        (b"plain key", framed(there(late), b"late")),
        (framed(there(avro), b""), None),
        (b"\0\0", b""),
        (None, b"plain text"),
    ]
    assert versions(west, f"{topic}-value") == [1, 2], "the late one came in its place"
    assert links.status(setup)["schema_ids"] == {"translated": 4, "not_schema": 2, "malformed": 1, "unknown": 0}
    shown = links.isthmus(setup, "status").out
    assert "schema ids under the newest lease: 4 translated, 2 no schema payload, 1 malformed" in shown


@pytest.mark.parametrize("policy", ["stop", "pass", "skip"])
def test_ids_that_are_nowhere_to_be_had(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry], policy: str
) -> None:
    east, west = registries
    topic = links.create_topic(east_and_west[0], links.new_name("unknown"), 2)
    known = register(east, f"{topic}-value", AVRO.replace("Order", f"Known_{policy}"))
    excluded = register(east, f"secret-{topic}", AVRO.replace("Order", f"Secret_{policy}"))
    rules = [{"schema_ids": {"keys": False, "unknown": policy}}]
    setup = linked(east_and_west, east, west, [f"/{topic}.*/"], topics=[topic], rules=rules)
    payloads = [framed(known, b"1"), framed(excluded, b"2"), framed(999_999, b"3"), framed(known, b"4")]
    # Each in a batch of its own, so that what stands before the unknown one is copied.
    for payload in payloads:
        links.produce(east_and_west[0], topic, [Message(payload, payload)])
    links.produce(east_and_west[0], topic, [Message(framed(known, b"other"), partition=1)])
    links.copy_until_caught_up(setup, faults_are_fine=policy == "stop")
    becomes = int(version(west, f"{topic}-value", 1)["id"])
    found = links.read(east_and_west[1], topic)
    values = [record.value for record in found[0]]
    assert [record.value for record in found[1]] == [framed(becomes, b"other")], "the other partition goes on"
    if policy == "stop":
        assert links.faults(setup) == {(topic, 0): "UnknownSchemaIds"}
        assert values in ([], [framed(becomes, b"1")])
        return
    assert values[0] == framed(becomes, b"1")
    assert values[-1] == framed(becomes, b"4")
    assert values[1:-1] == (payloads[1:3] if policy == "pass" else [])
    assert found[0][0].key == payloads[0], "keys are left alone"


def test_ids_that_are_told_later(
    east_and_west: tuple[KafkaSite, KafkaSite], registries: tuple[Registry, Registry]
) -> None:
    """A partition stood still because nobody knew an id. Once the schema is there, or the rule passes what it does not know, the next command copies:
    the fault of the run before is no reason to end."""
    east, west = registries
    topic = links.create_topic(east_and_west[0], links.new_name("later"))
    known = register(east, f"{topic}-value", AVRO.replace("Order", "Told"))
    secret = register(east, f"secret-{topic}", AVRO.replace("Order", "ToldLater"))
    rule = {"schema_ids": {"keys": False, "unknown": "stop"}}
    setup = linked(east_and_west, east, west, [f"/{topic}.*/"], topics=[topic], rules=[rule])
    payloads = [framed(known, b"1"), framed(secret, b"2"), framed(known, b"3")]
    for payload in payloads:
        links.produce(east_and_west[0], topic, [Message(payload)])
    links.copy_until_caught_up(setup, faults_are_fine=True)
    assert links.faults(setup) == {(topic, 0): "UnknownSchemaIds"}
    # The schema is registered under a subject that follows.
    assert register(east, f"{topic}-too", AVRO.replace("Order", "ToldLater")) == secret
    went_on = links.run(setup, "--until-caught-up")
    assert (went_on.code, links.faults(setup)) == (0, {}), went_on
    there = {
        id_: int(version(west, subject, 1)["id"])
        for id_, subject in ((known, f"{topic}-value"), (secret, f"{topic}-too"))
    }
    copied = [framed(there[known], b"1"), framed(there[secret], b"2"), framed(there[known], b"3")]
    assert [record.value for record in links.read(east_and_west[1], topic)[0]] == copied
    # An id that nobody has ever registered: the rule is told to let it pass.
    links.produce(east_and_west[0], topic, [Message(framed(999_998, b"4"))])
    links.copy_until_caught_up(setup, faults_are_fine=True)
    assert links.faults(setup) == {(topic, 0): "UnknownSchemaIds"}
    passing = links.changed(setup, rules=[{"schema_ids": {"keys": False, "unknown": "pass"}}])
    migrated = links.isthmus(passing, "migrate", setup.link, "--json")
    assert (migrated.code, links.faults(passing)) == (0, {}), migrated
    assert [record.value for record in links.read(east_and_west[1], topic)[0]] == [*copied, framed(999_998, b"4")]
