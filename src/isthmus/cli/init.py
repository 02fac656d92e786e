"""``isthmus init``: a commented isthmus.yaml to start from.

Invariant: what it writes passes ``config check`` as it stands, and it never overwrites a configuration
unless told to.
"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.config import json_schema
from isthmus.errors import UsageError

SCHEMA_FILE = "isthmus.schema.json"

TEMPLATE = f"""\
# yaml-language-server: $schema={SCHEMA_FILE}
#
# What Isthmus replicates. Check it with: isthmus config check
#
# ${{NAME}} and ${{NAME:-default}} are replaced by environment variables in any value, and $${{ stands for
# a plain ${{. Relative paths are relative to this file. Durations need a unit: 500ms, 30s, 5m, 1h30m.

# The clusters. A name stays when its cluster is rebuilt; it becomes part of topic names.
sites:
  primary:
    bootstrap:
      - kafka-1.primary.example:9092
      - kafka-2.primary.example:9092
    # tls: true                  # with the system's authorities, or:
    # tls:
    #   ca: certs/ca.pem
    #   certificate: certs/client.pem
    #   key: certs/client.key
    #   key_password: {{env: KEY_PASSWORD}}
    # sasl:
    #   mechanism: SCRAM-SHA-512  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    #   username: isthmus
    #   password: {{file: secrets/primary}}  # read anew for each connection; or {{env: NAME}}
    # cluster_id: MkU3OEVBNTcwNTJENDM2Qk  # stop if another cluster answers
    # request_timeout: 30s

  recovery:
    bootstrap: kafka-1.recovery.example:9092

# One-way replications. Two of them in opposite directions make a pair of active sites.
links:
  orders:
    from: primary
    to: recovery
    topics:
      include:
        - orders               # a name
        - /payments\\..*/       # or a regular expression that matches the whole name
      exclude: []
    # rename: "{{source}}.{{topic}}"  # also {{target}} and {{link}}
    # start: earliest            # latest, {{timestamp: 2026-01-31T08:00:00Z}},
    #                            # {{offsets: {{orders: {{0: 42}}}}}}
    # rate_limit: 10 MB/s
    # commit_interval: 1s        # the longest that readers at the target wait for a transaction
    # compression: keep          # none, gzip, snappy, lz4, zstd
    # headers:
    #   offset: isthmus-offset   # off adds none
    # rules:
    #   - my_package.rules:drop_tests
    # delivery: exactly-once     # at-least-once
    # on_corrupt: stop           # skip
    # tasks: 4
    # lease: 5m
    # replication_factor: 3      # of topics that the link creates
    # sync:                      # what follows the data
    #   configs:                 # settings of topics; off
    #     deny: [min.insync.replicas]
    #   acls:                    # on; left out: off
    #     standby: true          # hold back who may write
    # spark:
    #   spark.executor.memory: 2g

# Spark options for all links.
spark:
  spark.master: local[*]

# The secret that signs what Isthmus keeps at the sites: openssl rand -hex 32 > secrets/state; then `isthmus state sign`.
# state:
#   secret: {{file: secrets/state}}
"""


def register(app: typer.Typer) -> None:
    app.command("init", epilog=examples("isthmus init", "isthmus init -c sites/prod.yaml", "isthmus init --stdout"))(
        init
    )


def init(
    config: ConfigOption = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print it and write no file.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a commented isthmus.yaml to start from, and its schema for editors beside it."""
    if stdout:
        output.emit({"config": TEMPLATE} if json else TEMPLATE.rstrip("\n"), json)
        return
    schema = config.parent / SCHEMA_FILE
    _write(config, TEMPLATE, overwrite=force)
    # Made from the models and from nothing else, so there is nothing to lose by writing it again.
    _write(schema, json_module.dumps(json_schema(), indent=2) + "\n", overwrite=True)
    if json:
        output.emit({"written": [str(config), str(schema)]}, json_mode=True)
    else:
        output.emit(f"wrote {config} and {schema}", json_mode=False)
        output.note(f"edit it, then run: isthmus config check{'' if config == DEFAULT_CONFIG else f' -c {config}'}")


def _write(path: Path, text: str, *, overwrite: bool) -> None:
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is already there; --force overwrites it") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
