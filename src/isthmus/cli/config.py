"""``isthmus config``: check, show and describe isthmus.yaml.

Invariant: these verbs change nothing and reveal no secret; only ``check --live`` opens a connection.
"""

from __future__ import annotations

import io
from importlib import import_module
from typing import Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.config import Config, config_error, json_schema, load, place
from isthmus.config.loader import plain_secrets
from isthmus.config.mistakes import Mistake, render

app = typer.Typer(
    no_args_is_help=True,
    help="Check, show and describe the configuration.",
    epilog=examples("isthmus config check", "isthmus config show --json"),
)


@app.command(
    epilog=examples("isthmus config check", "isthmus config check --live", "isthmus config check -c prod.yaml --json")
)
def check(
    config: ConfigOption = DEFAULT_CONFIG,
    live: Annotated[bool, typer.Option("--live", help="Ask the sites too: addresses, credentials, rights.")] = False,
    json: JsonOption = False,
) -> None:
    """Report every mistake in the configuration, each with its place in the file.

    Exits with 3 if there is one. What may be meant so, such as an expression that no topic matches yet, is a warning.
    """
    loaded = load(config)
    warnings: list[Mistake] = plain_secrets(config, loaded)
    wrong = []
    if live:
        # Needs the wire, which the other verbs of this file do without.
        problems = import_module("isthmus.engine.check").check_live(loaded)
        wrong = [problem for problem in problems if not problem.warning]
        warnings += place(config, [problem for problem in problems if problem.warning])
    if wrong or not json:
        for warning in warnings:
            output.note(f"warning: {render(warning)}")
    if wrong:
        raise config_error(place(config, wrong))
    result = {
        "file": str(config),
        "sites": len(loaded.sites),
        "links": len(loaded.links),
        "live": live,
        "mistakes": [],
        "warnings": warnings,
    }
    if json:
        output.emit(result, json_mode=True)
        return
    counts = f"{_count(len(loaded.sites), 'site')}, {_count(len(loaded.links), 'link')}"
    but = f", {_count(len(warnings), 'warning')}" if warnings else ""
    output.emit(f"{config}: no mistakes{but} ({counts}{', asked live' if live else ''})", json_mode=False)


@app.command(epilog=examples("isthmus config show", "isthmus config show --json"))
def show(config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Show the configuration with variables and defaults filled in and secrets masked."""
    data = resolved(load(config))
    if json:
        output.emit(data, json_mode=True)
    else:
        output.emit(_yaml(data), json_mode=False)


@app.command(epilog=examples("isthmus config schema > isthmus.schema.json"))
def schema(json: JsonOption = False) -> None:
    """Print the JSON Schema of isthmus.yaml, for editors. It is JSON with and without --json."""
    output.emit(json_schema(), json_mode=True)


def resolved(config: Config) -> dict[str, Any]:
    """The configuration as plain data that may be printed."""
    data = config.model_dump(mode="json", by_alias=True)
    for group in ("sites", "links"):
        for member in data[group].values():
            del member["name"]  # it is the key
    return data


def _yaml(data: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    stream = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.representer.sort_base_mapping_type_on_output = False
    writer.width = 1000
    writer.dump(data, stream)
    return stream.getvalue().rstrip("\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
