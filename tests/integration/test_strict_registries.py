"""Modes, ids that are kept, clashes, and registries that fail: against a strict registry of our own.

tests/strict_registry.py was written from the public specification of the Confluent API, because the real registry of the
sandbox has no modes. What works with a real registry is shown in test_schemas.py.
"""

from __future__ import annotations

import base64
import json
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import links
import pytest
import trustme
from links import Message, Setup
from test_schemas import applied, apply, ask, framed, linked, plan, register, version, versions

from isthmus.config import Registry
from isthmus.control import answers
from isthmus.control.change import Diff
from isthmus.control.ends import Ends
from isthmus.control.memory import recall, remember
from isthmus.control.meter import METER
from isthmus.control.registry import RegistryClient
from isthmus.control.resources import apply_link
from isthmus.control.schema_guard import left_lifted
from isthmus.engine.check import check_live
from isthmus.errors import AuthenticationFailed, ConnectionFailed
from isthmus.sandbox import KafkaSite
from isthmus.web.metrics import Exporter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from strict_registry import StrictRegistry

A, B, C = (json.dumps({"type": "enum", "name": name, "symbols": ["S"]}) for name in "ABC")
Sites = tuple[KafkaSite, KafkaSite]


@pytest.fixture
def pair() -> Iterator[tuple[StrictRegistry, StrictRegistry]]:
    with StrictRegistry() as east, StrictRegistry() as west:
        yield east, west


def test_ids_and_versions_are_kept_by_import(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    east, west = pair
    register(east, "one", A)
    register(east, "gone", B)
    register(east, "one", C)
    ask(east.url, "DELETE", "/subjects/one/versions/1")
    holds = [{"name": "C", "subject": "one", "version": 2}]
    register(east, "two", '{"type":"array","items":"C"}', references=holds)
    setup = linked(east_and_west, east, west, {"exclude": "gone", "ids": "keep"})
    assert applied(setup) == {"one": "create", "two": "create"}
    assert version(west, "one", 2) == version(east, "one", 2)
    assert version(west, "two", 1) == version(east, "two", 1)
    assert west.modes == {"": "READWRITE"}, "closed again"

    # An id that means another schema there is refused, and the plan names both.
    register(west, "squatter", '{"type":"fixed","name":"Q","size":2}')
    register(east, "three", '{"type":"fixed","name":"T","size":4}')
    blocked = plan(setup)["three"]
    assert blocked.action == "blocked"
    assert "three v1 at east" in blocked.why.replace(east_and_west[0].name, "east")
    assert "squatter v1" in blocked.why
    assert versions(west, "three") is None


def test_a_standby_is_readonly_for_others_until_it_is_promoted(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    east, west = pair
    register(east, "one", A)
    setup = linked(east_and_west, east, west, {"standby": True})
    assert applied(setup) == {"*": "alter", "one": "create"}
    with pytest.raises(AssertionError, match="read-only"):
        register(west, "mine", B)
    register(east, "one", B)
    assert applied(setup) == {"one": "grow"}
    # A run that was killed left a subject open: the next one closes it.
    link = setup.config.links[setup.link]
    with Ends(link, setup.config.sites[link.source], setup.config.sites[link.target]) as ends:
        ends.loop.run(remember, ends.target, link.name, {("schema-mode", "one"): ""})
    west.modes["one"] = "READWRITE"
    assert applied(setup) == {"one": "alter"}
    assert west.modes == {"": "READONLY"}
    assert versions(west, "one") == [1, 2]


def test_a_registry_that_lets_nobody_set_its_mode_is_used_without(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    east, west = pair
    east.null_for_none = west.null_for_none = west.fixed_modes = True
    topic = links.create_topic(east_and_west[0], links.new_name("modes"))
    setup = linked(east_and_west, east, west, {"standby": True}, topics=[topic])
    assert plan(setup)["*"].action == "alter", "nobody has asked for another mode yet; there are no subjects"
    register(east, "one", A)
    answer = links.isthmus(setup, "apply", setup.link, "--json")
    assert answer.code == 0, answer
    told = {outcome["name"]: outcome for outcome in answer.document[0]["outcomes"]}
    assert (told["one"]["done"], told["one"]["note"]) == (True, "")
    assert (told["*"]["done"], "no modes that can be set" in told["*"]["note"]) == (True, True)
    assert versions(west, "one") == [1]
    # It is said once; then it is a registry without modes.
    register(east, "one", B)
    kept = plan(setup)["*"]
    assert (kept.action, kept.told, "no modes that can be set" in kept.why) == ("keep", True, True)
    assert applied(setup) == {"one": "grow"}
    assert versions(west, "one") == [1, 2]
    assert [asked for asked in west.asked if asked.startswith("PUT /mode")] != []
    west.asked.clear()
    assert applied(setup) == {}
    assert [asked for asked in west.asked if asked.startswith("PUT /mode")] == []
    # A standby that cannot be closed is no failure of closing it, whoever tries first.
    fresh = linked(east_and_west, east, west, {"standby": True})
    applied(links.changed(fresh, sync={"schemas": {"standby": False}, "groups": False}))
    answer = links.isthmus(fresh, "demote", fresh.link, "--json")
    assert (answer.code, [change["note"] != "" for change in answer.document["changes"]]) == (0, [True]), answer
    # Ids cannot be kept there, and a plan says so.
    blocked = plan(links.changed(setup, sync={"schemas": {"ids": "keep"}, "groups": False}))["*"]
    assert blocked.action == "blocked"
    # Once it shows another mode, somebody could set it.
    west.fixed_modes, west.modes[""] = False, "READWRITE_OVERRIDE"
    assert applied(setup) == {"*": "alter"}
    assert west.modes == {"": "READONLY"}


def test_a_standby_is_promoted_and_what_was_registered_there_comes_home(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    """Failover without the source's registry, failback by a link the other way; each side is read-only while it is a standby."""
    east, west = pair
    register(east, "one", A)
    entries = {
        site.name: {**site.site_yaml(), "registry": {"url": registry.url, "retry_for": "200ms"}}
        for site, registry in zip(east_and_west, pair, strict=True)
    }
    names = [site.name for site in east_and_west]
    schemas = {"sync": {"schemas": {"standby": True}, "groups": False}, "topics": "none", "loop": "returning"}
    there, home = links.new_name("there"), links.new_name("home")
    both = {
        there: {"from": names[0], "to": names[1], **schemas},
        home: {"from": names[1], "to": names[0], **schemas},
    }
    setup = links.configure(dict(zip(names, east_and_west, strict=True)), both, entries)
    assert switched(setup, "promote", home) == []  # east is in service
    assert applied(setup) == {"*": "alter", "one": "create"}

    east.failing = 10**6  # the source is gone
    assert switched(setup, "promote", there, "--dry-run") == [("*", "mode", "READONLY", "READWRITE")]
    with pytest.raises(AssertionError, match="read-only"):
        register(west, "two", B)
    assert switched(setup, "promote", there) == [("*", "mode", "READONLY", "READWRITE")]
    assert switched(setup, "promote", there) == []
    new = register(west, "one", C)
    register(west, "two", B)

    east.failing = (
        0  # it is back, as a standby: a plan does not close what is promoted, and only the link home writes to east
    )
    assert plan(setup)["one"].action == "keep"
    assert west.modes == {"": "READWRITE"}
    assert switched(setup, "demote", home) == [("*", "mode", "READWRITE", "READONLY")]
    _, outcomes = apply_link(setup.config, setup.config.links[home], only=["schemas"])
    assert {o.change.name: (o.change.action, o.error) for o in outcomes} == {"one": ("grow", ""), "two": ("create", "")}
    assert version(east, "one", 2)["schema"] == C == version(west, "one", 2)["schema"]
    assert (versions(east, "one"), versions(east, "two"), new) == ([1, 2], [1], version(west, "one", 2)["id"])
    with pytest.raises(AssertionError, match="read-only"):
        register(east, "three", A)
    switched(setup, "promote", home)
    switched(setup, "demote", there)
    register(east, "three", A)
    assert west.modes == {"": "READONLY"}
    assert applied(setup) == {"one": "alter", "two": "alter", "three": "create"}  # what came from there is recognised
    # A registry that does not answer does not keep the rest from being promoted; the verb says so and can be given again.
    west.failing = 10**6
    told = links.isthmus(setup, "promote", there, "--json")
    assert (told.code, [c["done"] for c in told.document["changes"]]) == (1, [False])
    assert west.url in told.document["changes"][0]["error"]
    west.failing = 0
    assert switched(setup, "promote", there) == [("*", "mode", "READONLY", "READWRITE")]


def test_a_record_waits_for_a_schema_that_a_standby_does_not_take_from_tasks(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    """Only the link's own comparison opens a read-only registry: a task that meets a new id waits for it, without a fault."""
    east, west = pair
    register(west, "taken", C)
    register(east, "one", A)
    topic = links.create_topic(east_and_west[0], links.new_name("standby"))
    setup = linked(east_and_west, east, west, {"standby": True}, topics=[topic], rules=[{"schema_ids": {}}])
    assert applied(setup) == {"*": "alter", "one": "create"}
    late = register(east, "one", B)
    west.asked.clear()
    with links.Replicator(setup):
        links.produce(east_and_west[0], topic, [Message(framed(late, b"late"))])
        links.wait_for(lambda: "POST /subjects/one/versions" in west.asked, "the task to try")
        assert versions(west, "one") == [1]
        assert links.faults(setup) == {}
        assert applied(setup) == {"one": "grow"}
        links.wait_for_records(east_and_west[1], topic, 1)
    (value,) = (record.value for record in links.read(east_and_west[1], topic)[0])
    assert value == framed(version(west, "one", 2)["id"], b"late")


def switched(setup: Setup, verb: str, link: str, *options: str) -> list[tuple[str, str, str, str]]:
    """Promote or demote; what changed."""
    told = links.isthmus(setup, verb, link, *options, "--json")
    assert told.code == 0, told
    return [(c["name"], d["key"], d["before"], d["after"]) for c in told.document["changes"] for d in c["diff"]]


def test_normalised_schemas_are_recognised(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    """Two ways to write one schema are one where the destination normalises, and two where it does not."""
    east, west = pair
    spaced = '{ "name": "A",  "symbols": ["S"], "type": "enum" }'
    register(east, "one", spaced)
    register(east, "new", spaced.replace("A", "N"))
    register(west, "one", A)
    normal = linked(east_and_west, east, west, {"normalize": True})
    assert applied(normal) == {"one": "alter", "new": "create"}
    assert versions(west, "one") == [1]
    assert version(west, "new", 1)["schema"] == '{"name":"N","symbols":["S"],"type":"enum"}'
    as_it_is = linked(east_and_west, east, west, {"include": "one"})
    assert applied(as_it_is) == {"one": "grow"}
    assert version(west, "one", 2)["schema"] == spaced


def test_history_levels_metadata_and_secrets(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    """What the source accepted before its level was set is accepted; rule sets are stripped where asked; credentials are
    used, and never told."""
    east, west = pair
    register(east, "one", A, metadata={"properties": {"owner": "me"}}, ruleSet={"domainRules": []})
    ask(east.url, "PUT", "/config/one", {"compatibility": "NONE"})
    register(east, "one", '{"type":"enum","name":"A","symbols":["X"],"incompatible":true}')
    ask(east.url, "PUT", "/config/one", {"compatibility": "FULL_TRANSITIVE"})
    register(east, "free", B)
    west.authorization = "Basic " + base64.b64encode(b"me:hush-hush").decode()
    account = {"url": west.url, "username": "me", "password": "hush-hush"}
    setup = linked(east_and_west, east, account, {"normalize": True})
    assert applied(setup) == {"one": "create", "free": "create"}
    assert west.versions["one"][1]["metadata"] == {"properties": {"owner": "me"}}
    assert west.levels == {"one": "FULL_TRANSITIVE"}, "only where it is set, and after the history"
    assert any("normalize=true" in asked for asked in west.asked)
    # Unset at the source: unset at the destination, where we had set it.
    ask(east.url, "DELETE", "/config/one")
    assert applied(setup) == {"one": "alter"}
    assert west.levels == {}

    bare = linked(east_and_west, east, account, {"serverless": True, "rename": "bare.{subject}"})
    applied(bare)
    assert "metadata" not in west.versions["bare.one"][1]
    assert "ruleSet" not in west.versions["bare.one"][1]

    wrong = linked(east_and_west, east, {**account, "password": "hush-hush-2"}, "/.*/")
    (problem,) = (problem for problem in check_live(wrong.config) if problem.loc[0] == "sites")
    assert problem.loc == ("sites", east_and_west[1].name, "registry")
    assert "hush" not in problem.problem
    (blocked,) = plan(wrong).values()
    assert blocked.action == "blocked"
    assert west.url in blocked.why
    assert "hush" not in blocked.why


def incompatible(registry: StrictRegistry, subject: str, symbol: str = "X") -> int:
    """A version that its subject has taken while it had no guard."""
    ask(registry.url, "PUT", f"/config/{subject}", {"compatibility": "NONE"})
    schema = {"type": "enum", "name": "A", "symbols": [symbol], "incompatible": True}
    id_ = register(registry, subject, json.dumps(schema))
    ask(registry.url, "DELETE", f"/config/{subject}")
    return id_


def notes(setup: Setup) -> dict[str, str]:
    """Levels that are written down to be put back."""
    link = setup.config.links[setup.link]
    with Ends(link, setup.config.sites[link.source], setup.config.sites[link.target]) as ends:
        return left_lifted(ends.loop.run(recall, ends.target, link.name))


@pytest.mark.parametrize("before", ["FULL", None])
@pytest.mark.parametrize("how", ["dies", "killed"])
def test_a_level_that_was_lifted_is_put_back(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry], before: str | None, how: str
) -> None:
    """The registry dies, or the process is killed, while a level is lifted: it is written down, and the next run puts it back."""
    east, west = pair
    quick = {"url": west.url, "retry_for": "200ms"}
    register(east, "one", A)
    setup = linked(east_and_west, east, quick, "one")
    assert applied(setup) == {"one": "create"}
    levels = {"one": before} if before else {}
    west.levels = dict(levels)
    incompatible(east, "one")
    if how == "dies":
        west.dies_after = 2  # the look, the refusal, and no more: with the level lifted
        (outcome,) = apply(setup).values()
        assert "the level of one could not be put back" in outcome.error
    else:
        west.holds = "PUT /config/one"
        program = str(Path(sys.executable).with_name("isthmus"))
        with subprocess.Popen([program, "apply", "--config", str(setup.path)], stderr=subprocess.DEVNULL) as process:
            assert west.held.wait(60)
            process.kill()
        west.holds = None
    assert west.levels == {"one": "NONE"}
    assert notes(setup) == {"one": before or ""}

    west.failing = 0
    east.failing = 10**6  # put back whatever has become of the source
    impatient = linked(east_and_west, {"url": east.url, "retry_for": "100ms"}, quick, "one")
    impatient.config.links[setup.link] = impatient.config.links[impatient.link].model_copy(update={"name": setup.link})
    said, (outcome,) = apply_link(impatient.config, impatient.config.links[setup.link], only=["schemas"])
    assert [change.name for change in said] == ["*"]
    assert (outcome.change.name, outcome.change.action, outcome.error) == ("one", "alter", "")
    assert outcome.change.diff == (Diff("compatibility", "NONE", before),)
    assert (west.levels, notes(setup)) == (levels, {})
    east.failing = 0
    assert applied(setup) == {"one": "grow"}
    assert (west.levels, notes(setup), versions(west, "one")) == (levels, {}, [1, 2])


def test_a_level_that_somebody_has_set_since_is_theirs(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    east, west = pair
    register(east, "one", A)
    setup = linked(east_and_west, east, west, "one")
    applied(setup)
    link = setup.config.links[setup.link]
    with Ends(link, setup.config.sites[link.source], setup.config.sites[link.target]) as ends:
        ends.loop.run(remember, ends.target, link.name, {("schema-level", "one"): "FULL"})
    west.levels["one"] = "BACKWARD"
    assert applied(setup) == {"one": "alter"}
    assert (west.levels, notes(setup)) == ({"one": "BACKWARD"}, {})


def test_what_others_have_registered_is_not_overridden(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    """A level is lifted only among copies: where the destination has versions of its own, the plan says so, and is blocked where
    the level there refuses ours."""
    east, west = pair
    register(west, "own", B)
    west.levels["own"] = "FULL_TRANSITIVE"
    east.levels["own"] = "NONE"
    register(east, "own", A)
    incompatible(east, "own")
    east.levels["own"] = "NONE"  # which is not copied over theirs, either
    setup = linked(east_and_west, east, west, "own")
    # The first version fits beside theirs.
    change = plan(setup)["own"]
    assert (change.action, "the destination has 1 version that the source does not have" in change.why) == (
        "grow",
        True,
    )
    (outcome,) = apply(setup).values()
    assert "subject own has a version that is not at" in outcome.error
    for words in ("rename", "exclude", "change the level there yourself"):
        assert words in outcome.error
    assert versions(west, "own") == [1, 2]
    # The second does not, and that is known before.
    west.asked.clear()
    blocked = plan(setup)["own"]
    assert (blocked.action, "subject own has a version that is not at" in blocked.why) == ("blocked", True)
    said, outcomes = apply_link(setup.config, setup.config.links[setup.link], only=["schemas"])
    assert ([change.action for change in said], outcomes) == (["blocked"], [])
    assert not [asked for asked in west.asked if asked.startswith("PUT")]
    assert (versions(west, "own"), west.levels) == ([1, 2], {"own": "FULL_TRANSITIVE"})
    # Whoever owns the subject may let it in.
    west.levels["own"] = "NONE"
    assert applied(setup) == {"own": "grow"}
    assert (versions(west, "own"), west.levels) == ([1, 2, 3], {"own": "NONE"})


def test_a_level_over_what_others_have_registered_is_theirs(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    """A level of the source is not copied over one that guards somebody else's versions; one that the link has set goes on to follow."""
    east, west = pair
    register(west, "own", B)
    west.levels["own"] = "FULL_TRANSITIVE"
    for subject in ("own", "ours"):
        register(east, subject, A)
        east.levels[subject] = "NONE"
    setup = linked(east_and_west, east, west, "/.*/")
    assert plan(setup)["own"].why.endswith("that the source does not have, and keeps its compatibility level")
    assert applied(setup) == {"own": "grow", "ours": "create"}
    assert west.levels == {"own": "FULL_TRANSITIVE", "ours": "NONE"}
    register(west, "ours", B)
    east.levels["ours"] = "FULL"
    assert applied(setup) == {"ours": "alter"}
    assert west.levels == {"own": "FULL_TRANSITIVE", "ours": "FULL"}
    level = METER.levels()[setup.link]
    assert (level.done["set"], level.errors, level.applies) == (2, 0, 2)
    assert 0 < level.apply_seconds < METER.resources()[setup.link, "schemas"].apply_seconds


def test_copies_of_what_the_link_leaves_out_are_copies(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    """Older versions and deleted ones that another link has brought are the source's too, so history goes on."""
    east, west = pair
    for schema in (A, C):
        register(east, "one", schema)
    assert applied(linked(east_and_west, east, west, "one")) == {"one": "create"}
    west.levels["one"] = "FULL"
    ask(east.url, "DELETE", "/subjects/one/versions/1")
    incompatible(east, "one")
    latest = linked(east_and_west, east, west, {"include": "one", "versions": "latest"})
    assert "does not have" not in plan(latest)["one"].why
    assert applied(latest) == {"one": "grow"}
    assert (versions(west, "one"), west.levels) == ([1, 2, 3], {"one": "FULL"})


def test_a_long_history_is_copied_at_a_fixed_cost_a_version(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    east, west = pair
    register(east, "one", A)
    for number in range(30):
        incompatible(east, "one", f"X{number}")
    setup = linked(east_and_west, east, west, "one")
    apply(setup)
    assert len(versions(west, "one")) == 31
    assert len(east.asked) + len(west.asked) <= 4 * 31 + 31 * 10 + 10
    assert (west.levels, notes(setup)) == ({}, {})


def test_a_task_leaves_levels_to_the_links_own_comparison(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    """A record whose schema needs a level lifted waits for it, without a fault; one that will never be let in is unknown."""
    east, west = pair
    register(west, "other", C)
    register(east, "one", A)
    topic = links.create_topic(east_and_west[0], links.new_name("history"), 2)
    setup = linked(east_and_west, east, west, "/.*/", topics=[topic], rules=[{"schema_ids": {}}])
    applied(setup)
    west.levels["one"] = "FULL"
    late, never = incompatible(east, "one"), register(east, "other", B)
    never = incompatible(east, "other", "Y")
    west.asked.clear()
    with links.Replicator(setup):
        links.produce(east_and_west[0], topic, [Message(framed(late, b"late"))])
        links.produce(east_and_west[0], topic, [Message(framed(never, b"never"), partition=1)])
        links.wait_for(lambda: "POST /subjects/one/versions" in west.asked, "the task to try")
        links.wait_for(lambda: links.faults(setup) == {(topic, 1): "UnknownSchemaIds"}, "the fault")
        assert (versions(west, "one"), west.levels) == ([1], {"one": "FULL"})
        apply_link(setup.config, setup.config.links[setup.link], only=["schemas"])
        links.wait_for_records(east_and_west[1], topic, 1)
    (value,) = (record.value for record in links.read(east_and_west[1], topic)[0])
    assert value == framed(version(west, "one", 2)["id"], b"late")
    assert west.levels == {"one": "FULL"}


def test_nothing_is_asked_twice(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    """Cost is linear: so many requests for each new version, and three for each subject that is in step."""
    east, west = pair
    for number in range(40):
        for size in range(1, 4):
            register(east, f"s{number}", json.dumps({"type": "fixed", "name": f"F{number}", "size": size}))
    setup = linked(east_and_west, east, west, "/.*/")
    east.asked.clear()
    apply(setup)
    first = len(east.asked) + len(west.asked)
    assert first <= 40 * (2 + 3 + 3) + 10
    east.asked.clear()
    west.asked.clear()
    assert apply(setup) == {}
    assert len(east.asked) + len(west.asked) <= 3 * 40 + 10


def test_a_registry_that_fails(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    """5xx is tried again; a registry that stays away is told by name; data with known ids goes on meanwhile, and a record
    with an unknown id waits until the registry is back."""
    east, west = pair
    first = register(east, "one", A)
    register(west, "taken", C)
    topic = links.create_topic(east_and_west[0], links.new_name("down"), 2)
    quick = [{"url": registry.url, "retry_for": "2s", "timeout": "1s"} for registry in (east, west)]
    rules = [{"schema_ids": {}}]
    setup = linked(east_and_west, *quick, "/.*/", topics=[topic], rules=rules)
    west.failing = 3
    applied(setup)
    becomes = version(west, "one", 1)["id"]

    west.failing = 10**6
    started = time.monotonic()
    (blocked,) = plan(setup).values()
    told = Exporter().text()
    assert f'isthmus_control_errors_total{{link="{setup.link}",resource="schemas"}} 1\n' in told
    assert f'isthmus_control_blocked{{link="{setup.link}",resource="schemas"}} 1\n' in told
    assert blocked.action == "blocked"
    assert "503" in blocked.why
    assert west.url in blocked.why
    assert time.monotonic() - started < 30

    second = register(east, "one", B)
    with links.Replicator(setup):
        links.produce(east_and_west[0], topic, [Message(framed(second, b"new"))])
        links.produce(east_and_west[0], topic, [Message(framed(first, b"old"), partition=1)])
        links.wait_for_records(east_and_west[1], topic, 1)
        found = links.read(east_and_west[1], topic)
        assert [record.value for record in found[1]] == [framed(becomes, b"old")]
        assert found[0] == []
        west.failing = 0
        links.wait_for_records(east_and_west[1], topic, 2)
    (value,) = (record.value for record in links.read(east_and_west[1], topic)[0])
    assert value is not None
    assert struct.unpack(">I", value[1:5])[0] == version(west, "one", 2)["id"]


def test_a_run_that_breaks_off_is_finished_by_the_next(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    east, west = pair
    for number in range(20):
        for size in (1, 2):
            register(east, f"s{number}", json.dumps({"type": "fixed", "name": f"F{number}", "size": size}))
    setup = linked(east_and_west, east, {"url": west.url, "retry_for": "200ms"}, "/.*/")
    west.dies_after = 30
    outcomes = apply(setup).values()
    done, failed = [o for o in outcomes if o.done], [o for o in outcomes if not o.done]
    assert len(done) + len(failed) == 20
    assert 0 < len(failed) < 20
    assert all(west.url in outcome.error for outcome in failed)

    west.failing = 0
    assert set(applied(setup).values()) == {"grow"}
    expected = {f"s{number}": version(east, f"s{number}", 2)["schema"] for number in range(20)}
    assert {subject: numbers[2]["schema"] for subject, numbers in west.versions.items()} == expected
    assert all(len(numbers) == 2 for numbers in west.versions.values())


def test_https_and_tokens(tmp_path: Path) -> None:
    """The authority that the site names is trusted and no other; a token from a file is read anew."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    token = tmp_path / "token"
    token.write_text("first-word")
    with StrictRegistry(context) as registry:
        registry.authorization = "Bearer second-word"
        given = {"url": registry.url, "token": {"file": str(token)}, "retry_for": "1s"}
        client = RegistryClient(Registry.model_validate({**given, "tls": {"ca": str(tmp_path / "ca.pem")}}), "west")
        with pytest.raises(AuthenticationFailed, match="Unauthorized") as refusal:
            client.get("/subjects", answers.names)
        assert "word" not in str(refusal.value)
        token.write_text("second-word\n")
        assert client.get("/subjects", answers.names) == []
        client.close()
        stranger = RegistryClient(Registry.model_validate(given), "west")
        with pytest.raises(ConnectionFailed, match="certificate verify failed"):
            stranger.get("/subjects", answers.names)
        stranger.close()


def test_two_at_once(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    """Two runs that know nothing of each other, while the source changes, end in one state."""
    east, west = pair
    for number in range(20):
        for size in (1, 2):
            register(east, f"s{number}", json.dumps({"type": "fixed", "name": f"F{number}", "size": size}))
    setup = linked(east_and_west, east, west, "/.*/")

    def later() -> None:
        register(east, "s0", json.dumps({"type": "fixed", "name": "F0", "size": 3}))

    links.in_threads([lambda: apply(setup), lambda: apply(setup), later])
    applied(setup)
    assert {subject: len(numbers) for subject, numbers in west.versions.items()} == {
        f"s{number}": 3 if number == 0 else 2 for number in range(20)
    }


def test_two_at_once_that_lift_levels(east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]) -> None:
    """Neither takes the other's NONE for what was there."""
    east, west = pair
    subjects = [f"s{number}" for number in range(10)]
    for subject in subjects:
        register(east, subject, A)
    setup = linked(east_and_west, east, west, "/.*/")
    applied(setup)
    levels = {subject: "FULL" if number % 2 else "BACKWARD_TRANSITIVE" for number, subject in enumerate(subjects)}
    for round_ in range(3):
        west.levels = dict(levels)
        for subject in subjects:
            incompatible(east, subject, f"X{round_}")
        # One may find that the other has put a level back: told as a failure, and for the next run.
        links.in_threads([lambda: apply(setup)] * 2)
        apply(setup)
        assert (west.levels, notes(setup)) == (levels, {})
        assert {len(versions(west, subject)) for subject in subjects} == {2 + round_}


def test_a_registry_that_dies_while_subjects_are_compared_is_one_trouble(
    east_and_west: Sites, pair: tuple[StrictRegistry, StrictRegistry]
) -> None:
    east, west = pair
    for number in range(10):
        register(east, f"s{number}", A)
    setup = linked(east_and_west, east, {"url": west.url, "retry_for": "200ms"}, "/.*/")
    applied(setup)
    for number in range(10):
        register(east, f"s{number}", B)
    before = METER.resources()[setup.link, "schemas"].errors
    west.dies_after = 3  # in the middle of looking what is there
    assert [(name, change.action) for name, change in plan(setup).items()] == [("*", "blocked")]
    assert METER.resources()[setup.link, "schemas"].errors == before + 1
    west.failing = 0
    assert set(applied(setup).values()) == {"grow"}
