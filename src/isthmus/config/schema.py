"""The JSON Schema of isthmus.yaml, for editors.

Invariant: it is made from the models and from nothing else. It judges each field alone, as a person
should write it: what needs a look at other fields is left to ``config check``, and the models also
forgive a number without quotes where text is wanted.
"""

from __future__ import annotations

from typing import Any

from isthmus.config.config import Config
from isthmus.config.names import NAME_PATTERN
from isthmus.config.quantities import format_duration

_VARIABLE = {"$ref": "#/$defs/Variable"}


def json_schema() -> dict[str, Any]:
    """The schema as plain data."""
    schema = _tidy(Config.model_json_schema(by_alias=True, mode="validation"))
    for model in ("Site", "Link"):
        # The name is the key above; it is never written.
        definition = schema["$defs"][model]
        definition["properties"].pop("name")
        definition["required"].remove("name")
    for group in ("sites", "links"):
        schema["properties"][group]["propertyNames"] = {"pattern": f"^{NAME_PATTERN}$"}
    schema["$defs"]["Variable"] = {
        "type": "string",
        "pattern": r"\$\{",
        "description": "A value with ${VARIABLES} in it.",
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "isthmus.yaml", **schema}


def _tidy(node: Any) -> Any:
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: _tidy(value) for key, value in node.items() if not _is_noise(key, value)}
    if result.get("title") == "duration" and "default" in result:
        result["default"] = format_duration(result["default"])
    return _flat(_with_variable(result))


def _with_variable(node: dict[str, Any]) -> dict[str, Any]:
    """Where anything but free text is wanted, text with a variable in it is fine too."""
    narrow = any(isinstance(node.get(key), (str, list)) for key in ("enum", "pattern"))
    if not narrow and node.get("type") not in ("integer", "boolean", "number"):
        return node
    about: dict[str, Any] = {key: node[key] for key in ("title", "description", "default") if key in node}
    return {**about, "anyOf": [{key: node[key] for key in node if key not in about}, _VARIABLE]}


def _flat(node: dict[str, Any]) -> dict[str, Any]:
    """A choice that was only made for a variable becomes part of the choice around it."""
    if not isinstance(node.get("anyOf"), list):
        return node
    choices: list[Any] = []
    for choice in node["anyOf"]:
        inner = [choice]
        if set(choice) <= {"anyOf", "title"} and choice.get("anyOf", [])[1:] == [_VARIABLE]:
            title = {"title": choice["title"]} if "title" in choice else {}
            inner = [{**title, **choice["anyOf"][0]}, _VARIABLE]
        choices += [item for item in inner if item not in choices]
    return {**node, "anyOf": choices}


def _is_noise(key: str, value: Any) -> bool:
    """Pydantic's titles repeat the field's name; only ours, which are types, say something."""
    return key == "title" and isinstance(value, str) and value[:1].isupper() and value[:3] != "ISO"
