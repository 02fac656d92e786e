"""isthmus.yaml -> ``Config``, or every mistake in it at once.

Invariant: one run finds all mistakes. Fields are judged one by one by the models; what fields, links and
sites must satisfy together is judged with whatever is good, so that no mistake hides another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from isthmus.config.base import Model
from isthmus.config.config import Config, check_config, fill_names
from isthmus.config.document import MOST_BYTES, Document, Found, read, too_large
from isthmus.config.link import START_TAGS, Link, check_link
from isthmus.config.mistakes import KIND, Loc, Mistake, Problem, config_error, did_you_mean, nearest
from isthmus.config.paths import BASE, why_unreadable
from isthmus.config.secret import Secret
from isthmus.config.site import Site
from isthmus.config.spark import is_credential

# What people write when they know another tool; difflib would not find these.
_SYNONYMS = {
    "source": "from", "destination": "to", "target": "to", "ssl": "tls",
    "brokers": "bootstrap", "servers": "bootstrap", "clusters": "sites", "replications": "links",
    "user": "username",
}  # fmt: skip
_EXPECTED = {
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "list_type": "expected a list",
    "string_type": "expected text",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": "too long",
}


def load(path: str | os.PathLike[str]) -> Config:
    """Read a configuration file. Raises ``ConfigError`` with all mistakes."""
    file = os.fspath(path)
    try:
        text = _text(file)
    except (OSError, UnicodeDecodeError) as error:
        hint = "isthmus init writes one to start from" if isinstance(error, FileNotFoundError) else ""
        mistake = Mistake(file=file, line=None, column=None, path="", problem=why_unreadable(error), hint=hint)
        raise config_error([mistake]) from None
    base = Path(file).absolute().parent
    config = loads(text, file=file, base=base)
    if any(isinstance(rule, str) for link in config.links.values() for rule in link.rules):
        _importable(str(base))
    return config


def _importable(directory: str) -> None:
    """Rules of one's own are found beside the configuration, by processes that are started from here too; after everything else, so that
    nothing is hidden by them."""
    if directory not in sys.path:
        sys.path.append(directory)
    known = os.environ.get("PYTHONPATH", "")
    if directory not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{known}{os.pathsep}{directory}" if known else directory


def plain_secrets(path: str | os.PathLike[str], config: Config) -> list[Mistake]:
    """Secrets that stand in the file itself, as mistakes to warn of: whoever may read the file has them."""
    file = os.fspath(path)
    document = read(_text(file), file, os.environ)
    problem = "a secret stands in the file as plain text"
    hint = "use {file: PATH} or {env: NAME} instead, and change the secret if others may have read it"
    return [
        document.mistake(loc, problem, hint)
        for loc in _plain(config, ())
        if "${" not in _written(document, loc)  # which names a variable
    ]


def _plain(value: Any, loc: Loc) -> Iterator[Loc]:
    if isinstance(value, Secret):
        if value.plain:
            yield loc
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            alias = field.validation_alias if isinstance(field.validation_alias, str) else name
            yield from _plain(getattr(value, name), (*loc, alias))
    elif isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, str) and str(key).startswith("spark.") and is_credential(key):
                yield (*loc, key)
            yield from _plain(each, (*loc, key))


def _text(file: str) -> str:
    with open(file, "rb") as stream:
        raw = stream.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise config_error([too_large(file)])
    return raw.decode("utf-8-sig")


def loads(text: str, *, file: str = "isthmus.yaml", base: str | os.PathLike[str] = ".") -> Config:
    """The same for text; relative paths in it are relative to ``base``."""
    document = read(text, file, os.environ)
    if document.data is None and document.mistakes:
        raise config_error(document.mistakes)
    context = {BASE: os.fspath(base)}
    config: Config | None = None
    mistakes = [*document.mistakes, *_written_names(document)]
    try:
        # By alias only: the file knows one spelling, "from" and not "source".
        config = Config.model_validate(document.data, context=context, by_alias=True, by_name=False)
    except ValidationError as error:
        mistakes += _own_mistakes(document, error)
        mistakes += _joint_mistakes(document, context)
    # Raised outside the handler: the validation error holds the input, secrets included, and must not
    # hang on to ours as its context.
    if config is None or mistakes:
        raise config_error(_without_echoes(mistakes, document))
    return config


def place(path: str | os.PathLike[str], problems: Sequence[Problem]) -> list[Mistake]:
    """Problems that were found elsewhere (by asking the sites), each with its place in the file."""
    file = os.fspath(path)
    document = read(_text(file), file, os.environ)
    return [_place(document, problem.loc, problem._replace(loc=())) for problem in problems]


def _written_names(document: Document) -> list[Mistake]:
    """A site or link is named by its key; the models' ``name`` is not for the file."""
    return [
        document.mistake((group, key, "name"), "unknown key", "the name is the key above", key=True)
        for group in ("sites", "links")
        for key, member in _members(document.data, group)
        if isinstance(member, dict) and "name" in member
    ]


def _own_mistakes(document: Document, error: ValidationError) -> list[Mistake]:
    items = error.errors(include_url=False, include_input=False)
    # A misspelt key is one mistake, not also a missing one.
    meant = {
        (*_clean(item["loc"])[:-1], _nearest_key(_clean(item["loc"])))
        for item in items
        if item["type"] == "extra_forbidden"
    }
    mistakes = []
    for item in items:
        loc, kind, context = _clean(item["loc"]), item["type"], item.get("ctx", {})
        if kind == KIND:
            problems: list[Problem] = context["problems"]
            if loc[-1:] == ("[key]",):  # pydantic's mark for the key of a mapping
                mistakes += [_place(document, loc[:-1], p._replace(at_key=True)) for p in problems]
            else:
                mistakes += [_place(document, loc, p, found="text" if context["found"] else "no") for p in problems]
        elif kind == "extra_forbidden":
            mistakes.append(document.mistake(loc, "unknown key", _key_hint(loc), key=True))
        elif kind == "missing":
            if loc not in meant:
                mistakes.append(document.mistake(loc, "missing", key=True))
        elif kind == "literal_error":
            choices = _choices(context["expected"])
            written = _written(document, loc)
            near = nearest(written, choices)
            hint = f'did you mean "{near}"?' if near else ""
            mistakes.append(document.mistake(loc, f"expected {_any_of(choices)}", hint, found="text"))
        else:
            mistakes.append(document.mistake(loc, _EXPECTED.get(kind, item["msg"]), found=_shown(kind)))
    return mistakes


def _shown(kind: str) -> Found:
    return "no" if kind.endswith(("_short", "_long")) else "kind"


def _joint_mistakes(document: Document, context: dict[str, Any]) -> list[Mistake]:
    """What can be said about sites and links together although some field is bad."""
    data = fill_names(document.data)
    if not isinstance(data, dict):
        return []
    sites = {name: _good_fields(Site, raw, context) for name, raw in _members(data, "sites")}
    links = {name: _good_fields(Link, raw, context) for name, raw in _members(data, "links")}
    spark = _good_fields(Config, {key: data[key] for key in ("spark",) if key in data}, context).get("spark")
    problems = check_config(sites, links, spark)
    for name, link in links.items():
        problems += [p._replace(loc=("links", name, *p.loc)) for p in check_link(link)]
    return [_place(document, (), problem) for problem in problems]


def _members(data: Any, group: str) -> list[tuple[str, Any]]:
    members = data.get(group) if isinstance(data, dict) else None
    return list(members.items()) if isinstance(members, dict) else []


def _good_fields(model: type[Model], raw: Any, context: dict[str, Any]) -> dict[str, Any]:
    """The fields of a site or link that are good taken alone, by name; those left out have their default."""
    good: dict[str, Any] = {}
    if not isinstance(raw, dict):
        return good
    for name, field in model.model_fields.items():
        key = _key(name, field)
        if key not in raw:
            if not field.is_required():
                good[name] = field.default
            continue
        annotation: Any = field.annotation
        if field.metadata:
            annotation = Annotated[annotation, *field.metadata]
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            good[name] = adapter.validate_python(raw[key], context=context, by_alias=True, by_name=False)
        except ValidationError:
            continue
    return good


def _key(name: str, field: FieldInfo) -> str:
    """How a field is written in the file."""
    return str(field.validation_alias or name)


def _place(document: Document, loc: Loc, problem: Problem, *, found: Found = "no") -> Mistake:
    where = (*loc, *problem.loc)
    return document.mistake(where, problem.problem, problem.hint, found=found, key=problem.at_key)


def _clean(loc: Loc) -> Loc:
    """The place in the file: without the marks that pydantic adds for the members of a union."""
    return tuple(part for number, part in enumerate(loc) if part not in START_TAGS or loc[number - 1] != "start")


def _written(document: Document, loc: Loc) -> str:
    place = document.root
    for part in loc:
        place = place.children.get(part, place)
    return place.written


def _choices(expected: str) -> list[str]:
    """Pydantic's ``'a', 'b' or 'c'`` as a list."""
    return [word.strip().strip("'") for word in expected.replace(" or ", ", ").split(",")]


def _any_of(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _key_hint(loc: Loc) -> str:
    near = _nearest_key(loc)
    return f'did you mean "{near}"?' if near else did_you_mean(str(loc[-1]), _known_keys(loc[:-1]))


def _nearest_key(loc: Loc) -> str | None:
    key, known = str(loc[-1]), _known_keys(loc[:-1])
    return _SYNONYMS[key] if _SYNONYMS.get(key) in known else nearest(key, known)


def _known_keys(loc: Loc) -> list[str]:
    model = _model_at(loc)
    fields = model.model_fields if model else {}
    return [_key(name, field) for name, field in fields.items() if name != "name"]


def _model_at(loc: Loc) -> type[BaseModel] | None:
    """The model that reads the mapping at this place."""
    current: Any = Config
    for part in loc:
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {_key(name, field): field for name, field in current.model_fields.items()}
            if part not in fields:
                return None
            current = fields[str(part)].annotation
        elif get_origin(current) is dict:
            current = get_args(current)[1]
        current = _unwrapped(current)
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _unwrapped(annotation: Any) -> Any:
    """The model inside ``Annotated[...]`` and ``... | None``."""
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    if get_origin(annotation) is dict or isinstance(annotation, type):
        return annotation
    members = [arg for arg in get_args(annotation) if arg is not type(None)]
    return _unwrapped(members[0]) if len(members) == 1 else annotation


def _without_echoes(mistakes: list[Mistake], document: Document) -> list[Mistake]:
    """Leave out what only follows from a variable that is not set, or from a tag, at the same place."""
    broken = {(m["line"], m["column"]) for m in document.mistakes}
    return [m for m in mistakes if m in document.mistakes or (m["line"], m["column"]) not in broken]
