"""What goes wrong while two sites are compared names the one where it did."""

from __future__ import annotations

from collections.abc import Iterator

import kafka.errors as kerrors
import pytest

from isthmus.config.link import Link
from isthmus.config.site import Site
from isthmus.control.ends import Ends
from isthmus.errors import IsthmusError
from isthmus.recovery.verify import _on


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Of two sites that nobody answers at."""
    link = Link.model_construct(name="east-to-west", source="east", target="west")
    made = Ends(link, *(Site(name=name, bootstrap=["127.0.0.1:9"]) for name in ("east", "west")))
    yield made
    made.close()


@pytest.mark.parametrize("where", ["east", "west"])
@pytest.mark.parametrize("kind", [kerrors.TopicAuthorizationFailedError, kerrors.KafkaTimeoutError])
def test_the_site_where_it_went_wrong(ends: Ends, where: str, kind: type[kerrors.KafkaError]) -> None:
    async def work() -> None:
        error = kind("orders")
        error.site, error.request = where, "ListOffsets"  # as Cluster.request tells it
        raise error

    with pytest.raises(IsthmusError, match=f"^site {where}: ") as raised:
        _on(ends, work)
    assert getattr(raised.value, "site", "") == where


def test_who_does_not_answer(ends: Ends) -> None:
    """An error that knows no site: the one that does not answer is asked, the source first."""

    async def work() -> None:
        raise OSError("gone")

    async def silent(_: object) -> None:
        raise kerrors.KafkaTimeoutError

    ends.source.metadata = silent  # type: ignore[method-assign,assignment]
    with pytest.raises(IsthmusError, match=r"^site east: "):
        _on(ends, work)
