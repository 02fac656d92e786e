"""ACLs follow the source, a standby holds back who may write, and a missing right is named exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from links import (
    Message,
    Run,
    Setup,
    admin,
    allow,
    bindings,
    compare,
    configure,
    create_topic,
    deny,
    grant,
    isthmus,
    new_name,
    numbered,
    one_link,
    produce,
    producer_of,
    revoke,
    run,
    send,
    two_guarded,
    wait_for,
    wait_for_records,
)
from readers import commit, committed, sync

from isthmus.control.fence import Taken, fence, fenced, restore
from isthmus.kafka.cluster import Cluster
from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]
ALONE = {"groups": False}


@pytest.fixture(scope="module")
def walled(box: Sandbox) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites with an authoriser."""
    with two_guarded(box, ["walled-east", "walled-west"]) as both:
        yield both


def answer(setup: Setup, verb: str, code: int) -> dict[str, Any]:
    told = isthmus(setup, verb, "--json")
    assert told.code == code, told.out
    return told.document[0]


def acl_actions(setup: Setup, code: int) -> dict[str, str]:
    return {c["name"]: c["action"] for c in answer(setup, "plan", code)["changes"] if c["resource"] == "acls"}


def grant_needs(sites: tuple[KafkaSite, KafkaSite], needs: list[str]) -> None:
    """Grant what a plan asks for, word by word."""
    for need in needs:
        found = re.fullmatch(
            r"site (\S+): ALLOW (\S+) on (?:the (cluster)|(\S+) (\S+?))( \(prefixed\))? for User:isthmus", need
        )
        assert found, need
        (site,) = (site for site in sites if site.name == found[1])
        kind = {None: (found[4] or "").upper().replace("-", "_"), "cluster": "BROKER"}[found[3]]
        pattern = "PREFIXED" if found[6] else "LITERAL"
        grant(site, f"ALLOW {found[2]} {kind}:{pattern}:{found[5] or 'kafka-cluster'} User:isthmus *")


def test_missing_rights_are_named_exactly_and_all_at_once(
    walled: tuple[KafkaSite, KafkaSite], unique_topic: Name
) -> None:
    """With nothing allowed, granting what the first plan asks for, and nothing else, is enough to apply and to copy."""
    east, west = walled
    for site in walled:
        deny(site)
    stem = unique_topic("rights")
    small, fresh = create_topic(east, f"{stem}-small", 2, segment_bytes="20000000"), create_topic(east, f"{stem}-fresh")
    create_topic(west, small)
    produce(east, fresh, numbered(10))
    setup = one_link(east, west, [small, fresh], sync={**ALONE, "acls": True})
    told = answer(setup, "plan", 21)
    needs = told["missing_rights"]
    (change,) = (c for c in told["changes"] if c["resource"] == "rights")
    assert (change["action"], change["needs"]) == ("blocked", needs)
    at_source = {f"{op} on topic {name}" for name in (small, fresh) for op in ("READ", "DESCRIBE_CONFIGS")}
    assert {need for need in needs if need.startswith(f"site {east.name}")} == {
        f"site {east.name}: ALLOW {words} for User:isthmus"
        for words in {*at_source, "DESCRIBE on the cluster", "READ on topic _isthmus. (prefixed)"}
    }
    grant_needs(walled, needs)
    document = answer(setup, "plan", 20)
    assert document["missing_rights"] == []
    assert {c["name"]: c["action"] for c in document["changes"] if c["resource"] == "topics"} == {
        small: "grow",
        fresh: "create",
    }
    assert all(o["done"] for o in answer(setup, "apply", 0)["outcomes"])
    copied = run(setup, "--until-caught-up")
    assert copied.code == 0, copied
    assert compare(east, west, fresh) == 10

    # Of what is taken away, only that is asked for again, where the sites tell; transactions are asked for before they are needed.
    for kind, words in (("TRANSACTIONAL_ID:PREFIXED:_isthmus.", "transactional-id _isthmus. (prefixed)"),
                        (f"TOPIC:LITERAL:{fresh}", f"topic {fresh}")):  # fmt: skip
        revoke(west, f"ALLOW WRITE {kind} User:isthmus *")
        assert answer(setup, "plan", 21)["missing_rights"] == [
            f"site {west.name}: ALLOW WRITE on {words} for User:isthmus"
        ]
        grant(west, f"ALLOW WRITE {kind} User:isthmus *")
    answer(setup, "plan", 0)
    assert "no mistakes" in isthmus(setup, "config", "check", "--live").out

    # A DENY wins over every ALLOW: then that is named, and how to be rid of it.
    denial = f"DENY WRITE TOPIC:LITERAL:{fresh} User:isthmus *"
    grant(west, denial)
    try:
        told_of = f"remove DENY WRITE on topic {fresh} to User:isthmus: it wins over ALLOW WRITE on topic {fresh} for User:isthmus"
        assert answer(setup, "plan", 21)["missing_rights"] == [f"site {west.name}: {told_of}"]
        command = f"--remove --force --deny-principal User:isthmus --operation Write --topic {fresh}"
        assert command in isthmus(setup, "plan").out
        live = isthmus(setup, "config", "check", "--live")
        assert live.code == 3
        assert told_of in live.err
        assert command in live.err
    finally:
        revoke(west, denial)
    for site in walled:
        deny(site)


def test_missing_rights_of_topics_that_nobody_sees(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    """Only an expression is known, and groups follow: one round of granting is enough all the same."""
    east, west = walled
    for site in walled:
        deny(site)
    stem, group = unique_topic("hidden"), new_name("hidden")
    topic = create_topic(east, f"{stem}.orders", 2)
    produce(east, topic, numbered(10))
    commit(east, group, {(topic, 0): 4})
    setup = one_link(east, west, [f"/{stem}\\..*/"], rename="dr.{topic}", sync={"groups": [group]})
    needs = answer(setup, "plan", 21)["missing_rights"]
    assert f"site {west.name}: ALLOW CREATE on topic dr.{stem}. (prefixed) for User:isthmus" in needs
    assert f"site {west.name}: ALLOW READ on group {group} for User:isthmus" in needs
    grant_needs(walled, needs)
    assert answer(setup, "plan", 20)["missing_rights"] == []
    assert all(o["done"] for o in answer(setup, "apply", 0)["outcomes"])
    copied = run(setup, "--until-caught-up")
    assert copied.code == 0, copied
    assert compare(east, west, topic, f"dr.{topic}") == 10
    sync(setup)
    assert committed(west, group, f"dr.{topic}").offset == 4
    for site in walled:
        deny(site)


def test_topics_that_we_may_not_see(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    """They look as if they were not there: a plan must not take that for nothing to do."""
    east, west = walled
    for site in walled:
        deny(site)
    stem = unique_topic("unseen")
    create_topic(east, f"{stem}.orders")
    setup = one_link(east, west, [f"/{stem}\\.(orders|parcels).*/"], sync=ALONE)
    needs = [f"ALLOW READ on topic {stem}.{name} (prefixed)" for name in ("orders", "parcels")]
    (change,) = (c for c in answer(setup, "plan", 21)["changes"] if c["name"] == "*")
    assert change["needs"] == [f"site {east.name}: {need} for User:isthmus" for need in needs]
    assert f"or we may not describe any: grant {' and '.join(needs)}" in change["why"]
    told = isthmus(setup, "config", "check", "--live")
    assert (told.code, "or we may not describe any" in told.err) == (0, True), told
    words = "the site does not tell whether we have a right: "
    for right in (
        f"site {east.name}: {needs[0]}",
        f"site {west.name}: ALLOW WRITE on transactional-id _isthmus. (prefixed)",
    ):
        assert f"{words}{right} for User:isthmus" in told.err
    assert "warnings" in told.out


def test_acls_follow(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    east, west = walled
    for site in walled:
        deny(site)
        allow(site, "all", "topic", "")
        allow(site, "all", "cluster", "")
        allow(site, "all", "group", "")
        allow(site, "all", "transactional-id", "")
    stem = unique_topic("acl")
    topic = create_topic(east, f"{stem}.orders")
    at_source = [
        f"ALLOW READ TOPIC:LITERAL:{topic} User:reader 10.0.0.1",
        f"ALLOW WRITE TOPIC:LITERAL:{topic} User:writer *",
        f"ALLOW ALL TOPIC:PREFIXED:{stem} User:owner *",
        f"DENY WRITE TOPIC:LITERAL:{topic} User:intern *",
        f"DENY ALL TOPIC:LITERAL:{topic} User:eve *",
        f"ALLOW READ GROUP:PREFIXED:{stem} User:reader *",
        f"ALLOW READ TOPIC:LITERAL:{topic} User:left-out *",
        f"ALLOW READ TOPIC:LITERAL:{stem}other.orders User:reader *",
    ]
    grant(east, *at_source)
    theirs = f"ALLOW READ TOPIC:LITERAL:dr.{topic} User:operator *"
    grant(west, theirs)
    user = UserScramCredentialUpsertion("scrammy", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    client = admin(east)
    client.alter_user_scram_credentials([user])["scrammy"].result(30)
    options = {"principals": {"User:writer": "User:writer-dr", "User:left-out": "off"}}
    setup = one_link(east, west, [f"/{stem}\\..*/"], rename="dr.{topic}", sync={**ALONE, "acls": options})

    found = acl_actions(setup, 20)
    assert sorted(name for name, action in found.items() if action == "stage") == [
        f"ALLOW ALL on topic dr.{stem} (prefixed) to User:owner",
        f"ALLOW WRITE on topic dr.{topic} to User:writer-dr",
    ]
    assert found["SCRAM user scrammy"] == "keep"
    assert "cannot be copied" in isthmus(setup, "plan").out
    assert all(o["done"] for o in answer(setup, "apply", 0)["outcomes"])
    standby = {
        theirs,
        f"ALLOW READ TOPIC:LITERAL:dr.{topic} User:reader 10.0.0.1",
        f"ALLOW READ TOPIC:PREFIXED:dr.{stem} User:owner *",
        f"DENY WRITE TOPIC:LITERAL:dr.{topic} User:intern *",
        f"DENY ALL TOPIC:LITERAL:dr.{topic} User:eve *",
        f"ALLOW READ GROUP:PREFIXED:{stem} User:reader *",
    }
    assert answer(setup, "apply", 0)["outcomes"] == []  # at once: whichever broker is asked, it has heard of them
    assert bindings(west) == standby

    # Removed at the source: removed here, if we made it.
    grant(east, f"ALLOW READ TOPIC:LITERAL:{topic} User:operator *")
    assert answer(setup, "apply", 0)["outcomes"] == []
    revoke(east, f"ALLOW READ TOPIC:LITERAL:{topic} User:operator *", f"DENY WRITE TOPIC:LITERAL:{topic} User:intern *")
    (change,) = [c for c in answer(setup, "plan", 20)["changes"] if c["action"] == "delete"]
    assert change["name"] == f"DENY WRITE on topic dr.{topic} to User:intern"
    answer(setup, "apply", 0)
    standby.remove(f"DENY WRITE TOPIC:LITERAL:dr.{topic} User:intern *")
    wait_for(lambda: bindings(west) == standby, "the ACL to go")

    # Promotion grants what was staged, and it stays so; a standby again takes it back. The source is not needed for either.
    writers = {
        f"ALLOW WRITE TOPIC:LITERAL:dr.{topic} User:writer-dr *",
        f"ALLOW ALL TOPIC:PREFIXED:dr.{stem} User:owner *",
    }
    alone = without_source(setup)
    told = switch(alone, "promote", "--dry-run")
    assert {(c["action"], c["name"]) for c in told["changes"]} == {
        ("create", f"ALLOW WRITE on topic dr.{topic} to User:writer-dr"),
        ("create", f"ALLOW ALL on topic dr.{stem} (prefixed) to User:owner"),
    }
    assert bindings(west) == standby
    grant(west, max(writers))  # which somebody has granted by hand, and keeps
    assert [c["done"] for c in switch(alone, "promote")["changes"]] == [True]
    wait_for(lambda: bindings(west) == standby | writers, "the ACLs of a promoted site")
    assert switch(alone, "promote")["changes"] == []
    assert "nothing to change" in isthmus(alone, "promote", alone.link).err
    # The source is back, and there is nothing to do: READ, which stood in for ALL, is contained in it and stays.
    stand_in = f"ALLOW READ on topic dr.{stem} (prefixed) to User:owner"
    (change,) = (c for c in answer(setup, "plan", 0)["changes"] if c["name"] == stand_in)
    assert (change["action"], "stood in for ALL" in change["why"]) == ("keep", True)
    assert answer(setup, "apply", 0)["outcomes"] == []
    switch(alone, "demote")
    wait_for(lambda: bindings(west) == standby | {max(writers)}, "the ACLs of a standby again")
    assert answer(setup, "apply", 0)["outcomes"] == []
    # What is gone at the source is not granted by the next promotion.
    revoke(west, max(writers))
    revoke(east, f"ALLOW WRITE TOPIC:LITERAL:{topic} User:writer *")
    (told,) = answer(setup, "apply", 0)["outcomes"]
    assert told["why"] == "staged by this link, and gone at the source"
    switch(alone, "promote")
    wait_for(lambda: bindings(west) == standby | {f"ALLOW ALL TOPIC:PREFIXED:dr.{stem} User:owner *"}, "the rest")
    switch(alone, "demote")
    wait_for(lambda: bindings(west) == standby, "the ACLs of a standby once more")


def without_source(setup: Setup) -> Setup:
    """The same configuration with a source that nobody can reach."""
    document = json.loads(setup.path.read_text())
    document["sites"][setup.source.name]["bootstrap"] = ["127.0.0.1:1"]
    return configure(setup.sites, document["links"], document["sites"], document["spark"])


def switch(setup: Setup, verb: str, *options: str) -> dict[str, Any]:
    told = isthmus(setup, verb, setup.link, *options, "--json")
    assert told.code == 0, told
    found: dict[str, Any] = told.document
    return found


def test_a_fence_keeps_writers_away_until_it_is_taken_down(
    walled: tuple[KafkaSite, KafkaSite], unique_topic: Name
) -> None:
    east, west = walled
    for site in walled:
        deny(site)
        for kind in ("topic", "cluster", "group", "transactional-id"):
            allow(site, "all", kind, "")
    stem = unique_topic("fence")
    topic, other = create_topic(east, f"{stem}.orders"), create_topic(east, f"{stem}-other")
    before = {
        f"ALLOW WRITE TOPIC:LITERAL:{topic} User:writer *",
        f"ALLOW ALL TOPIC:PREFIXED:{stem}. User:owner 10.0.0.1",
        "ALLOW WRITE TOPIC:LITERAL:* User:* 10.9.9.9",
        f"ALLOW READ TOPIC:LITERAL:{topic} User:reader *",
        f"DENY WRITE TOPIC:LITERAL:{topic} User:intern *",
        f"ALLOW WRITE TOPIC:LITERAL:{other} User:writer *",
    }
    grant(east, *before)
    producer = producer_of(east, "writer", message_timeout_ms=10_000)
    ours = producer_of(east, "isthmus", message_timeout_ms=10_000)
    wait_for(lambda: written(producer, topic), "the writer to be let in")
    setup = one_link(east, west, [topic], sync={**ALONE, "acls": "on"})
    answer(setup, "apply", 0)
    at_standby = bindings(west)

    with Cluster(setup.config.sites[east.name]) as cluster:
        cluster.call(cluster.connect)
        taken = cluster.call(fence, cluster, [topic])
        assert {str(each.acl) for each in taken} == {
            f"ALLOW WRITE on topic {topic} to User:writer",
            f"ALLOW ALL on topic {stem}. (prefixed) to User:owner from 10.0.0.1",
            "ALLOW WRITE on topic * to User:* from 10.9.9.9",
        }
        behind = {
            f"ALLOW READ TOPIC:PREFIXED:{stem}. User:owner 10.0.0.1",
            f"ALLOW READ TOPIC:LITERAL:{topic} User:reader *",
            f"DENY WRITE TOPIC:LITERAL:{topic} User:intern *",
            f"ALLOW WRITE TOPIC:LITERAL:{other} User:writer *",
        }
        wait_for(lambda: bindings(east) == behind, "the fence")
        wait_for(lambda: not written(producer, topic), "the writer to be kept out")
        assert written(producer, other), "what is not fenced is open"
        assert written(ours, topic), "we keep our rights"
        # Again, after somebody has granted something meanwhile: that is taken, too, and nothing is forgotten.
        late = f"ALLOW WRITE TOPIC:LITERAL:{topic} User:late *"
        grant(east, late)
        again = cluster.call(fence, cluster, [topic])
        assert {each.acl for each in taken} < {each.acl for each in again}
        wait_for(lambda: bindings(east) == behind, "the fence again")
        assert [Taken.read(each.acl.key, json.loads(json.dumps(each.to_json()))) for each in again] == again
        # The link's own ACLs do not take a fence for the end of its writers.
        answer(setup, "apply", 0)
        staged = {name for name, action in acl_actions(setup, 0).items() if action == "stage"}
        assert f"ALLOW WRITE on topic {topic} to User:writer" in staged
        assert bindings(west) == at_standby
        assert cluster.call(restore, cluster) == again
        wait_for(lambda: bindings(east) == before | {late}, "what was there")
        wait_for(lambda: written(producer, topic), "the writer to be let in again")
        assert cluster.call(fenced, cluster) == []
        assert cluster.call(restore, cluster) == []
    for site in walled:
        deny(site)


def written(producer: Producer, topic: str) -> bool:
    """Whether a record is taken; a topic that one may not write to refuses."""
    try:
        return send(producer, topic, numbered(1)) == 1
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        return False


def test_rights_for_groups_are_named_one_by_one(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    """At the source and at the destination: each refusal names the ACL that ends it, and with all of them it is done."""
    east, west = walled
    topic, group = unique_topic("group-rights"), new_name("kept-out")
    for site in walled:
        deny(site)
        create_topic(site, topic)
        allow(site, "describe", "topic", topic)
    allow(west, "describe", "group", "_isthmus.")
    allow(west, "read", "topic", "_isthmus.")
    for site in walled:  # as another tool would have copied them
        produce(site, topic, [Message(b"%d" % n, timestamp=1_700_000_000_000 + n) for n in range(3)])
    commit(east, group, {(topic, 0): 1})
    setup = one_link(east, west, [topic], sync={"groups": [group]})
    for site, operation, kind, name in (
        (east, "DESCRIBE", "group", group),
        (west, "DESCRIBE", "group", group),
        (east, "READ", "topic", topic),
        (west, "READ", "group", group),
        (west, "READ", "topic", topic),
    ):
        told = sync(setup, code=6)
        need = f"site {site.name}: ALLOW {operation} on {kind} {name} for User:isthmus"
        if site is east and kind == "topic":
            assert need in told[f"{group} {topic}[0]"]["why"]
        else:
            assert told[group]["needs"] == [need]
        allow(site, operation.lower(), kind, name)

        def granted(site: KafkaSite = site, words: str = f"{operation} {kind.upper()}:PREFIXED:{name}") -> bool:
            return any(words in text for text in bindings(site, but=""))

        wait_for(granted, "the ACL")
    assert sync(setup)[group]["done"]
    assert committed(west, group, topic).offset in (0, 1)  # found by its time: at the record that is next, or before it
    for site in walled:
        deny(site)


def test_a_run_goes_on_while_resources_fail(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    """A registry that is down and ACLs that are refused: the records flow, the run tells of both, and of the end of it."""
    east, west = walled
    for site in walled:
        deny(site)
        for kind in ("topic", "group", "transactional-id"):
            allow(site, "all", kind, "")
        for operation in ("describe", "idempotent-write"):
            allow(site, operation, "cluster", "")
    topic = create_topic(east, unique_topic("beside"))
    grant(east, f"ALLOW READ TOPIC:LITERAL:{topic} User:reader *")
    produce(east, topic, numbered(10))
    often = {"interval": "1s"}
    registry = {"url": "http://127.0.0.1:1", "retry_for": "200ms", "timeout": "1s"}
    link = {"from": east.name, "to": west.name, "topics": [topic], "sync": {**ALONE, "acls": often, "schemas": often}}
    entries = {site.name: {**site.site_yaml(), "registry": registry} for site in walled}
    setup = configure({site.name: site for site in walled}, {new_name(): link}, entries)
    with Run(setup) as running:

        def heard(*words: str) -> bool:
            return any(all(each in line for each in words) for line in running.so_far().out.splitlines())

        wait_for_records(west, topic, 10)
        wait_for(lambda: heard("warning", "schemas: ", "127.0.0.1:1"), "news of the registry")
        wait_for(lambda: heard("warning", "acls: ", "not authorised to create ACLs"), "news of the ACL")
        produce(east, topic, numbered(10, 10))
        wait_for_records(west, topic, 20)
        allow(west, "alter", "cluster", "")
        wait_for(lambda: heard("info", "acls: in step again"), "news of the end of it", 90)
        assert f"ALLOW READ TOPIC:LITERAL:{topic} User:reader *" in bindings(west)
        produce(east, topic, numbered(10, 20))
        wait_for_records(west, topic, 30)
        running.interrupt()
        answer = running.finish()
    assert answer.code == 130, answer
    assert sum("127.0.0.1:1" in line for line in answer.out.splitlines()) == 1, "told once, however often it is met"
    assert compare(east, west, topic) == 30
    for site in walled:
        deny(site)


def test_sites_without_an_authoriser(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("open"))
    setup = one_link(east, west, [topic], sync={**ALONE, "acls": "on"})
    assert acl_actions(setup, 20) == {"*": "keep"}
