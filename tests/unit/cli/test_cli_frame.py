"""The frame of the command line: help, exit codes, errors, and a fast start."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from isthmus import __version__, cli
from isthmus.cli import app, examples, main, output
from isthmus.errors import AuthorisationFailed, ConfigError, Interrupted, IsthmusError, TakenOver, UsageError

HEAVY = ("pyspark", "numba", "numpy", "pyarrow", "kafka")


@pytest.fixture
def verb(monkeypatch):
    """Make ``isthmus version`` do something else."""

    def replace(action):
        def register(holder: typer.Typer) -> None:
            holder.command("version")(action)

        monkeypatch.setattr("isthmus.cli.version.register", register)

    return replace


def raising(error):
    def action(json: bool = False) -> None:
        raise error

    return action


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "import sys; from isthmus.cli import main; sys.exit(main())", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IsthmusError("plain"), 1),
        (UsageError("usage"), 2),
        (ConfigError("config"), 3),
        (AuthorisationFailed("no", site="a", needed="READ"), 5),
        (TakenOver("taken"), 7),
        (Interrupted("stopped"), 130),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (typer.Exit(9), 9),
        (ValueError("surprise"), 1),
    ],
)
def test_exit_codes(verb, error, code, capsys):
    verb(raising(error))
    assert main(["version"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_an_error_that_we_meant(verb, capsys):
    verb(raising(AuthorisationFailed("no [red]right[/red]\nadd an ACL", site="a", needed="READ")))
    main(["version"])
    assert capsys.readouterr().err == "error: no [red]right[/red]\nadd an ACL\n"


def test_an_error_that_we_meant_as_json(verb, capsys):
    verb(raising(AuthorisationFailed("no", site="a", needed="READ")))
    assert main(["version", "--json"]) == 5
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "error": "AuthorisationFailed",
        "message": "no",
        "site": "a",
        "needed": "READ",
    }
    assert printed.err == ""


def test_an_unexpected_error(verb, capsys, monkeypatch):
    monkeypatch.delenv("ISTHMUS_DEBUG", raising=False)
    verb(raising(ValueError("surprise\nmore")))
    main(["version"])
    assert capsys.readouterr().err == (
        "error: unexpected ValueError: surprise\nrun with ISTHMUS_DEBUG=1 for the traceback\n"
    )
    main(["version", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "error": "Unexpected",
        "message": "unexpected ValueError: surprise",
    }


@pytest.mark.parametrize("error", [ValueError("surprise"), IsthmusError("meant")])
def test_the_traceback_on_demand(verb, capsys, monkeypatch, error):
    monkeypatch.setenv("ISTHMUS_DEBUG", "1")
    verb(raising(error))
    main(["version"])
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "run with" not in printed


def test_long_lines_are_not_wrapped(verb, capsys):
    verb(raising(ConfigError("x " * 300)))
    main(["version"])
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["nonsense"], ["version", "--nonsense"], ["config", "chekc"], ["config"]])
def test_usage_errors(arguments, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    if arguments != ["config"]:
        assert "error: No such" in printed.err


def test_usage_errors_suggest_and_speak_json(capsys):
    main(["config", "chekc"])
    assert "'check'" in capsys.readouterr().err
    assert main(["nonsense", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"error": "UsageError", "message": "No such command 'nonsense'."}


def test_help_without_arguments(capsys):
    assert main([]) == 0
    assert "Usage: isthmus" in capsys.readouterr().out


def test_version_option(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"isthmus {__version__}\n"


VERBS = [["init"], ["version"], ["config"], ["config", "check"], ["config", "show"], ["config", "schema"], []]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_shows_examples(verb):
    result = CliRunner().invoke(app, [*verb, "--help"], prog_name="isthmus")
    assert result.exit_code == 0
    text = result.output
    assert "Examples" in text
    assert "$ isthmus " + " ".join(verb) in text
    if verb and verb != ["config"]:
        assert "--json" in text


def test_every_verb_is_listed_with_its_short_help_and_completion(capsys):
    main(["--help"])
    printed = capsys.readouterr().out
    for name in ("init", "config", "version"):
        assert cli._VERBS[name].help in printed
    assert "--install-completion" in printed


@pytest.mark.parametrize("name", sorted(cli._VERBS))
def test_every_listed_verb_can_be_loaded(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"Usage: isthmus {name}" in capsys.readouterr().out


def test_verbs_without_a_module_are_not_listed(capsys, monkeypatch):
    monkeypatch.setitem(cli._VERBS, "dream", cli._Verb("isthmus.cli.no_such_module", "Not written yet."))
    main(["--help"])
    assert "dream" not in capsys.readouterr().out
    assert main(["dream"]) == 2


def test_a_verb_may_be_a_group_or_register_itself(capsys, monkeypatch, tmp_path):
    (tmp_path / "verb_group.py").write_text(
        "import typer\napp = typer.Typer()\n@app.callback()\ndef root(): 'A group.'\n"
        "@app.command()\ndef up(): raise typer.Exit(5)\n"
    )
    (tmp_path / "verb_single.py").write_text(
        "import typer\ndef register(app):\n    app.command('single')(run)\ndef run(): raise typer.Exit(6)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli._VERBS, "group", cli._Verb("verb_group", "Short help of a group."))
    monkeypatch.setitem(cli._VERBS, "single", cli._Verb("verb_single", "Short help of a verb."))
    main(["--help"])
    printed = capsys.readouterr().out
    assert "Short help of a group." in printed
    assert "Short help of a verb." in printed
    assert "verb_group" not in sys.modules
    assert main(["group", "up"]) == 5
    assert main(["single"]) == 6


def test_examples_escape_markup():
    assert examples("isthmus x [y]") == "[bold]Examples[/bold]\n  $ isthmus x \\[y]"


def test_completion_of_verbs_and_their_parts():
    script = {"_ISTHMUS_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "isthmus con"}
    assert run(**script).stdout.split() == ["config"]
    script |= {"COMP_CWORD": "2", "COMP_WORDS": "isthmus config s"}
    assert run(**script).stdout.split() == ["show", "schema"]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["version"], ["config", "check", "-c", "GOOD"], ["config", "schema"], ["init", "--stdout"]],
)
def test_start_up_is_light(arguments, tmp_path):
    good = tmp_path / "isthmus.yaml"
    good.write_text("sites:\n  a: {bootstrap: 'a:1'}\n")
    code = (
        "import sys\nfrom isthmus.cli import main\n"
        f"code = main({[str(good) if a == 'GOOD' else a for a in arguments]!r})\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_no_traceback(tmp_path):
    command = (
        f'{sys.executable} -c "import sys; from isthmus.cli import main; sys.exit(main())" config schema | head -1'
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


# -- output ----------------------------------------------------------------------------------------


def test_emit_as_json(capsys):
    output.emit({"a": [1, None], "b": "é"}, json_mode=True)
    assert json.loads(capsys.readouterr().out) == {"a": [1, None], "b": "é"}


def test_emit_for_people(capsys):
    output.emit("plain [bold]text[/bold]", json_mode=False)
    output.emit({"key": None, "other": True}, json_mode=False)
    output.emit([{"topic": "x" * 150, "lag": 3}, {"topic": "[y]", "lag": None}], json_mode=False)
    printed = capsys.readouterr().out
    assert "plain [bold]text[/bold]\n" in printed
    assert "key    -" in printed
    assert "other  yes" in printed
    assert "x" * 150 in printed
    assert "[y]" in printed


def test_emit_line(capsys):
    output.emit_line({"a": 1})
    output.emit_line({"a": 2})
    assert [json.loads(line)["a"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_notes_go_to_stderr(capsys):
    output.note("hello")
    assert capsys.readouterr() == ("", "hello\n")


def test_a_table_with_chosen_columns():
    made = output.table([{"a": 1, "b": 2, "c": 3}], ["c", "a"])
    assert [column.header for column in made.columns] == ["c", "a"]


def test_progress_is_silent_off_a_terminal(capsys):
    with output.progress("working", total=3) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_while_modules_are_imported_is_quiet():
    # A module that the command line imports early is interrupted as a terminal would do it.
    code = (
        "import os, signal, sys\n"
        # Whoever runs the tests in the background may have had it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            import time; time.sleep(60)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from isthmus.cli import main\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "cache"), [(["--data", "/proc/nope"], None), ([], "/dev/null/nope"), (["--keep"], "/dev/null/nope")]
)
def test_a_sandbox_in_a_directory_that_cannot_be(tmp_path, arguments, cache):
    found = run("sandbox", "up", *arguments, ISTHMUS_CACHE=cache or str(tmp_path))
    assert found.returncode == 8, found.stderr
    assert "Traceback" not in found.stderr
    assert f"Cannot use the directory {cache or '/proc/nope'}" in found.stderr
