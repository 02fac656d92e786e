"""The command line: one file a verb, and this frame around them.

Invariant: a verb's module is imported only when that verb runs, so that help, completion and the small
verbs start fast whatever the large ones import. ``main`` is the only place where an exception becomes an
exit code.
"""

from __future__ import annotations

from isthmus.cli import early  # isort: skip  # first: what follows takes a while

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from isthmus.cli import output
from isthmus.errors import IsthmusError

early.over()

__all__ = ["DEFAULT_CONFIG", "ConfigOption", "JsonOption", "app", "examples", "main"]

DEFAULT_CONFIG = Path("isthmus.yaml")
ConfigOption = Annotated[
    Path,
    typer.Option("--config", "-c", envvar="ISTHMUS_CONFIG", metavar="FILE", help="The configuration file."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, errors included.")]


class _Verb(NamedTuple):
    """A verb that is not imported yet. Its module has ``register(app)``, or ``app`` for a group."""

    module: str
    help: str


# In the order in which a new user meets them.
_VERBS = {
    "init": _Verb("isthmus.cli.init", "Write an isthmus.yaml to start from."),
    "config": _Verb("isthmus.cli.config", "Check, show and describe the configuration."),
    "plan": _Verb("isthmus.cli.plan", "Show what would change at the destination, and why."),
    "apply": _Verb("isthmus.cli.apply", "Bring topics, settings, ACLs, schemas and groups in step."),
    "migrate": _Verb("isthmus.cli.migrate", "Migrate: plan, apply, copy, move groups, count, report."),
    "run": _Verb("isthmus.cli.run", "Replicate: run links until stopped."),
    "status": _Verb("isthmus.cli.status", "Show how far each link has come."),
    "pause": _Verb("isthmus.cli.steer", "Hold a running link."),
    "resume": _Verb("isthmus.cli.steer", "Let a paused link go on."),
    "limit": _Verb("isthmus.cli.steer", "Change the rate limit of a running link."),
    "offsets": _Verb("isthmus.cli.offsets", "Translate source offsets into destination offsets."),
    "groups": _Verb("isthmus.cli.groups", "Translate, write and move the positions of consumer groups."),
    "promote": _Verb("isthmus.cli.promote", "Let clients write at a link's destination."),
    "demote": _Verb("isthmus.cli.promote", "Make a link's destination a standby again."),
    "reset": _Verb("isthmus.cli.reset", "Set from which source offset partitions go on."),
    "verify": _Verb("isthmus.cli.verify", "Compare both sides of a link, record by record."),
    "failover": _Verb("isthmus.cli.failover", "Move work from a site to another: planned, or in an emergency."),
    "failback": _Verb("isthmus.cli.failback", "Bring work home to a site that has returned with its data."),
    "reseed": _Verb("isthmus.cli.reseed", "Rebuild a site that has returned without its data."),
    "drill": _Verb("isthmus.cli.drill", "Rehearse the emergency, and report how it went."),
    "unfence": _Verb("isthmus.cli.unfence", "Let writers in again at a site that an operation has fenced."),
    "sites": _Verb("isthmus.cli.sites", "Show which clusters the sites are and were."),
    "state": _Verb("isthmus.cli.state", "Show, sign and mend what Isthmus keeps at the sites."),
    "sandbox": _Verb("isthmus.cli.sandbox", "Run real brokers on this machine, to try things out."),
    "version": _Verb("isthmus.cli.version", "Show versions of Isthmus and what it runs on."),
}


def examples(*lines: str) -> str:
    """The epilog of a verb's help; each line is a command."""
    return "\n".join(["[bold]Examples[/bold]", *(f"  $ {line}".replace("[", "\\[") for line in lines)])


class _LazyGroup(TyperGroup):
    """Lists every verb by its short help and imports one only when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in _VERBS.items():
            if importlib.util.find_spec(verb.module) is not None:
                self.commands[name] = TyperCommand(name, help=verb.help)
        self._loaded: set[str] = set()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name in self.commands and name not in self._loaded:
            self.commands[name] = _load(name)
            self._loaded.add(name)
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    module = importlib.import_module(_VERBS[name].module)
    if hasattr(module, "register"):
        holder = typer.Typer()
        module.register(holder)
        return get_group(holder).commands[name]
    group = get_group(module.app)
    group.name = name
    return group


app = typer.Typer(
    name="isthmus",
    cls=_LazyGroup,
    invoke_without_command=True,
    help="Keeps event streams alive when a data centre dies: exact replication of Kafka clusters.",
    epilog=examples("isthmus init", "isthmus config check --live", "isthmus run orders", "isthmus status --json"),
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from isthmus import __version__

        output.emit(f"isthmus {__version__}", json_mode=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        # With rich, making the help prints it.
        text = context.get_help()
        if text:
            output.emit(text, json_mode=False)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    # Looked up by hand, because a command line that is wrong is never parsed to the end.
    json_mode = "--json" in given
    try:
        code = get_command(app).main(args=given, prog_name="isthmus", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except IsthmusError as error:
        output.print_error(error, json_mode)
        return error.exit_code
    except typer.TyperException as error:
        output.print_usage_error(error, json_mode)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        output.print_unexpected(error, json_mode)
        return 1
