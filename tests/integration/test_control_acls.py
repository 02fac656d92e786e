"""ACLs follow the source, a standby holds back who may write, and a missing right is named exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from links import (
    Setup,
    admin,
    allow,
    copy_until_caught_up,
    create_topic,
    deny,
    isthmus,
    numbered,
    one_link,
    produce,
    wait_for,
)

from isthmus.control.acls import Acls
from isthmus.control.ends import Ends
from isthmus.sandbox import KafkaSite, Sandbox

Name = Callable[..., str]
ALONE = {"groups": False}
SECRETS = {"isthmus": "isthmus-secret"}


@pytest.fixture(scope="module")
def walled(box: Sandbox) -> Iterator[tuple[KafkaSite, KafkaSite]]:
    """Two sites with an authoriser."""
    names = ["walled-east", "walled-west"]
    first, second = box.start_all(names, sasl="PLAIN", acls=True, users=SECRETS)
    yield first, second
    for name in names:
        box.remove(name)


def bindings(site: KafkaSite, but: str = "User:isthmus") -> set[str]:
    """All ACLs of a site but those of one principal, as "PERMISSION OPERATION kind:pattern:name principal host"."""
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    client = admin(site)
    return {
        f"{a.permission_type.name} {a.operation.name} {a.restype.name}:{a.resource_pattern_type.name}:{a.name} "
        f"{a.principal} {a.host}"
        for a in client.describe_acls(every).result(30)
        if a.principal != but
    }


def binding(text: str) -> AclBinding:
    permission, operation, resource, principal, host = text.split(" ")
    kind, pattern, name = resource.split(":")
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        principal,
        host,
        AclOperation[operation],
        AclPermissionType[permission],
    )


def grant(site: KafkaSite, *texts: str) -> None:
    client = admin(site)
    for future in client.create_acls([binding(text) for text in texts]).values():
        future.result(30)
    wait_for(lambda: set(texts) <= bindings(site, but=""), "ACLs")


def revoke(site: KafkaSite, *texts: str) -> None:
    client = admin(site)
    filters = [
        AclBindingFilter(
            b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, b.permission_type
        )
        for b in map(binding, texts)
    ]
    for future in client.delete_acls(filters).values():
        future.result(30)
    wait_for(lambda: not set(texts) & bindings(site, but=""), "ACLs to go")


def answer(setup: Setup, verb: str, code: int) -> dict[str, Any]:
    told = isthmus(setup, verb, "--json")
    assert told.code == code, told.out
    return told.document[0]


def acl_actions(setup: Setup, code: int) -> dict[str, str]:
    return {c["name"]: c["action"] for c in answer(setup, "plan", code)["changes"] if c["resource"] == "acls"}


def test_a_missing_right_is_named_exactly(walled: tuple[KafkaSite, KafkaSite], unique_topic: Name) -> None:
    """With nothing allowed, granting what plan asks for, and nothing else, is enough to apply and to copy."""
    east, west = walled
    for site in walled:
        deny(site)
    stem = unique_topic("rights")
    small, fresh = create_topic(east, f"{stem}-small", 2, segment_bytes="20000000"), create_topic(east, f"{stem}-fresh")
    create_topic(west, small)
    produce(east, fresh, numbered(10))
    setup = one_link(east, west, [small, fresh], sync={**ALONE, "acls": True})
    asked: set[str] = set()
    for _ in range(6):
        told = isthmus(setup, "plan", "--json")
        needs = told.document[0]["missing_rights"]
        if not needs:
            break
        assert told.code == 21
        assert not set(needs) & asked, "asked for again, though granted"
        asked |= set(needs)
        for need in needs:
            found = re.fullmatch(
                r"site (\S+): ALLOW (\S+) on (?:the (cluster)|(\S+) (\S+?))( \(prefixed\))? for User:isthmus", need
            )
            assert found, need
            site = {east.name: east, west.name: west}[found[1]]
            kind = {None: (found[4] or "").upper().replace("-", "_"), "cluster": "BROKER"}[found[3]]
            pattern = "PREFIXED" if found[6] else "LITERAL"
            grant(site, f"ALLOW {found[2]} {kind}:{pattern}:{found[5] or 'kafka-cluster'} User:isthmus *")
    assert told.code == 20, told.out
    document = answer(setup, "plan", 20)
    assert {c["name"]: c["action"] for c in document["changes"] if c["resource"] == "topics"} == {
        small: "grow",
        fresh: "create",
    }
    assert all(o["done"] for o in answer(setup, "apply", 0)["outcomes"])
    for operation in ("write", "describe"):
        allow(west, operation, "transactional-id", "_isthmus.")
    copy_until_caught_up(setup)
    for site in walled:
        deny(site)


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
    wait_for(lambda: bindings(west) == standby, "the ACLs of a standby")
    assert answer(setup, "apply", 0)["outcomes"] == []

    # Removed at the source: removed here, if we made it.
    grant(east, f"ALLOW READ TOPIC:LITERAL:{topic} User:operator *")
    assert answer(setup, "apply", 0)["outcomes"] == []
    revoke(east, f"ALLOW READ TOPIC:LITERAL:{topic} User:operator *", f"DENY WRITE TOPIC:LITERAL:{topic} User:intern *")
    (change,) = [c for c in answer(setup, "plan", 20)["changes"] if c["action"] == "delete"]
    assert change["name"] == f"DENY WRITE on topic dr.{topic} to User:intern"
    answer(setup, "apply", 0)
    standby.remove(f"DENY WRITE TOPIC:LITERAL:dr.{topic} User:intern *")
    wait_for(lambda: bindings(west) == standby, "the ACL to go")

    # Promotion grants what was staged, and it stays so; a standby again takes it back.
    link = setup.config.links[setup.link]
    with Ends(link, setup.config.sites[east.name], setup.config.sites[west.name]) as ends:
        assert all(outcome.done for outcome in ends.loop.run(Acls().promote, ends))
        writers = {
            f"ALLOW WRITE TOPIC:LITERAL:dr.{topic} User:writer-dr *",
            f"ALLOW ALL TOPIC:PREFIXED:dr.{stem} User:owner *",
        }
        promoted = standby - {f"ALLOW READ TOPIC:PREFIXED:dr.{stem} User:owner *"} | writers
        wait_for(lambda: bindings(west) == promoted, "the ACLs of a promoted site")
        assert answer(setup, "apply", 0)["outcomes"] == []
        assert all(outcome.done for outcome in ends.loop.run(Acls().demote, ends))
        wait_for(lambda: bindings(west) == standby, "the ACLs of a standby again")


def test_sites_without_an_authoriser(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("open"))
    setup = one_link(east, west, [topic], sync={**ALONE, "acls": "on"})
    assert acl_actions(setup, 20) == {"*": "keep"}
