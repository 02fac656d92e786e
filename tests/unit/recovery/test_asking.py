"""What operators are asked and told before and while an operation goes on."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from isthmus.cli import ask
from isthmus.config import load
from isthmus.control.rights import command_of, right
from isthmus.engine.snapshot import LinkState, PartitionState
from isthmus.errors import ConnectionFailed, DataError, Interrupted
from isthmus.kafka.cluster import NO_ID
from isthmus.recovery import catching_up
from isthmus.recovery.failback import Failback
from isthmus.recovery.failover import Emergency
from isthmus.recovery.journal import Entry
from isthmus.recovery.onward import no_runs
from isthmus.recovery.operation import Operation, Step
from isthmus.recovery.reseed import Reseed
from isthmus.recovery.seeded import Seeded
from isthmus.recovery.stage import links_between
from isthmus.recovery.unfinished import command

CONFIG = """
sites:
  east: {bootstrap: "127.0.0.1:1", sasl: {mechanism: PLAIN, username: us, password: secret}}
  west: {bootstrap: "127.0.0.1:2"}
links:
  there: {from: east, to: west, topics: [orders], rate_limit: 2MB/s}
"""


@pytest.fixture
def config(tmp_path: Path) -> Any:
    path = tmp_path / "isthmus.yaml"
    path.write_text(CONFIG)
    return load(path)


@pytest.mark.parametrize(
    ("terminal", "yes", "answer", "goes_on"),
    [(True, False, False, False), (True, False, True, True), (True, True, False, True), (False, False, False, True)],
)
def test_only_people_are_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, terminal: bool, yes: bool, answer: bool, goes_on: bool
) -> None:
    monkeypatch.setattr(ask, "on_terminal", lambda: terminal)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: answer)
    assert ask.agreed("this is final", "go on?", yes) == goes_on


def test_an_emergency_of_a_living_site_is_asked_about_and_a_dry_run_warns(config: Any) -> None:
    asked: list[str] = []

    def no(warning: str) -> bool:
        asked.append(warning)
        return False

    stage = SimpleNamespace(
        config=config,
        site=lambda _: None,
        answers=lambda _: True,
        told=lambda *names: [f"{n}: answers" for n in names],
        at=lambda *_: None,
    )
    operation: Any = SimpleNamespace(stage=stage)
    emergency = Emergency(operation, "east", "west", None, no)
    with pytest.raises(Interrupted, match="nothing was changed"):
        emergency.check()
    assert "--planned" in asked[0]
    assert asked[0] in emergency.plan_check()


def test_a_limit_that_a_step_waits_for_is_named(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = iter([3, 10])

    def look() -> LinkState:
        position = next(positions)
        partition = PartitionState("orders", 0, "orders", position, 10, 10 - position)
        state = LinkState("there", "east", "west", "running", rate_limit=2_000_000, partitions=[partition])
        state.topics = {"orders": ("", 1)}
        return state

    @contextlib.contextmanager
    def observed(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(look=look)

    monkeypatch.setattr(catching_up, "_observed", observed)
    notes: list[str] = []
    catching_up.catch_up(config, [config.links["there"]], notes.append, 60.0)
    assert "limited to 2 MB/s" in notes[0]
    assert "isthmus limit there off" in notes[0]


def test_a_right_as_a_command(config: Any) -> None:
    site = config.sites["east"]
    begin = "kafka-acls.sh --bootstrap-server 127.0.0.1:1 --add --allow-principal User:us --operation"

    def line(*what: Any) -> str:
        return command_of(str(right(site, *what)), site.bootstrap[0])

    assert line("DESCRIBE_CONFIGS", "cluster") == f"{begin} DescribeConfigs --cluster"
    assert line("WRITE", "topic", "_isthmus.", True) == (
        f"{begin} Write --topic _isthmus. --resource-pattern-type prefixed"
    )
    assert line("READ", "group", "$(rm x); 'y'") == begin + " Read --group " + shlex.quote("$(rm x); 'y'")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("failover", "a", "b", "planned", {"fence": None}), "isthmus failover a --to b --planned"),
        (Entry("failover", "a", "b", "planned", {"fence": "none"}), "isthmus failover a --to b --planned --fence none"),
        (Entry("failback", "a", "b", "", {"policy": "append"}), "isthmus failback a --from b"),
        (Entry("reseed", "a", "b", "", {"wipe": True}), "isthmus reseed a --from b --wipe"),
    ],
)
def test_the_command_that_goes_on(entry: Entry, words: str) -> None:
    assert command(entry) == words


RING = """
sites:
  a: {bootstrap: "127.0.0.1:1"}
  b: {bootstrap: "127.0.0.1:2"}
  c: {bootstrap: "127.0.0.1:3"}
links:
  a-b: {from: a, to: b, topics: ["/.*/"], origin: true, loop: returning}
  b-c: {from: b, to: c, topics: ["/.*/"], origin: true, loop: returning}
  c-a: {from: c, to: a, topics: ["/.*/"], origin: true, loop: returning, headers: off}
"""


def test_links_that_a_rebuilt_ring_holds_are_named_with_the_commands_that_release_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text(RING)
    notes: list[str] = []
    released: list[tuple[object, ...]] = []
    stage = SimpleNamespace(
        config=load(path),
        answers=lambda _: True,
        site=lambda _: None,
        at=lambda site, doing, work, *_: (
            {"pay": 1, "orders": 1} if doing == "listing topics" else released.append((site,))
        ),
    )
    entry = Entry("reseed", "a", "b")
    operation: Any = SimpleNamespace(stage=stage, entry=entry, note=lambda step, words: notes.append(words))
    reseed = Reseed(operation, "a", "b", wipe=False, seconds=1.0, verify=False)
    (link,) = reseed._links_elsewhere()
    seeded = [Seeded(topic, NO_ID, topic, NO_ID, 0, 5, no_runs()) for topic in ("pay", "orders")]
    words = reseed._cut_elsewhere(link, seeded)  # copies of one link do not tell their offsets
    assert "births are not told alike" in words
    entry.done["cut"] = {"found": {"elsewhere": {link.name: words}}}
    monkeypatch.setattr(Reseed, "_made", lambda *_: set())
    assert reseed.release()["held"] == {"c-a": words}
    assert "isthmus reset c-a orders pay --to latest" in notes[-1]
    assert "isthmus resume c-a --held" in notes[-1]


class _Sites:
    """A stage on which some sites do not answer."""

    def __init__(self, config: Any, silent: set[str]) -> None:
        self.config, self._silent = config, silent

    def answers(self, name: str) -> bool:
        return name not in self._silent

    def site(self, name: str) -> str:
        if name in self._silent:
            raise ConnectionFailed(f"{name} does not answer", name)
        return name

    def run(self, work: Any, *arguments: Any) -> Any:
        return work(*arguments)


@pytest.mark.parametrize("mode", ["planned", "emergency"])
@pytest.mark.parametrize("silent", [set(), {"east"}, {"north"}])
def test_every_site_is_asked_before_an_operation_begins(mode: str, silent: set[str]) -> None:
    """Also a third one, which may keep an operation of the same site; only an emergency begins without the other one of the pair."""
    stage = _Sites(SimpleNamespace(sites=["east", "west", "north"]), silent)
    asked: list[list[str]] = []
    told: list[str] = []
    entry = Entry("failover", "east", "west", mode)
    journal = SimpleNamespace(entry=entry, begin=lambda others: asked.append(others), write=lambda: None)
    operation = Operation(cast(Any, stage), cast(Any, journal), lambda told_: told.append(told_.words))
    step = Step("fence", "keep writers away", dict)
    if mode == "planned" and "east" in silent:
        with pytest.raises(ConnectionFailed):
            operation.carry_out([step])
        assert (asked, entry.done) == ([], {})
        return
    operation.carry_out([step])
    assert asked == [[name for name in ("east", "north") if name not in silent]]
    for name in silent:
        assert any(words.startswith(f"{name} does not answer") for words in told)


@pytest.mark.parametrize(
    ("authoriser", "given", "refused"), [(False, None, True), (False, "none", False), (True, None, False)]
)
def test_a_failback_without_a_fence_is_a_choice(config: Any, authoriser: bool, given: Any, refused: bool) -> None:
    """As any planned move, and before anything is changed."""
    stage: Any = SimpleNamespace(config=config, at=lambda *_: authoriser)
    entry = Entry("failback", "east", "west", "", {"starts": {}})
    operation: Any = SimpleNamespace(stage=stage, entry=entry)
    between, how = links_between(config, "east", "west"), {"policy": "append", "seconds": 1.0, "verify": False}
    steps = Failback(operation, "east", "west", between, between.forward, fence=given, **cast(Any, how))
    with pytest.raises(DataError, match="--fence none") if refused else contextlib.nullcontext():
        steps._refuse_unfenced()
