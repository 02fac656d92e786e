"""YAML text -> plain data, with the place of every key and value.

Invariant: reading never stops at the first mistake that leaves the text readable: duplicate keys, tags
and missing variables are collected, and only broken syntax ends the reading. No message quotes the
text of a value, because it may be a password. However it was written, reading ends soon: size, depth and, with aliases followed, the
number of values are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from isthmus.config.mistakes import Loc, Mistake, path_text
from isthmus.config.scalar import Scalar
from isthmus.config.variables import expand

# How much a mistake may show of what was found.
Found = Literal["no", "kind", "text"]

# Far beyond any configuration that people read; what is larger is a mistake, and would take minutes to read.
MOST_BYTES, MOST_VALUES, MOST_DEPTH = 1 << 20, 100_000, 40

_CORE_TAG = "tag:yaml.org,2002:"
_MERGE = _CORE_TAG + "merge"
_KNOWN_TAGS = frozenset(_CORE_TAG + t for t in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp"))


@dataclass
class Place:
    """Where a value stands, where its key stands, and how it was written."""

    line: int
    column: int
    key_line: int
    key_column: int
    kind: str  # mapping, list, text, nothing
    written: str = ""  # as in the file, before variables were filled in
    key: str | int = ""
    children: dict[str | int, Place] = field(default_factory=dict)

    def shown(self) -> str:
        """What was found, for a mistake."""
        if self.kind != "text":
            return self.shown_kind()
        text = self.written if len(self.written) <= 60 else self.written[:57] + "..."
        return f'"{text}"'

    def shown_kind(self) -> str:
        """What kind of thing was found: for where a mapping was wanted and the text may be a secret."""
        return self.kind if self.kind in ("nothing", "text") else f"a {self.kind}"


@dataclass
class Document:
    """The data of one file, the tree of its places, and the mistakes met on the way."""

    file: str
    data: Any
    root: Place
    mistakes: list[Mistake]

    def mistake(self, loc: Loc, problem: str, hint: str = "", *, found: Found = "no", key: bool = False) -> Mistake:
        """A mistake at ``loc``.

        Parts of ``loc`` that the document does not have (the ``include`` of a short form, the items of a
        list that was written as one text) are left out of the path, except a last one with ``key``, which
        names a key that should be there.
        """
        place, path, complete = self.root, [], True
        for number, part in enumerate(loc):
            child = place.children.get(part)
            if child is not None:
                place = child
                path.append(child.key)
            else:
                complete = place.kind != "mapping"
                if key and number == len(loc) - 1:
                    path.append(part)
        at_key = key or not complete or (place.written == "" and place.kind == "nothing")
        if found != "no" and complete:
            problem += f", found {place.shown() if found == 'text' else place.shown_kind()}"
        return Mistake(
            file=self.file,
            line=place.key_line if at_key else place.line,
            column=place.key_column if at_key else place.column,
            path=path_text(path),
            problem=problem,
            hint=hint,
        )


def read(text: str, file: str, environment: Mapping[str, str]) -> Document:
    """Parse the text; with broken syntax the data is None and the only mistake says where."""
    root = Place(1, 1, 1, 1, "nothing")
    document = Document(file, None, root, [])
    if len(text) > MOST_BYTES:
        document.mistakes.append(too_large(file))
        return document
    try:
        node = YAML().compose(text)
    except YAMLError as error:
        document.mistakes.append(_syntax_mistake(error, text, file))
        return document
    except RecursionError:
        document.mistakes.append(_Limit(*_too_deep(text), _DEEP).mistake(file))
        return document
    if node is None:
        document.mistakes.append(
            Mistake(
                file=file,
                line=1,
                column=1,
                path="",
                problem="the file is empty",
                hint="isthmus init writes one to start from",
            )
        )
        return document
    try:
        document.data, document.root = _Builder(document, environment).build(node, None, "", [])
    except _Limit as limit:
        document.mistakes = [limit.mistake(file)]
    return document


_DEEP = f"lists and mappings are more than {MOST_DEPTH} deep here"


def too_large(file: str) -> Mistake:
    """The mistake of a file that is not worth reading."""
    problem = f"the file has more than {MOST_BYTES >> 20} MiB"
    hint = "choose topics by expression instead of one by one; is it the right file?"
    return Mistake(file=file, line=None, column=None, path="", problem=problem, hint=hint)


class _Limit(Exception):
    """Where a limit was passed, and which."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(problem)
        self._line, self._column, self._problem = line, column, problem

    def mistake(self, file: str) -> Mistake:
        return Mistake(file=file, line=self._line, column=self._column, path="", problem=self._problem, hint="")


def _too_deep(text: str) -> tuple[int, int]:
    """Line and column where a text gets too deep, told from the brackets and indents alone."""
    depth = 0
    for event in YAML().parse(text):
        depth += isinstance(event, CollectionStartEvent)
        depth -= isinstance(event, CollectionEndEvent)
        if depth > MOST_DEPTH:
            return event.start_mark.line + 1, event.start_mark.column + 1
    return 1, 1


class _Builder:
    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._environment = environment
        self._count = 0  # of values, each as often as aliases repeat it
        self._open: set[int] = set()  # collections being built: an alias to one of them is a circle

    def build(self, node: Node, key_node: Node | None, key: str | int, path: list[str | int]) -> tuple[Any, Place]:
        own, at_key = node.start_mark, (key_node or node).start_mark
        self._count += 1
        if self._count > MOST_VALUES:
            words = f"with aliases followed, the file has more than {MOST_VALUES} values"
            raise _Limit(at_key.line + 1, at_key.column + 1, words)
        if len(self._open) > MOST_DEPTH:
            raise _Limit(own.line + 1, own.column + 1, _DEEP)
        place = Place(own.line + 1, own.column + 1, at_key.line + 1, at_key.column + 1, "nothing", key=key)
        if node.tag not in _KNOWN_TAGS:
            place.written = "!"
            self._report(place, path, "YAML tags are not supported", 'quote a value that begins with "!"')
            return None, place
        if isinstance(node, ScalarNode):
            return self._scalar(node, place, path), place
        if id(node) in self._open:
            place.written = "*"
            self._report(place, path, "an alias refers to the collection that contains it")
            return None, place
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                place.kind = "mapping"
                return self._mapping(node, place, path), place
            assert isinstance(node, SequenceNode)
            place.kind = "list"
            items = []
            for index, item in enumerate(node.value):
                value, place.children[index] = self.build(item, None, index, [*path, index])
                items.append(value)
            return items, place
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: ScalarNode, place: Place, path: list[str | int]) -> Scalar | None:
        place.written = node.value
        text = self._expand(node.value, place, path)
        quoted = bool(node.style)  # also | and >; a plain scalar has none
        if not quoted and node.tag == _CORE_TAG + "str":
            # Text to YAML although it does not look like it: somebody wrote !!str.
            plain = Scalar.plain(node.value)
            quoted = plain is None or not isinstance(plain.value, str)
        value = Scalar.quoted(text) if quoted else Scalar.plain(text)
        place.kind = "nothing" if value is None else "text"
        return value

    def _mapping(self, node: MappingNode, place: Place, path: list[str | int]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        merged_places: dict[str | int, Place] = {}
        for key_node, value_node in node.value:
            mark = key_node.start_mark
            key_place = Place(mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 1, "text")
            if key_node.tag == _MERGE:
                for value, at in self._merge_sources(value_node, key_place, path):
                    for name, item in value.items():
                        if name not in merged:  # the first of several merged mappings wins, as YAML says
                            merged[name], merged_places[name] = item, at.children[name]
                continue
            if not isinstance(key_node, ScalarNode):
                self._report(key_place, path, "a key must be text")
                continue
            written = str(key_node.value)
            key = self._expand(written, key_place, [*path, written])
            if key in data:
                first = place.children[key]
                self._report(key_place, [*path, written], "duplicate key", f"it is already on line {first.key_line}")
                continue
            data[key], place.children[key] = self.build(value_node, key_node, written, [*path, written])
        for name, item in merged.items():
            if name not in data:
                data[name], place.children[name] = item, merged_places[name]
        return data

    def _merge_sources(self, node: Node, place: Place, path: list[str | int]) -> list[tuple[dict[str, Any], Place]]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        if not all(isinstance(source, MappingNode) for source in sources):
            self._report(place, path, 'only a mapping can be merged with "<<"')
            return []
        built = [self.build(source, None, "<<", path) for source in sources]
        return [(data, at) for data, at in built if isinstance(data, dict)]

    def _expand(self, text: str, place: Place, path: list[str | int]) -> str:
        if "${" not in text:
            return text
        expanded, problems = expand(text, self._environment)
        for problem, hint in problems:
            self._report(place, path, problem, hint)
        return expanded

    def _report(self, place: Place, path: list[str | int], problem: str, hint: str = "") -> None:
        self._document.mistakes.append(
            Mistake(
                file=self._document.file,
                line=place.line,
                column=place.column,
                path=path_text(path),
                problem=problem,
                hint=hint,
            )
        )


def _syntax_mistake(error: YAMLError, text: str, file: str) -> Mistake:
    line, column, hint = 1, 1, ""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            line, column = mark.line + 1, mark.column + 1
        problem = _scrub(": ".join(p for p in (error.context, error.problem) if p))
        lines = text.splitlines()
        here = lines[line - 1] if line <= len(lines) else ""
        if "undefined alias" in problem or "undefined tag" in problem or "cannot start any token" in problem:
            hint = "quote a value that begins with one of * & ! % @ ` and indent with spaces, not tabs"
        elif "flow" in problem and "${" in here:
            hint = 'inside [ ] and { } write "${NAME}" in quotes'
        elif "mapping values are not allowed" in problem:
            hint = 'quote a value that contains ": "'
        elif "another document" in problem:
            hint = "one file holds one configuration; remove the ---"
    else:
        # A character that YAML forbids; ruamel gives its index in the text.
        position = getattr(error, "position", 0)
        before = text[: position if isinstance(position, int) else 0]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        problem = "a character that YAML does not allow"
        hint = "remove control characters"
    return Mistake(file=file, line=line, column=column, path="", problem=f"not valid YAML: {problem}", hint=hint)


def _scrub(problem: str) -> str:
    """Keep quoted punctuation and token names, drop any other quoted text: it comes from the file."""

    def keep(match: re.Match[str]) -> str:
        quoted = match[2]
        is_ours = re.fullmatch(r"<[a-z ]+>|[^\w\s]", quoted) is not None
        return match[0] if is_ours else ""

    return re.sub(r" ?(['\"])(.*?)\1", keep, problem)
