"""The order of reading: what is late is waited for, and what will never come is not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from verify_tools import pair

from isthmus.errors import DataError
from isthmus.recovery import verify_survey
from isthmus.recovery.verify_survey import Survey


class Site:
    """A destination whose last stable offset comes after what is appended, look by look."""

    def __init__(self, appended: int, stable: list[int]) -> None:
        self.appended, self._stable = appended, stable
        self.site = SimpleNamespace(name="west")
        self.loop = self
        self.slept = 0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1

    def stable(self) -> int:
        return self._stable.pop(0) if len(self._stable) > 1 else self._stable[0]


async def _list_offsets(cluster: Any, wanted: Mapping[Any, int], committed_only: bool = True) -> dict[Any, int]:
    return dict.fromkeys(wanted, cluster.stable() if committed_only else cluster.appended)


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_survey, "list_offsets", _list_offsets)


def settle(site: Site) -> int:
    """Where the destination ends after waiting; the map has ten records before the watermark, and two behind it."""
    found = Survey([pair([(0, 0, 12)], 10, 5)])
    asyncio.run(verify_survey._settle(site, found))
    return found.pairs[0].target_end


def test_markers_that_are_late_are_waited_for() -> None:
    site = Site(13, [5, 5, 13])
    assert settle(site) == 13
    assert site.slept == 3


def test_what_the_log_does_not_hold_is_not_waited_for() -> None:
    site = Site(8, [8])
    assert settle(site) == 8
    assert site.slept == 0


def test_what_lies_behind_the_watermark_is_not_waited_for() -> None:
    site = Site(12, [10])
    assert settle(site) == 10


def test_the_map_is_read_up_to_what_was_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {None: ([(b"a", b"1"), (b"b", b"2")], 2), 2: ([], 2), "again": ([(b"a", None), (b"b", b"3")], 4)}
    asked: list[Any] = []

    async def read_to_end(cluster: Any, topic: Any, position: int | None) -> Any:
        asked.append(position)
        return parts["again" if asked.count(2) > 2 else position]

    monkeypatch.setattr(verify_survey, "read_to_end", read_to_end)
    lines = asyncio.run(verify_survey._lines(Site(4, [2]), "link"))
    assert lines == {b"b": b"3"}
    assert asked == [None, 2, 2, 2]


def test_a_transaction_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_to_end(cluster: Any, topic: Any, position: int | None) -> Any:
        return [], 2

    monkeypatch.setattr(verify_survey, "read_to_end", read_to_end)
    monkeypatch.setattr(verify_survey, "OPEN_SECONDS", 0.0)
    with pytest.raises(DataError, match=r"_isthmus.link.map has been open .* from offset 2"):
        asyncio.run(verify_survey._lines(Site(4, [2]), "link"))
