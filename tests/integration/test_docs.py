"""The documents are true: what they tell people to type is typed here, and what they show as configuration is read.

In README.md and docs/*.md, a fenced block is, by its language,

    console   run, each line that begins with ``$ ``, in order and in one shell a document (in a directory of its
              own). It must end with 0, or with N where the line ends in ``# exits with N``. Other lines are output.
    python    run in the same place, in order with the commands
    yaml      read by ``isthmus.config.loads``; a part of a configuration is completed first. After the line
              ``<!-- appended to FILE -->`` it is also appended to that file
    sh        not run: it needs something that not every machine has, and its first line says what, as ``# needs ...``
    text      a picture

Every command of isthmus that stands anywhere in a document, inside a sentence too, and in the Examples of every
verb's help, must at least parse.
"""

from __future__ import annotations

import fcntl
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from isthmus.cli import app
from isthmus.config import Link, Site, loads
from isthmus.sandbox import DEFAULT_KAFKA, jars
from isthmus.sandbox.cache import cache_directory

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Documents whose blocks are alternatives to choose from, not one session. Their commands are parsed, and their
# Python is compiled.
CHOICES = {
    "sandbox.md": "each line starts brokers of its own; test_sandbox.py runs every kind of them",
    "rules.md": "shows a part of examples/mask_cards.py, which the tests of the rules run",
}
SESSION_SECONDS = 540  # a hang, not a slow machine


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


class Block(NamedTuple):
    language: str
    line: int
    text: str
    before: str
    """The line before the block that is not empty."""


def blocks(document: Path) -> list[Block]:
    found: list[Block] = []
    language, start, before, last = "", 0, "", ""
    inside: list[str] | None = None
    for number, line in enumerate(document.read_text().splitlines(), 1):
        fence = re.match(r"^\s*```\s*(\S*)", line)
        if fence is None:
            if inside is not None:
                inside.append(line)
            elif line.strip():
                last = line.strip()
        elif inside is None:
            language, start, before, inside = fence[1], number, last, []
        else:
            found.append(Block(language, start, textwrap.dedent("\n".join(inside) + "\n"), before))
            inside = None
    assert inside is None, f"{document.name}:{start}: the block does not end"
    return found


def blocks_of(*languages: str) -> list[Any]:
    return [
        pytest.param(document, block, id=f"{name_of(document)}:{block.line}")
        for document in DOCUMENTS
        for block in blocks(document)
        if block.language in languages
    ]


# -- commands that run ------------------------------------------------------------------------------------


class Step(NamedTuple):
    line: int
    script: str
    code: int


def commands(block: Block) -> list[Step]:
    found = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            expected = re.search(r"#\s*exits with (\d+)\s*$", line)
            found.append(Step(number, line[2:], int(expected[1]) if expected else 0))
    return found


def steps(document: Path, directory: Path) -> list[Step]:
    """What a reader of this document does, in order; its files are put into the directory."""
    found: list[Step] = []
    for block in blocks(document):
        if block.language == "console":
            found += commands(block)
        elif block.language == "python":
            name = f"block-{block.line}.py"
            (directory / name).write_text(block.text)
            found.append(Step(block.line, f"python {name}", 0))
        elif block.language == "yaml" and (target := re.fullmatch(r"<!-- appended to (\S+) -->", block.before)):
            name = f"block-{block.line}.yaml"
            (directory / name).write_text("\n" + block.text)
            found.append(Step(block.line, f"cat {name} >> {target[1]}", 0))
    return found


@pytest.fixture
def session_environment() -> Iterator[dict[str, str]]:
    """An environment with a sandbox of its own, which shares what is expensive with the user's cache.

    It is the same directory every time, because the brokers' class archive is made for a path.
    """
    jars.fetch(jars.kafka_jars(DEFAULT_KAFKA))
    shared, own = cache_directory(), cache_directory() / "docs"
    own.mkdir(parents=True, exist_ok=True)
    for name in ("jars", "kernels", "archives"):
        (shared / name).mkdir(exist_ok=True)
        if not (own / name).is_symlink():
            (own / name).symlink_to(shared / name, target_is_directory=True)
    environment = {
        **os.environ,
        "ISTHMUS_CACHE": str(own),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    down = [sys.executable, "-m", "isthmus.cli", "sandbox", "down"]
    with (own / "docs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # there is one sandbox, and perhaps a second test run
        subprocess.run(down, env=environment, check=True, capture_output=True)  # of a run that was killed
        try:
            yield environment
        finally:
            subprocess.run(down, env=environment, check=True, capture_output=True)


SESSIONS = [
    d for d in DOCUMENTS if d.name not in CHOICES and any(b.language in ("console", "python") for b in blocks(d))
]


@pytest.mark.timeout(SESSION_SECONDS + 60)
@pytest.mark.parametrize("document", SESSIONS, ids=name_of)
def test_a_reader_gets_through(document: Path, tmp_path: Path, session_environment: dict[str, str]) -> None:
    todo = steps(document, tmp_path)
    marks = tmp_path / "marks"
    # One shell for all, as a reader has it: variables, directories and jobs stay. Each step leaves its exit code.
    lines = [f"{step.script}\necho {number} $? >> {shlex.quote(str(marks))}" for number, step in enumerate(todo)]
    started = time.monotonic()
    script, log = tmp_path / "session.sh", tmp_path / "session.log"
    script.write_text("\n".join(lines) + "\n")
    with log.open("w") as out:
        shell = subprocess.Popen(
            ["bash", str(script)],
            cwd=tmp_path,
            env=session_environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        deadline, checked = time.monotonic() + SESSION_SECONDS, 0
        try:
            while checked < len(todo) and time.monotonic() < deadline:
                done = marks.read_text().splitlines() if marks.exists() else []
                for number, code in (map(int, line.split()) for line in done[checked:]):
                    step = todo[number]
                    told = f"{document.name}:{step.line}: $ {step.script}\nexits with {code}, not {step.code}"
                    assert code == step.code, f"{told}\n{log.read_text()[-4000:]}"
                    checked += 1
                    print(f"{time.monotonic() - started:6.1f} s  $ {step.script}")
                time.sleep(0.1)
            stuck = todo[checked] if checked < len(todo) else None
            assert stuck is None, f"{document.name}:{stuck.line}: $ {stuck.script}\nhangs\n{log.read_text()[-4000:]}"
        finally:
            shell.terminate()
            shell.wait()


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.name in CHOICES], ids=name_of)
def test_python_that_is_not_run_compiles(document: Path) -> None:
    for block in blocks(document):
        if block.language == "python":
            compile(block.text, f"{document.name}:{block.line}", "exec")


@pytest.mark.parametrize(("document", "block"), blocks_of("sh"))
def test_what_is_not_run_says_why(document: Path, block: Block) -> None:
    assert block.text.startswith("# needs "), "begin with: # needs ... (what a machine must have to run it)"
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", block.text, re.MULTILINE)) <= targets


def test_blocks_are_of_known_languages() -> None:
    known = {"console", "python", "yaml", "sh", "text"}
    strange = [f"{d.name}:{b.line}: {b.language}" for d in DOCUMENTS for b in blocks(d) if b.language not in known]
    assert not strange


def test_no_exception_has_outlived_its_document() -> None:
    assert set(CHOICES) <= {document.name for document in DOCUMENTS}


# -- configurations -----------------------------------------------------------------------------------------

LINK_KEYS = {field.validation_alias or name for name, field in Link.model_fields.items()}
SITE_KEYS = set(Site.model_fields)


def completed(data: dict[str, Any]) -> dict[str, Any]:
    """A whole configuration around a part of one."""
    if not data.keys() & {"sites", "links", "spark", "metrics", "state"}:
        if data.keys() <= SITE_KEYS:
            return {"sites": {"a": {"bootstrap": "a.example:9092", **data}}}
        assert data.keys() <= LINK_KEYS, f"neither a configuration, nor a site's part, nor a link's: {sorted(data)}"
        data = {"links": {"a-to-b": {"from": "a", "to": "b", "topics": ["t"], **data}}}
    sites = dict(data.get("sites", {}))
    for link in (data.get("links") or {}).values():
        for end in ("from", "to"):
            registry = {"url": f"http://registry.{link[end]}.example"}
            sites.setdefault(link[end], {"bootstrap": f"{link[end]}.example:9092", "registry": registry})
    return {**data, "sites": sites or {"a": {"bootstrap": "a.example:9092"}}}


@pytest.mark.parametrize(("document", "block"), blocks_of("yaml"))
def test_yaml_is_valid(document: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\benv: (\w+)|\$\{(\w+)\}", block.text):
        monkeypatch.setenv("".join(name), "something")
    for name in re.findall(r"\b(?:ca|certificate|key|file): ([\w./-]+)", block.text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----" * 2 + "\n")
    whole = tmp_path / "isthmus.yaml"
    YAML().dump(completed(YAML(typ="safe", pure=True).load(block.text)), whole)
    loads(whole.read_text(), base=tmp_path)


# -- every command parses -------------------------------------------------------------------------------------


def parse(words: list[str]) -> None:
    """Parse a command line down to the verb's own arguments, and run nothing. Raises what the user would see.

    A verb alone is a mention of it, whether or not it wants arguments.
    """
    command: Any = get_command(app)
    context, name = None, "isthmus"
    while words:
        context = command.make_context(name, list(words), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])


def prose(document: Path) -> str:
    """A document without its blocks."""
    return re.sub(r"^\s*```.*?^\s*```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def written_commands(document: Path) -> list[str]:
    """Commands of isthmus in a document: in blocks, and in `code` inside a sentence."""
    in_blocks = [
        line
        for block in blocks(document)
        if block.language in ("console", "sh")
        for line in re.findall(r"^(?:\$ )?(isthmus .*)$", block.text, re.MULTILINE)
    ]
    return in_blocks + re.findall(r"`(isthmus [^`]+)`", re.sub(r"\s+", " ", prose(document)))


def arguments_of(command: str) -> list[str]:
    words = shlex.split(command, comments=True)[1:]
    for place, word in enumerate(words):
        if word[0] in "|>&;" or word.startswith("2>"):
            return words[:place]
    return words


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_written_command_parses(document: Path) -> None:
    for command in written_commands(document):
        arguments = arguments_of(command)
        try:
            parse(arguments)
        except Exception as error:
            pytest.fail(f"{document.name}: {command}: {getattr(error, 'message', error)}")


def examples() -> Iterator[Any]:
    def walk(command: Any, path: str) -> Iterator[tuple[str, str]]:
        for line in re.findall(r"\$ (.*)", inspect.cleandoc(command.epilog or "").replace("\\[", "[")):
            yield path, line
        for name in getattr(command, "commands", {}):
            context = command.make_context(path, [name], resilient_parsing=True)
            yield from walk(command.resolve_command(context, [name])[1], f"{path} {name}")

    for path, line in walk(get_command(app), "isthmus"):
        yield pytest.param(path, line, id=line)


EXAMPLES = list(examples())


@pytest.mark.parametrize(("path", "line"), EXAMPLES)
def test_every_example_of_the_help_parses(path: str, line: str) -> None:
    assert line.startswith("isthmus")
    parse(arguments_of(line))


def test_every_verb_has_an_example_of_its_own() -> None:
    shown = {(parameters.values[0], parameters.values[1]) for parameters in EXAMPLES}
    for path in {path for path, _ in shown} - {"isthmus"}:
        assert any(line.startswith(path) for owner, line in shown if owner == path), path


# -- links between documents -----------------------------------------------------------------------------------


def anchors(document: Path) -> set[str]:
    """The names that headings have as link targets."""
    titles = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"", document.read_text())
    for target in ("".join(pair) for pair in targets):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), f"{document.name}: {target}"
        assert not anchor or anchor in anchors(there), f"{document.name}: {target}"


# -- the file map -----------------------------------------------------------------------------------------------


def test_the_file_map_is_whole() -> None:
    """docs/design.md says what each file of the inner rooms is for, and names none that is gone."""
    tree = next(b.text for b in blocks(ROOT / "docs" / "design.md") if b.text.startswith("src/isthmus/"))
    rooms = {part.split("/")[0].strip(): part for part in re.split(r"\n  (?=\w+/ )", tree) if re.match(r"\w+/ ", part)}
    for room in ("config", "engine", "kafka", "records"):
        named = set(re.findall(r"\b([a-z_]+)(?=\*?\.py)", rooms[room]))
        files = {file.stem for file in (ROOT / "src" / "isthmus" / room).glob("*.py")} - {"__init__", "base"}
        missing = {file for file in files if file not in named and file.split("_")[0] not in named}
        assert not missing, f"say in docs/design.md what {room}/ has these for: {sorted(missing)}"
        assert named <= files, f"docs/design.md names files that {room}/ has not: {sorted(named - files)}"
