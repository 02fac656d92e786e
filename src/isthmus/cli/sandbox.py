"""``isthmus sandbox``: real brokers on this machine, up until they are taken down.

Invariant: this file talks, ``isthmus.sandbox`` acts. A file that this verb did not write is never
overwritten.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli import JsonOption, examples, output
from isthmus.errors import UsageError
from isthmus.sandbox import DEFAULT_KAFKA, detached, jars
from isthmus.sandbox.cache import cache_directory, usable

app = typer.Typer(help="Run real brokers on this machine, to try things out.", no_args_is_help=True)

SIGNATURE = "# Written by `isthmus sandbox up`.\n"
SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="The site.")]
VersionOption = Annotated[str, typer.Option("--version", metavar="VERSION", help="Version of Apache Kafka.")]


@app.command(
    epilog=examples(
        "isthmus sandbox up",
        "isthmus sandbox up east west --yaml isthmus.yaml",
        "isthmus sandbox up big --brokers 3 --tls --sasl SCRAM-SHA-512 --acls",
        "isthmus sandbox up east west --registries",
        "isthmus sandbox up old --version 3.9.2 --data ./old-data",
    )
)
def up(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="The sites; east and west if none is named.")
    ] = None,
    brokers: Annotated[int, typer.Option(help="Brokers of each site, usually 1 or 3.")] = 1,
    version: VersionOption = DEFAULT_KAFKA,
    tls: Annotated[bool, typer.Option("--tls", help="TLS with a certificate authority of the site's own.")] = False,
    mutual_tls: Annotated[bool, typer.Option("--mutual-tls", help="TLS both ways.")] = False,
    sasl: Annotated[
        str | None,
        typer.Option(metavar="MECHANISM", help="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."),
    ] = None,
    acls: Annotated[bool, typer.Option("--acls", help="Enforce ACLs.")] = False,
    registries: Annotated[
        bool, typer.Option("--registries", help="A schema registry beside each site, in memory.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data in the cache after `down`.")] = False,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the data in this directory.")] = None,
    yaml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the sites to this configuration file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start sites and leave them running."""
    _refuse_foreign(yaml)
    usable(cache_directory())
    options: dict[str, Any] = {
        "brokers": brokers,
        "version": version,
        "tls": tls,
        "mutual_tls": mutual_tls,
        "sasl": sasl,
        "acls": acls,
    }
    if jars.damage(jars.kafka_jars(version).directory) is not None:
        output.note(f"Fetching Kafka {version}, once; this takes about a minute.")
    if registries and jars.damage(jars.registry_jars().directory) is not None:
        output.note(f"Fetching Apicurio {jars.DEFAULT_REGISTRY}, once; this takes about a minute.")
    directory = data if data is not None else detached.kept_directory() if keep else None
    state = detached.up(names or ["east", "west"], options, directory, registries)
    fragment = _fragment(state)
    if yaml is not None:
        yaml.write_text(SIGNATURE + fragment)
    if json:
        output.emit(_shown(state), json_mode=True)
        return
    output.emit(_site_table(state), json_mode=False)
    if yaml is not None:
        output.note(f"The sites are in {yaml}.")
    else:
        output.emit(fragment, json_mode=False)
    output.note("End them with `isthmus sandbox down`.")


@app.command(epilog=examples("isthmus sandbox down", "isthmus sandbox down --json"))
def down(json: JsonOption = False) -> None:
    """End every broker; data goes too, unless it was to be kept."""
    state = detached.down()
    if json:
        output.emit({"stopped": state is not None, "kept": state and state["kept"]}, json_mode=True)
    elif state is None:
        output.note("No sandbox is up.")
    elif state["kept"]:
        output.note(f"The sandbox is down. Its data is kept in {state['kept']}.")
    else:
        output.note("The sandbox is down, and its data is gone.")


@app.command(epilog=examples("isthmus sandbox status", "isthmus sandbox status --json"))
def status(json: JsonOption = False) -> None:
    """Show the sites that are up, and whether each broker lives."""
    state = detached.status()
    if json:
        output.emit({"running": False} if state is None else _shown(state), json_mode=True)
    elif state is None:
        output.note("No sandbox is up. Start one with `isthmus sandbox up`.")
    else:
        output.emit(_site_table(state), json_mode=False)
        output.emit(_broker_table(state), json_mode=False)


def _order(act: str, site: str, done: str, json: bool) -> None:
    state = detached.order(act, site)
    if json:
        output.emit(_shown(state), json_mode=True)
    else:
        output.note(f"{site} {done}")


@app.command(epilog=examples("isthmus sandbox kill east"))
def kill(site: SiteArgument, json: JsonOption = False) -> None:
    """Kill every broker of a site at once, as a power failure does: kill -9. Its data stays."""
    _order("kill", site, "is dead; `isthmus sandbox start` brings it back with its data, `wipe` without", json)


@app.command(epilog=examples("isthmus sandbox stop east"))
def stop(site: SiteArgument, json: JsonOption = False) -> None:
    """Shut a site down cleanly. Its data stays."""
    _order("stop", site, "is down; `isthmus sandbox start` brings it back", json)


@app.command(epilog=examples("isthmus sandbox start east"))
def start(site: SiteArgument, json: JsonOption = False) -> None:
    """Bring a site back that was killed or stopped: same addresses, same data, same cluster id."""
    _order("start", site, "is back, with its data", json)


@app.command(epilog=examples("isthmus sandbox wipe east"))
def wipe(site: SiteArgument, json: JsonOption = False) -> None:
    """Rebuild a site empty: same name and addresses, no data, a new cluster id."""
    _order("wipe", site, "is back, empty, as another cluster", json)


@app.command(epilog=examples("isthmus sandbox fetch", "isthmus sandbox fetch --version 3.9.2 --verify"))
def fetch(
    version: VersionOption = DEFAULT_KAFKA,
    registries: Annotated[bool, typer.Option("--registries", help="The schema registry instead.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte that was fetched before.")] = False,
    json: JsonOption = False,
) -> None:
    """Fetch Kafka now, so that the first start needs no network."""
    wanted = jars.registry_jars() if registries else jars.kafka_jars(version)
    version = jars.DEFAULT_REGISTRY if registries else version
    reason = jars.damage(wanted.directory, verify)
    jars.fetch(wanted, verify)
    result = {"version": version, "directory": str(wanted.directory), "fetched": reason is not None}
    if reason is not None:
        result["reason"] = reason
    output.emit(result, json_mode=json)


def _refuse_foreign(path: Path | None) -> None:
    if path is not None and path.exists() and not path.read_text().startswith(SIGNATURE):
        raise UsageError(f"{path} exists and is not the sandbox's own; name another file for --yaml.")


def _shown(state: dict[str, Any]) -> dict[str, Any]:
    return {"running": True, **state}


def _fragment(state: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    text = io.StringIO()
    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.dump({"sites": {site["name"]: site["yaml"] for site in state["sites"]}}, text)
    return text.getvalue()


def _site_table(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "site": site["name"],
            "bootstrap": site["bootstrap"],
            "protocol": site["protocol"],
            "kafka": site["version"],
            "cluster": site["cluster_id"],
            **({"registry": site["registry"]["url"]} if "registry" in site else {}),
        }
        for site in state["sites"]
    ]


def _broker_table(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"site": site["name"], **{key: broker[key] for key in ("node", "port", "pid", "alive", "log")}}
        for site in state["sites"]
        for broker in site["brokers"]
    ]
