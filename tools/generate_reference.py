"""Write docs/configuration.md and docs/isthmus.schema.json from the models of the configuration.

Invariant: both files are a function of the code alone; with --check nothing is written and the exit code
says whether they are current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from isthmus.config import json_schema

DOCS = Path(__file__).resolve().parent.parent / "docs"

INTRODUCTION = """\
# Configuration reference

<!-- Made by tools/generate_reference.py from the models in src/isthmus/config. Do not edit. -->

Isthmus reads `isthmus.yaml` in the working directory, the file that `--config` names, or the file in
`ISTHMUS_CONFIG`. `isthmus init` writes one to start from, and `isthmus config check` reports every
mistake at once, each with its line and column. [isthmus.schema.json](isthmus.schema.json) is the same
reference for editors; `isthmus config schema` prints it.

- **Variables.** `${NAME}` and `${NAME:-default}` are replaced in any value; `$${` stands for a plain `${`.
  A variable without a default must be set. Inside `[ ]` and `{ }` write them in quotes.
- **Secrets.** A secret is `{env: NAME}`, `{file: PATH}` or text. A file is read anew for each connection,
  and a newline at its end is not part of the secret. Isthmus never prints a secret.
- **Paths.** A relative path is relative to the configuration file.
- **Durations.** `500ms`, `30s`, `5m`, `1h30m`, `2d`; the unit is needed.
- **Rates.** Bytes a second: `1000000`, `10 MB/s` (10,000,000) or `64MiB` (67,108,864).
- **Topics.** An entry is a name, or a regular expression between slashes that must match the whole name:
  `/orders\\..*/` (Python's syntax). Internal topics (`__*` and `_isthmus.*`) are never copied.
- **Names** of sites and links have letters, digits, `-` and `_`, at most 61, the first a letter or digit.
"""

# The order in which a reader meets them.
SECTIONS = {
    "Site": ("Site", "sites.NAME"),
    "Tls": ("TLS", "sites.NAME.tls"),
    "Sasl": ("SASL", "sites.NAME.sasl"),
    "Registry": ("Schema registry", "sites.NAME.registry"),
    "Hooks": ("Hooks", "sites.NAME.hooks"),
    "Link": ("Link", "links.NAME"),
    "Topics": ("Topics", "links.NAME.topics"),
    "StartTimestamp": ("Start at a time", "links.NAME.start"),
    "StartOffsets": ("Start at offsets", "links.NAME.start"),
    "Headers": ("Headers", "links.NAME.headers"),
    "Origin": ("Origin", "links.NAME.origin"),
    "Loop": ("Loop", "links.NAME.loop"),
    "Override": ("Overrides", "links.NAME.loop.overrides"),
    "Sync": ("What follows the data", "links.NAME.sync"),
    "SyncGroups": ("Consumer groups", "links.NAME.sync.groups"),
    "SyncConfigs": ("Settings of topics", "links.NAME.sync.configs"),
    "SyncAcls": ("ACLs", "links.NAME.sync.acls"),
    "SyncSchemas": ("Schemas", "links.NAME.sync.schemas"),
    "Metrics": ("Metrics", "metrics"),
    "State": ("State", "state"),
}


def reference(schema: dict[str, Any]) -> str:
    """The page as Markdown."""
    missing = set(schema["$defs"]) - set(SECTIONS) - {"Variable"}
    assert not missing, f"no section for {missing}"
    parts = [INTRODUCTION, "## The file", _table(schema)]
    for name, (title, place) in SECTIONS.items():
        definition = schema["$defs"][name]
        parts += [f"## {title}", f"`{place}`: {definition['description']}", _table(definition)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _table(definition: dict[str, Any]) -> str:
    rows = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    for key, node in definition["properties"].items():
        default = "required" if key in definition.get("required", []) else _default(node.get("default"))
        cells = (f"`{key}`", _type(node), default, node["description"])
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _default(value: Any) -> str:
    return "" if value in (None, [], {}) else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(node: dict[str, Any]) -> str:
    if "$ref" in node:
        title = SECTIONS[node["$ref"].rpartition("/")[2]][0]
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if "title" in node:
        return str(node["title"])
    for choices in ("anyOf", "oneOf"):
        if choices in node:
            kept = [c for c in node[choices] if c.get("type") != "null" and c.get("$ref") != "#/$defs/Variable"]
            return " or ".join(dict.fromkeys(_type(choice) for choice in kept))
    if "enum" in node:
        return ", ".join(f"`{word}`" for word in node["enum"])
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"mapping of {_type(node['additionalProperties'])}"
    return {"string": "text", "integer": "whole number", "object": "mapping"}[node["type"]]


def files() -> dict[Path, str]:
    """What should stand in docs/."""
    schema = json_schema()
    return {
        DOCS / "configuration.md": reference(schema),
        DOCS / "isthmus.schema.json": json.dumps(schema, indent=2) + "\n",
    }


def main(arguments: list[str]) -> int:
    """Write the files, or with --check compare them."""
    stale = [path for path, text in files().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{'stale' if '--check' in arguments else 'wrote'}: {path}")
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files()[path], "utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
