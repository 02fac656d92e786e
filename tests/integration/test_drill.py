"""``isthmus drill``: the emergency rehearsed, on this machine and at the real sites, and nothing left behind.

What is left at the real sites is told by confluent-kafka.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from links import admin, configure, read, topics_of, wait_for

from isthmus import cli
from isthmus.sandbox import KafkaSite

FOLLOWING = {"groups": {"only_empty": False, "interval": "1s"}}
TWO_WAY = {"loop": "returning", "commit_interval": "100ms", "sync": FOLLOWING}


def command(config: Path, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("isthmus")), "drill", *arguments, "--json", "--config", str(config)]


def drill(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(config, *arguments), capture_output=True, text=True, timeout=280, check=False)


def steps_of(report: dict[str, Any]) -> list[list[str]]:
    return [[step["step"] for step in operation["steps"]] for operation in report["operations"]]


def test_a_site_dies_and_returns_in_a_rehearsal(tmp_path: Path) -> None:
    """With a configuration whose sites nobody can reach, and a hook that would tell if it were run."""
    config, page, ran = tmp_path / "isthmus.yaml", tmp_path / "drill.html", tmp_path / "hook-ran"
    document = {
        "sites": {
            "east": {
                "bootstrap": "kafka.east.invalid:9092",
                "hooks": {"fence": ["touch", str(ran)], "unfence": ["touch", str(ran)]},
                "tls": True,
                "sasl": {"mechanism": "PLAIN", "username": "drill", "password": "a-secret-word"},
            },
            "west": {"bootstrap": "kafka.west.invalid:9092"},
        },
        "links": {
            "there": {"from": "east", "to": "west", "topics": ["orders"], **TWO_WAY},
            "back": {"from": "west", "to": "east", "topics": ["orders"], **TWO_WAY},
        },
    }
    config.write_text(json.dumps(document))
    answer = drill(config, "--seconds", "4s", "--rate", "100", "--report", str(page))
    report = json.loads(answer.stdout)
    assert answer.returncode == 0, f"{report.get('problems')}\n{answer.stderr}"
    assert report["clean"]
    assert (report["drill"], report["site"], report["survivor"]) == ("return", "east", "west")
    assert [steps[0] for steps in steps_of(report)] == ["check", "check"]
    assert report["rto_seconds"] > 0
    assert report["rpo"]["true_records"] <= report["stranded_records"]
    assert report["rpo"]["beyond"] == 0
    assert report["rpo"]["known_until"] > report["began"]
    assert report["group"]["skipped"] == 0
    assert {row["site"]: row["missing"] + row["doubled"] + row["out_of_order"] for row in report["sites"]} == {
        "east": 0,
        "west": 0,
    }
    assert {row["link"] for row in report["verify"] if row["clean"]} == {"there", "back"}
    assert sum(report["acknowledged"].values()) > 500
    assert not ran.exists()
    text = page.read_text()
    assert "a-secret-word" not in answer.stdout + answer.stderr + text
    assert "invalid" not in answer.stdout + text
    picture = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    words = {each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"east killed", "west in service", "east back", "declare"} <= words


def everything(*sites: KafkaSite) -> list[set[str]]:
    """Topics and groups of sites, but for Kafka's own."""
    found = []
    for site in sites:
        client = admin(site)  # one that is collected takes its answers with it
        groups = client.list_consumer_groups().result(30).valid
        topics = {name for name in topics_of(site) if not name.startswith("__")}
        found += [topics, {group.group_id for group in groups}]
    return found


def remembered(*sites: KafkaSite) -> list[str]:
    """What sites remember of operations and roles that names a drill."""
    records = [r for site in sites if "_isthmus.sites" in topics_of(site) for r in read(site, "_isthmus.sites")[0]]
    newest = {record.key: record.value for record in records}
    return [str(key) for key, value in newest.items() if value is not None and b"drill" in (key or b"")]


def test_a_live_drill_leaves_nothing_behind(east: KafkaSite, west: KafkaSite, unique_topic: Callable[..., str]) -> None:
    real = {"from": "east", "to": "west", "topics": [unique_topic()], "sync": FOLLOWING}
    setup = configure({"east": east, "west": west}, {"real": real})
    before = everything(east, west)
    answer = drill(setup.path, "--live", "--seconds", "3s", "--rate", "100")
    report = json.loads(answer.stdout)
    assert answer.returncode == 0, f"{report.get('problems')}\n{answer.stderr}"
    assert report["clean"]
    assert report["live"]
    assert report["rpo"]["true_records"] == 0
    assert report["group"]["skipped"] == 0
    assert [operation["mode"] for operation in report["operations"]] == ["planned", None]
    assert all(row["missing"] + row["doubled"] + row["out_of_order"] == 0 for row in report["sites"])
    assert "it kills nothing" in answer.stderr
    assert everything(east, west) == before
    assert not remembered(east, west)

    # And when somebody loses patience in the middle of it.
    with subprocess.Popen(command(setup.path, "--live", "--seconds", "300s")) as process:
        try:
            wait_for(lambda: any("isthmus-drill-" in group for group in everything(east)[1]), "the drill's traffic", 90)
            process.send_signal(signal.SIGINT)
            assert process.wait(90) == 130
        finally:
            process.kill()
    assert everything(east, west) == before
    assert not remembered(east, west)


def test_mistakes_cost_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "isthmus.yaml"
    sites = {"a": {"bootstrap": "127.0.0.1:1"}, "b": {"bootstrap": "127.0.0.1:2"}}
    config.write_text(json.dumps({"sites": sites, "links": {"ab": {"from": "a", "to": "b", "topics": "/t.*/"}}}))
    for arguments, words in (
        ([], "Name one with --topic"),
        (["--live", "--scenario", "return"], "it plays switch"),
        (["--seconds", "soon"], "--seconds soon"),
        (["--report", "drill.pdf"], ".html or .json"),
        (["--site", "b"], "no link leads from b"),
    ):
        assert cli.main(command(config, *arguments)[1:]) == 2
        assert words in json.loads(capsys.readouterr().out)["message"]
