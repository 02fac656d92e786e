"""Steering a running link from outside: pause, resume, limit, deal anew, stop; a line in the link's group.

A task reads it within a second, wherever it runs. Writers read, change and write: two operators at the same
moment may overwrite each other's wish, which both then see in ``status``.

A broker forgets a group's lines after a while (a week by default). What is meant to last (paused, held, a limit) is written to the link's
control topic too, and whoever plans puts it back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isthmus.engine import state
from isthmus.engine.state import Control
from isthmus.engine.table import read_table, write_table
from isthmus.errors import UnknownLink
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import commit_group_offsets, group_offsets

LASTING = "link/wishes"


async def read_control(target: Cluster, link: str) -> Control:
    """What operators have asked for so far."""
    key = (state.status_topic(link), 0)
    metadata = await target.metadata([key[0]])
    if metadata.topics[key[0]].error is not None:
        raise UnknownLink(
            f"link {link}: site {target.site.name} holds no state of it; it has never run with this destination"
        )
    committed = await group_offsets(target, state.group(link), [key], stable=False)
    return Control.read(committed.get(key))


async def steer(target: Cluster, link: str, **wish: Any) -> Control:
    """Change fields of the link's control; ``deal=+1`` style counting is done here."""
    now = await read_control(target, link)
    if wish.pop("deal_again", False):
        wish["deal"] = now.deal + 1
    control = replace(now, version=now.version + 1, **wish)
    if control.lasting != now.lasting:
        await write_table(target, state.control_topic(link), {LASTING: control.lasting})
    key = (state.status_topic(link), 0)
    await commit_group_offsets(target, state.group(link), {key: control.commit()})
    return control


async def put_back(target: Cluster, link: str) -> Control:
    """What lasts of the wishes, when the broker has forgotten the line."""
    kept = (await read_table(target, state.control_topic(link))).get(LASTING)
    return await steer(target, link, **kept) if kept else Control()
