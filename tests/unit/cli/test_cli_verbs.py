"""The verbs init, config and version, as a user runs them."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import types

import pytest

from isthmus import __version__
from isthmus.cli import main
from isthmus.config import json_schema, load
from isthmus.config.mistakes import Problem

GOOD = "sites:\n  a: {bootstrap: 'a:1'}\n  b: {bootstrap: 'b:1'}\nlinks:\n  l: {from: a, to: b, topics: [x]}\n"
BAD = GOOD.replace("topics", "topcis")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISTHMUS_CONFIG", raising=False)


def put(text, name="isthmus.yaml"):
    with open(name, "w") as file:
        file.write(text)


# -- init --------------------------------------------------------------------------------------------


def test_what_init_writes_passes_the_check(capsys):
    assert main(["init"]) == 0
    assert "wrote isthmus.yaml" in capsys.readouterr().out
    assert main(["config", "check"]) == 0
    assert list(load("isthmus.yaml").links) == ["orders"]
    with open("isthmus.schema.json") as file:
        assert json.load(file) == json_schema()
    with open("isthmus.yaml") as file:
        text = file.read()
    assert text.startswith("# yaml-language-server: $schema=isthmus.schema.json\n")


def test_everything_that_init_comments_out_is_valid_too(monkeypatch):
    main(["init"])
    with open("isthmus.yaml") as file:
        lines = file.read().splitlines()
    os.makedirs("certs")
    os.makedirs("secrets")
    for name in ("ca.pem", "client.pem", "client.key"):
        put("-----BEGIN X-----", f"certs/{name}")
    put("hunter2", "secrets/primary")
    monkeypatch.setenv("KEY_PASSWORD", "x")
    opened = []
    for line in lines:
        body = line.lstrip()
        is_option = line.startswith("    #") and not line.startswith("    #     ") and "tls: true" not in line
        opened.append("    " + body[2:] if is_option else line)
    put("\n".join(opened) + "\n")
    config = load("isthmus.yaml")
    assert config.links["orders"].rename == "{source}.{topic}"
    assert config.links["orders"].spark == {"spark.executor.memory": "2g"}
    assert config.sites["primary"].sasl is not None
    assert config.sites["primary"].tls is not None


def test_init_refuses_to_overwrite(capsys):
    put("mine")
    assert main(["init"]) == 2
    assert capsys.readouterr().err == "error: isthmus.yaml is already there; --force overwrites it\n"
    with open("isthmus.yaml") as file:
        assert file.read() == "mine"
    assert not os.path.exists("isthmus.schema.json")
    assert main(["init", "--force"]) == 0
    assert main(["config", "check"]) == 0


def test_init_elsewhere(capsys):
    os.makedirs("sites")
    assert main(["init", "-c", "sites/prod.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["sites/prod.yaml", "sites/isthmus.schema.json"]}
    assert main(["init", "-c", "no/such/prod.yaml"]) == 2
    assert "cannot write no/such/prod.yaml: no such file or directory" in capsys.readouterr().err


def test_init_to_stdout(capsys):
    assert main(["init", "--stdout"]) == 0
    put(capsys.readouterr().out)
    assert os.listdir() == ["isthmus.yaml"]
    assert main(["config", "check"]) == 0
    capsys.readouterr()
    assert main(["init", "--stdout", "--json"]) == 0
    assert "sites:" in json.loads(capsys.readouterr().out)["config"]


# -- config ------------------------------------------------------------------------------------------


def test_check_of_a_good_file(capsys):
    put(GOOD)
    assert main(["config", "check"]) == 0
    assert capsys.readouterr() == ("isthmus.yaml: no mistakes (2 sites, 1 link)\n", "")
    assert main(["config", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": "isthmus.yaml",
        "sites": 2,
        "links": 1,
        "live": False,
        "mistakes": [],
        "warnings": [],
    }


def test_check_of_a_bad_file(capsys):
    put(BAD + "colour: red\n")
    assert main(["config", "check"]) == 3
    assert capsys.readouterr() == (
        "",
        'isthmus.yaml:5:23: links.l.topcis: unknown key; did you mean "topics"?\n'
        "isthmus.yaml:6:1: colour: unknown key; known: links, metrics, sites, spark, state\n2 mistakes\n",
    )
    assert main(["config", "check", "--json"]) == 3
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert found["error"] == "ConfigError"
    assert found["mistakes"][0] == {
        "file": "isthmus.yaml",
        "line": 5,
        "column": 23,
        "path": "links.l.topcis",
        "problem": "unknown key",
        "hint": 'did you mean "topics"?',
    }


def test_where_the_file_comes_from(capsys, monkeypatch):
    put(GOOD, "other.yaml")
    assert main(["config", "check"]) == 3
    assert "isthmus.yaml: no such file or directory" in capsys.readouterr().err
    assert main(["config", "check", "--config", "other.yaml"]) == 0
    monkeypatch.setenv("ISTHMUS_CONFIG", "other.yaml")
    assert main(["config", "check"]) == 0


def test_check_live_asks_the_sites(capsys, monkeypatch):
    put(GOOD)
    asked = []
    live = Problem(("sites", "a"), "cannot be reached")
    module = types.ModuleType("isthmus.engine.check")
    module.check_live = lambda config: asked.append(config) or list(answers)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "isthmus.engine.check", module)
    answers = [live]
    assert main(["config", "check", "--live"]) == 3
    assert capsys.readouterr().err == "isthmus.yaml:2:6: sites.a: cannot be reached\n1 mistake\n"
    answers = []
    assert main(["config", "check", "--live"]) == 0
    assert "asked live" in capsys.readouterr().out
    assert [list(config.sites) for config in asked] == [["a", "b"]] * 2


def test_show_masks_secrets_and_fills_in(capsys, monkeypatch):
    monkeypatch.setenv("TASKS", "3")
    put(
        "sites:\n  a:\n    bootstrap: a:1\n    sasl: {mechanism: SCRAM-SHA-256, username: u, password: hunter2}\n"
        "  b: {bootstrap: 'b:1'}\n"
        "links:\n  l:\n    from: a\n    to: b\n    topics: [x]\n    tasks: ${TASKS}\n"
        "spark: {spark.ssl.keyPassword: hunter2}\n"
    )
    assert main(["config", "show"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert "password: '********'" in text
    assert "tasks: 3" in text
    assert "lease: 5m" in text
    assert "from: a" in text
    assert " name:" not in text
    assert main(["config", "show", "--json"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    shown = json.loads(text)
    assert shown["links"]["l"]["commit_interval"] == "1s"
    assert shown["sites"]["a"]["sasl"]["password"] == "********"
    assert shown["spark"] == {"spark.master": "local[*]", "spark.ssl.keyPassword": "********"}


def test_what_show_prints_is_valid_again(capsys):
    put(GOOD)
    main(["config", "show"])
    put(capsys.readouterr().out, "shown.yaml")
    assert load("shown.yaml") == load("isthmus.yaml")


def test_schema(capsys):
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


# -- version -----------------------------------------------------------------------------------------


def test_version(capsys):
    assert main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["isthmus"] == __version__
    assert found["python"] == platform.python_version()
    assert set(found) == {"isthmus", "python", "pyspark", "java"}
    assert main(["version"]) == 0
    assert f"isthmus  {__version__}" in capsys.readouterr().out


def java(folder, *, release=None, script="exit 1"):
    (folder / "bin").mkdir(parents=True)
    binary = folder / "bin" / "java"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    if release:
        (folder / "release").write_text(release)
    return str(binary)


def test_java_by_its_release_file(tmp_path, monkeypatch, capsys):
    binary = java(tmp_path / "jdk", release='IMPLEMENTOR="x"\nJAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    main(["version", "--json"])
    assert json.loads(capsys.readouterr().out)["java"] == {"path": binary, "version": "21.0.1"}
    main(["version"])
    assert f"21.0.1 ({binary})" in capsys.readouterr().out


def test_java_by_asking_it(tmp_path, monkeypatch, capsys):
    binary = java(tmp_path / "jdk", script="echo 'openjdk version \"17.0.9\" 2023' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "jdk" / "bin"))
    main(["version", "--json"])
    assert json.loads(capsys.readouterr().out)["java"] == {"path": binary, "version": "17.0.9"}


def test_no_java_and_no_pyspark(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("isthmus.cli.version._installed", lambda package: None)
    main(["version"])
    printed = capsys.readouterr().out
    assert "pyspark  not installed" in printed
    assert "java     not found" in printed


def test_a_plain_secret_is_warned_of_where_it_stands(capsys, monkeypatch):
    monkeypatch.setenv("SECRET", "hidden-too")
    secret = "password: hunter2"
    site = "  a:\n    bootstrap: 'a:1'\n    sasl:\n      mechanism: SCRAM-SHA-256\n      username: u\n      "
    put(f"sites:\n{site}{secret}\n")
    assert main(["config", "check"]) == 0
    out, err = capsys.readouterr()
    assert "no mistakes" in out
    assert "warning: isthmus.yaml:7:17: sites.a.sasl.password: a secret stands in the file as plain text" in err
    assert "{file: PATH} or {env: NAME}" in err
    assert "hunter2" not in out + err
    assert main(["config", "check", "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert (warning["file"], warning["line"]) == ("isthmus.yaml", 7)
    for fine in ("password: {env: SECRET}", "password: ${SECRET}"):
        put(f"sites:\n{site}{fine}\n")
        assert main(["config", "check"]) == 0
        assert "warning" not in capsys.readouterr().err


def test_a_rule_beside_the_configuration_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    (tmp_path / "conf").mkdir()
    put("def rule(batch):\n    return batch\n", "conf/rule_beside_the_file.py")
    put(GOOD.replace("topics: [x]", "topics: [x], rules: ['rule_beside_the_file:rule']"), "conf/isthmus.yaml")
    link = load("conf/isthmus.yaml").links["l"]
    from isthmus.rules import compile_rules

    assert compile_rules(link)
    assert str(tmp_path / "conf") in os.environ["PYTHONPATH"].split(os.pathsep)  # of workers


def test_lines_of_a_run_have_a_time_and_a_paused_link_is_named_once(capsys):
    from isthmus.cli import output
    from isthmus.cli.run import View
    from isthmus.engine.snapshot import LinkState

    output.console.cache_clear()
    view = View(json=False)
    state = LinkState("orders", "a", "b", "paused")
    with view:
        view.show([state])
        view.show([state])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ", line) for line in lines)
    assert "info: link orders: paused; nothing is copied until `isthmus resume orders`" in lines[0]
    output.console.cache_clear()
