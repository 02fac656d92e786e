"""The tree of errors: drawn as it is, picklable with its attributes, exit codes distinct by kind."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from isthmus import errors
from isthmus.errors import IsthmusError, PartitionFault

ALL = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, IsthmusError)]


@pytest.mark.parametrize("kind", ALL, ids=lambda c: c.__name__)
def test_an_error_survives_the_way_between_processes(kind):
    error = kind("words", topic="t", partition=3, offset=9) if issubclass(kind, PartitionFault) else kind("words")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert back.fields == error.fields
    assert back.message == str(back) == "words"
    assert back.to_json()["error"] == kind.__name__


def test_the_drawing_is_the_tree():
    drawn: list[tuple[int, str]] = [
        (len(m.group(1)) // 4, m.group(2))
        for m in re.finditer(r"^    ((?:[│ ]   |[├└]── )*)(\w+)  ", errors.__doc__ or "", re.MULTILINE)
    ]
    parents: list[str] = []
    seen = {}
    for depth, name in drawn:
        parents[depth:] = [name]
        seen[name] = parents[depth - 1] if depth else "Exception"
    assert seen == {c.__name__: c.__mro__[1].__name__ for c in ALL}


def test_exit_codes_tell_kinds_apart():
    direct = [c for c in ALL if c.__mro__[1] is IsthmusError]
    assert len({c.exit_code for c in direct}) == len(direct)
