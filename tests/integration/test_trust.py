"""Whoever may write what Isthmus keeps gets nothing done by it; what cannot be read there stops only what it is about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from links import (
    Message,
    Setup,
    allow,
    bindings,
    configure,
    copy_until_caught_up,
    create_topic,
    grant,
    isthmus,
    new_name,
    numbered,
    one_link,
    produce,
    producer_of,
    read,
    run,
    send,
    topics_of,
    two_guarded,
    wait_for,
)

from isthmus.control.keep import Keeper
from isthmus.control.meter import METER
from isthmus.kafka.acls import Acl
from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]
USERS = {"isthmus": "isthmus-secret", "mallory": "mallory-secret", "app": "app-secret"}
SITES = "_isthmus.sites"
CLUSTER = Acl("cluster", "literal", "kafka-cluster", "User:mallory", "*", "ALL", "ALLOW")
FIRST, SECOND = "first secret of the state, long enough", "second secret of the state, long enough"


@pytest.fixture(scope="module")
def guarded(box: Sandbox) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites with an authoriser, where mallory may write what Isthmus keeps, and nothing else."""
    with two_guarded(box, ["guarded-east", "guarded-west"], USERS, everything=True) as both:
        for site in both:
            for operation in ("read", "write"):
                allow(site, operation, "topic", "_isthmus.", user="mallory")
        yield both


def forge(site: KafkaSite, topic: str, key: str, value: Any) -> None:
    """What mallory can do."""
    raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    send(producer_of(site, "mallory"), topic, [Message(raw, key.encode())])


def forge_all(link: str, source: KafkaSite, target: KafkaSite, topic: str) -> list[str]:
    """All that would give mallory rights, or take others'; the keys."""
    wanted = Acl("topic", "literal", topic, "User:mallory", "*", "WRITE", "ALLOW")
    apps = Acl("topic", "literal", topic, "User:app", "*", "READ", "ALLOW")
    control = f"_isthmus.{link}.control"
    keys = []
    for acl in (CLUSTER, wanted):
        keys.append(f"staged/{acl.key}")
        forge(target, control, keys[-1], {})
    keys.append(f"acl/{apps.key}")
    forge(target, control, keys[-1], {})
    for site in (source, target):
        for acl in (CLUSTER, wanted):
            keys.append(f"fence/{acl.key}")
            forge(site, SITES, keys[-1], {"acl": json.loads(acl.key), "given": [json.loads(apps.key)]})
    return keys


def with_secret(setup: Setup, secret: str, *previous: str) -> Setup:
    document = json.loads(setup.path.read_text())
    state = {"secret": secret, "previous": list(previous)}
    return configure(setup.sites, document["links"], document["sites"], document["spark"], state=state)


def test_writing_state_gives_nobody_a_right(guarded: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = guarded
    topic = create_topic(east, unique_topic("trusted"))
    grant(east, f"ALLOW WRITE TOPIC:LITERAL:{topic} User:app *", f"ALLOW READ TOPIC:LITERAL:{topic} User:app *")
    produce(east, topic, numbered(20))
    plain = one_link(east, west, [topic], sync={"groups": False, "acls": "on"})
    copy_until_caught_up(plain)
    assert isthmus(plain, "apply").code == 0

    # Not signed: what no configuration of the link could have come to is refused by name; nothing of it is done.
    control, before = f"_isthmus.{plain.link}.control", bindings(west)
    forge(west, control, f"staged/{CLUSTER.key}", {})
    forge(west, SITES, f"fence/{CLUSTER.key}", {"acl": json.loads(CLUSTER.key), "given": []})
    told = isthmus(plain, "promote", plain.link)
    assert told.code == 1, told
    assert f"isthmus state forget {west.name} {control}" in told.out
    promoted = before | {f"ALLOW WRITE TOPIC:LITERAL:{topic} User:app *"}
    wait_for(lambda: bindings(west) == promoted, "what was staged, and no more")
    told = isthmus(plain, "unfence", west.name, "--yes")
    assert (told.code, "a fence takes no such ACL" in told.err) == (6, True), told
    for where, key in ((control, f"staged/{CLUSTER.key}"), (SITES, f"fence/{CLUSTER.key}")):
        assert isthmus(plain, "state", "forget", west.name, where, key).code == 0
    assert isthmus(plain, "unfence", west.name).code == 0
    assert isthmus(plain, "demote", plain.link).code == 0
    wait_for(lambda: bindings(west) == before, "a standby again")

    # With a secret, nothing is believed until somebody has looked at it and signed it.
    signed = with_secret(plain, FIRST)
    told = isthmus(signed, "promote", signed.link)
    assert (told.code, "isthmus state sign" in told.err) == (6, True), told
    shown = isthmus(signed, "state", "show", "--json")
    assert (shown.code, {row["signature"] for row in shown.document}) == (6, {"not signed"})
    assert isthmus(signed, "state", "sign", "--yes").code == 0
    assert isthmus(signed, "state", "show").code == 0
    copy_until_caught_up(signed)
    assert isthmus(signed, "apply").code == 0

    # Signed: nothing that mallory can write is seen, whatever it says.
    keys = forge_all(signed.link, east, west, topic)
    forge(west, control, "site/promoted", None)
    forge(east, SITES, f"site/{east.name}", ["a", "b", "c", "d"])
    forge(west, SITES, f"site/{east.name}", b"not json")
    forge(west, SITES, f"hook-fence/{west.name}", {"by": "x"})
    at_east, at_west = bindings(east), bindings(west)
    for verb in ("apply", "plan"):
        assert isthmus(signed, verb).code == 0
    assert (bindings(east), bindings(west)) == (at_east, at_west)
    assert isthmus(signed, "promote", signed.link).code == 0
    wait_for(lambda: bindings(west) == promoted, "what was staged, and no more")
    assert isthmus(signed, "demote", signed.link).code == 0
    wait_for(lambda: bindings(west) == before, "a standby again")
    assert bindings(east) == at_east
    shown = isthmus(signed, "state", "show", "--json")
    odd = {row["key"] for row in shown.document if not row["counts"]}
    assert (shown.code, set(keys) <= odd) == (6, True)
    listed = isthmus(signed, "sites", "list")
    assert listed.code == 0, listed
    assert f"records of {SITES} are not signed by us" in listed.err
    status = isthmus(signed, "status", "--json").document[0]
    assert min(status["forged"][east.name], status["forged"][west.name]) >= 2
    keeper = Keeper(signed.config.links[signed.link], *(signed.config.sites[site.name] for site in guarded))
    keeper.start()
    told_of: list[str] = []

    def heard(words: str) -> bool:
        told_of.extend(news.text for news in keeper.news())
        return any(words in text for text in told_of)

    try:
        for site, where in ((west, control), (west, SITES), (east, SITES)):
            words = f"records of {where} are not signed by us"
            wait_for(lambda site=site, words=words: heard(f"site {site.name}: ") and heard(words), "a run says so")
            assert METER.tables()[site.name, where][0] >= 2
    finally:
        keeper.stop()
    produce(east, topic, numbered(20, start=20))
    copy_until_caught_up(signed)
    assert len(read(west, topic)[0]) == 40

    # The secret is changed while the old one is still believed, then without it; without any nothing is read.
    both, new = with_secret(plain, SECOND, FIRST), with_secret(plain, SECOND)
    assert isthmus(both, "apply").code == 0
    assert isthmus(new, "plan").code != 0
    assert isthmus(both, "state", "sign").code == 0
    assert isthmus(new, "plan").code == 0
    told = isthmus(signed, "sites", "list")
    assert "signed with a newer secret" in told.err
    assert isthmus(signed, "promote", signed.link).code == 6
    told = isthmus(plain, "sites", "list")
    assert "no state.secret" in told.err


def test_a_link_s_user_has_no_say_in_recovery(guarded: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    """With rights on its own prefix alone it copies, and can touch neither fences nor journals nor other links."""
    east, west = guarded
    topic, link = create_topic(east, unique_topic("apart")), new_name("apart")
    create_topic(west, topic)
    own = f"_isthmus.{link}"
    grant(
        east, f"ALLOW READ TOPIC:LITERAL:{topic} User:app *", f"ALLOW DESCRIBE_CONFIGS TOPIC:LITERAL:{topic} User:app *"
    )
    grant(
        west,
        *(f"ALLOW {what} TOPIC:LITERAL:{topic} User:app *" for what in ("READ", "WRITE", "DESCRIBE_CONFIGS")),
        *(f"ALLOW {what} TOPIC:PREFIXED:{own}. User:app *" for what in ("READ", "WRITE", "CREATE")),
        f"ALLOW READ GROUP:LITERAL:{own} User:app *",
        f"ALLOW WRITE TRANSACTIONAL_ID:PREFIXED:{own}. User:app *",
    )
    entries = {site.name: site.site_yaml() for site in guarded}
    for entry in entries.values():
        entry["sasl"] = {**entry["sasl"], "username": "app", "password": USERS["app"]}
    sync = {"groups": False, "configs": False}
    made = {"from": east.name, "to": west.name, "topics": [topic], "sync": sync}
    setup = configure({site.name: site for site in guarded}, {link: made}, entries)
    produce(east, topic, numbered(30))
    copy_until_caught_up(setup)
    assert len(read(west, topic)[0]) == 30
    assert isthmus(setup, "pause", link).code == 0
    for foreign in (SITES, "_isthmus.other.control"):
        if foreign not in topics_of(west):
            create_topic(west, foreign)
        with pytest.raises(KafkaException, match="authorization failed"):
            send(producer_of(west, "app"), foreign, [Message(b"{}", b"fence/x")])


def test_a_bad_record_stops_what_it_is_about_and_nothing_else(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    topic = create_topic(east, unique_topic("bad-state"))
    produce(east, topic, numbered(5))
    setup = one_link(east, west, [topic], name=new_name(), sync={"groups": False})
    copy_until_caught_up(setup)

    def put(key: str, raw: bytes | None) -> None:
        send(producer_of(west), SITES, [Message(raw, key.encode())])

    put("site/elsewhere", b"not json")
    put("\x1b[31mjunk", b"not json")
    try:
        assert isthmus(setup, "apply").code == 0
        copy_until_caught_up(setup)
        listed = isthmus(setup, "sites", "list")
        assert "site/elsewhere" in listed.err
        assert "\x1b[31mjunk" not in listed.err + listed.out
        put(f"site/{east.name}", b"not json")
        told = run(setup, "--until-caught-up")
        assert told.code == 6, told
        assert f"{SITES}[0] at site {west.name}" in told.lines[-1]["message"]
        assert f"isthmus state forget {west.name} {SITES}" in told.lines[-1]["message"]
        assert "Traceback" not in told.err
    finally:
        for key in ("site/elsewhere", "\x1b[31mjunk", f"site/{east.name}"):
            isthmus(setup, "state", "forget", west.name, SITES, key, "--yes")
    produce(east, topic, numbered(5, start=5))
    copy_until_caught_up(setup)
    assert len(read(west, topic)[0]) == 10
