"""Metrics: the text is valid by the letter of the format, lag is told in seconds, and only who may read it does."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

import isthmus.web.server as web_server
from isthmus.cli.link_table import link_table
from isthmus.config import loads
from isthmus.control.change import Change, Diff, Outcome
from isthmus.control.meter import Meter
from isthmus.engine.report import Reports, SlotReport
from isthmus.engine.snapshot import LinkState, PartitionState
from isthmus.errors import ConfigError, UsageError
from isthmus.web.metrics import MOST_MARKS, Exporter, LagClock
from isthmus.web.openmetrics import CONTENT_TYPE, Family, render
from isthmus.web.server import MetricsServer

KEY = ("link", "topic", 0)


def samples(text: str) -> dict[str, float]:
    """Lines of the format, read by the letter of its definition."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    found: dict[str, float] = {}
    for line in lines[:-2]:
        if not line.startswith("# "):
            name, value = line.rsplit(" ", 1)
            assert name not in found, f"twice: {name}"
            found[name] = float(value)
    return found


def test_the_format() -> None:
    family = Family("isthmus_x", "counter", "What it\nis").add(3, group='a "b"\\\n').add(0.5, group="c")
    summary = Family("isthmus_s", "summary", "Time").add((2, 1.5), link="l")
    assert render([family, summary, Family("isthmus_none", "gauge", "")]) == (
        "# TYPE isthmus_x counter\n# HELP isthmus_x What it\\nis\n"
        'isthmus_x_total{group="a \\"b\\"\\\\\\n"} 3\nisthmus_x_total{group="c"} 0.5\n'
        "# TYPE isthmus_s summary\n# HELP isthmus_s Time\n"
        'isthmus_s_count{link="l"} 2\nisthmus_s_sum{link="l"} 1.5\n# EOF\n'
    )


def test_lag_in_seconds() -> None:
    clock = LagClock()
    assert clock.seconds(KEY, 0, 0, 100.0) == 0
    assert clock.seconds(KEY, 0, 10, 101.0) == 0  # seen just now
    assert clock.seconds(KEY, 0, 20, 105.0) == 4
    assert clock.seconds(KEY, 10, 20, 106.0) == 1  # what came at 101 is copied
    assert clock.seconds(KEY, 15, 20, 109.0) == 4
    assert clock.seconds(KEY, 20, 20, 110.0) == 0
    assert clock.seconds(KEY, 20, 30, 111.0) == 0
    assert clock.seconds(("link", "topic", 1), 0, 5, 111.0) == 0
    for second in range(10 * MOST_MARKS):  # one that stands still for long, and what it costs to know
        lag = clock.seconds(("link", "topic", 2), 0, second + 1, float(second))
    assert lag == 10 * MOST_MARKS - 1
    assert all(len(marks) <= MOST_MARKS for marks in clock._marks.values())


def counted() -> Meter:
    meter = Meter()
    moved = Change("groups", "g 1", "create", "", (Diff("t[0]", None, "5"), Diff("t[1]", None, "6")))
    stuck = Change("groups", "g 1 t[2]", "blocked", "why")
    meter.planned("l", "groups", [moved, stuck], 0.5)
    meter.applied("l", "groups", [Outcome(moved)], 0.25)
    meter.applied("l", "groups", [Outcome(moved, "refused")], 0.25)
    subject = Change(
        "schemas", "s", "create", "", (Diff("version 1", None, "AVRO"), Diff("compatibility", None, "FULL"))
    )
    meter.applied("l", "schemas", [Outcome(subject)], 0.1)
    meter.applied("l", "schemas", [Outcome(subject, "refused")], 0.1)  # its versions were, so no level was tried
    meter.set_level("l", True, 0.02)
    meter.set_level("l", False, 0.03)
    meter.saw("west", "_isthmus.sites", 1, 1)
    meter.saw("west", "_isthmus.sites", 7, 2)
    return meter


def test_what_is_told() -> None:
    state = LinkState("l", "east", "west", "running", records_per_second=12.5)
    state.partitions = [
        PartitionState("t", 0, "t", 5, 10, 5),
        PartitionState("t", 1, "t", None, 10, None, fault="SourceDeleted"),
    ]
    exporter = Exporter(redpanda_names=True, meter=counted())
    exporter.take([state])
    told = samples(exporter.text())
    assert told['isthmus_lag_records{link="l",topic="t",partition="0"}'] == 5
    assert told['isthmus_lag_seconds{link="l",topic="t",partition="0"}'] == 0
    assert told['isthmus_partition_fault{link="l",topic="t",partition="1",fault="SourceDeleted"}'] == 1
    assert told['isthmus_link_running{link="l"}'] == 1
    assert told['isthmus_group_offsets_translated_total{link="l",group="g 1"}'] == 2
    assert told['isthmus_group_translation_errors_total{link="l",group="g 1"}'] == 1
    assert told['isthmus_group_offsets_committed_total{link="l",group="g 1"}'] == 2
    assert told['isthmus_group_commit_errors_total{link="l",group="g 1"}'] == 1
    assert told['isthmus_group_commit_seconds_sum{link="l",group="g 1"}'] == 0.5
    assert told['isthmus_control_changes_total{link="l",resource="groups",action="create"}'] == 1
    assert told['isthmus_control_blocked{link="l",resource="groups"}'] == 1
    assert told['redpanda_lag{link="l",topic="t",partition="0"}'] == 5
    assert told['redpanda_migrator_cg_offset_commit_latency_ns_sum{link="l",group="g 1"}'] == 5e8
    assert told['redpanda_migrator_sr_schemas_created_total{link="l"}'] == 1
    assert told['redpanda_migrator_sr_schema_create_errors_total{link="l"}'] == 1
    for ours, theirs, unit in (
        ("isthmus_compatibility_update", "redpanda_migrator_sr_compatibility_update", 1e9),
        ("isthmus_group_translation", "redpanda_migrator_cg_offset_translation", 1e9),
    ):
        labels = '{link="l"}' if "compat" in ours else '{link="l",group="g 1"}'
        assert told[f"{ours}_errors_total{labels}"] == told[f"{theirs}_errors_total{labels}"] == 1
        assert told[f"{ours}_seconds_count{labels}"] == told[f"{theirs}_latency_ns_count{labels}"] == 2
        seconds, nanos = told[f"{ours}_seconds_sum{labels}"], told[f"{theirs}_latency_ns_sum{labels}"]
        assert seconds == pytest.approx(nanos / unit)
    assert told['isthmus_compatibility_updates_total{link="l"}'] == 1
    assert told['redpanda_migrator_sr_compatibility_updates_total{link="l"}'] == 1
    assert told['isthmus_compatibility_update_seconds_sum{link="l"}'] == pytest.approx(0.05)
    assert told['isthmus_state_forged_records{site="west",topic="_isthmus.sites"}'] == 7
    assert told['isthmus_state_bad_records{site="west",topic="_isthmus.sites"}'] == 2
    plain = Exporter(meter=counted())
    plain.take([state])
    assert "redpanda" not in plain.text()


def test_a_comparison_that_cannot_be_made_is_an_error() -> None:
    """A registry that is down: one blocked change in each plan, which a gauge alone would show as it stands only now."""
    meter = Meter()
    down = Change("schemas", "*", "blocked", "no use")
    for changes in ([down], [down], [Change("schemas", "s", "blocked", "refused"), Change("schemas", "t", "keep", "")]):
        meter.planned("l", "schemas", changes, 0.1)
    told = samples(Exporter(meter=meter).text())
    assert told['isthmus_control_errors_total{link="l",resource="schemas"}'] == 2
    assert told['isthmus_control_blocked{link="l",resource="schemas"}'] == 1


def test_what_the_rule_of_schema_ids_met() -> None:
    """Tasks count from nothing under each lease; the metric grows all the same, and is of this run."""
    reports = Reports()

    def report(slot: int, run: str, lease: int, **met: int) -> None:
        reports.take([SlotReport(slot, run, lease, 0, 0, 0, 0, 0, 0, schema_ids=met).record()])

    report(0, "before", 1, translated=99, malformed=9)
    report(0, "now", 2, translated=5, malformed=0)
    report(1, "now", 2, translated=7, malformed=1)
    report(0, "now", 2, translated=6, malformed=2)  # goes on
    report(0, "now", 3, translated=1, malformed=0)  # the next lease
    report(0, "now", 3, translated=0, malformed=0)  # the same one, repeated
    report(0, "now", 3, translated=2, malformed=0)
    assert reports.schema_ids["now"] == {"translated": 6 + 7 + 1 + 2, "malformed": 3}
    state = LinkState("l", "east", "west", "running", schema_ids={"translated": 9, "malformed": 1, "unknown": 0})
    state.schema_ids_watched = dict(reports.schema_ids["now"])
    exporter = Exporter()
    exporter.take([state])
    told = samples(exporter.text())
    assert told['isthmus_schema_ids_total{link="l",met="translated"}'] == 16
    assert told['isthmus_schema_ids_total{link="l",met="malformed"}'] == 3
    assert state.to_json()["schema_ids"] == {"translated": 9, "malformed": 1, "unknown": 0}
    assert shown(state) == ["schema ids under the newest lease: 9 translated, 1 malformed"]
    state.schema_ids = {"translated": 0, "malformed": 0}
    assert shown(state) == []


def shown(state: LinkState) -> list[str]:
    """Lines about schema ids in the table for people."""
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(link_table([state]))
    return [line.strip() for line in captured.get().splitlines() if "schema ids" in line]


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_only_with_the_token() -> None:
    before = threading.active_count()
    with MetricsServer(("127.0.0.1", 0), lambda: "s3cret", lambda: "text\n# EOF\n") as server:
        assert get(server.port)[0] == 401
        assert get(server.port, "/other")[0] == 401
        assert get(server.port, Authorization="Bearer wrong")[0] == 401
        assert get(server.port, Authorization="Bearer s3cret") == (200, CONTENT_TYPE, "text\n# EOF\n")
        assert get(server.port, "/other", Authorization="Bearer s3cret")[0] == 404
        with pytest.raises(UsageError, match="cannot be served"):
            MetricsServer(("127.0.0.1", server.port), None, str)
    with MetricsServer(("127.0.0.1", 0), None, lambda: "# EOF\n") as server:
        assert get(server.port)[0] == 200
    assert threading.active_count() <= before + 1


def test_an_empty_token_lets_nobody_in() -> None:
    token = ""
    with MetricsServer(("127.0.0.1", 0), lambda: token, lambda: "text\n") as server:
        for given in ("Bearer", "Bearer ", "Bearer  ", ""):
            assert get(server.port, Authorization=given)[0] == 401
        token = "\n"
        assert get(server.port, Authorization="Bearer \t")[0] == 401

    def gone() -> str:
        raise ConfigError("secret file /x: no such file")

    with MetricsServer(("127.0.0.1", 0), gone, lambda: "text\n") as server:
        assert get(server.port, Authorization="Bearer x")[::2] == (503, "the token cannot be read\n")


def test_who_drips_is_cut_off_and_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 600.0)
    with MetricsServer(("127.0.0.1", 0), None, lambda: "text\n") as server, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        dripping = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(web_server.MOST_REQUESTS)]
        for each in dripping:
            each.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
        wait_for(lambda: len(server._server._let_in) == web_server.MOST_REQUESTS)
        with socket.create_connection(address, 60) as late:
            assert late.recv(1) == b""  # no room: told at once
        monkeypatch.setattr(web_server, "REQUEST_SECONDS", 0.5)
        over = threading.Event()
        drip = threading.Thread(target=keep_dripping, args=(dripping[0], over))
        drip.start()
        try:
            for each in dripping:
                assert each.recv(1) == b""
        finally:
            over.set()
            drip.join()
        wait_for(lambda: not server._server._let_in)
        assert get(server.port)[0] == 200


def keep_dripping(line: socket.socket, over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while not over.wait(0.05):
            line.sendall(b"x")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def configured(metrics: str) -> Any:
    return loads(f"sites: {{a: {{bootstrap: a:1}}}}\nmetrics: {metrics}\n").metrics


def test_where_and_to_whom() -> None:
    assert configured("{listen: 9464, token: abc}").address == ("127.0.0.1", 9464)
    assert configured("{listen: '0.0.0.0:9464', open: true}").address == ("0.0.0.0", 9464)
    assert configured("{listen: '[::1]:9464', open: true}").address == ("::1", 9464)
    assert "abc" not in repr(configured("{listen: 9464, token: abc}"))
    with pytest.raises(ConfigError, match="set a token"):
        configured("{listen: 9464}")
    with pytest.raises(ConfigError, match="expected a port"):
        configured("{listen: 99999, open: true}")
