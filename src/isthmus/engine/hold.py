"""Taking a link out of service, and back into it.

Invariant: when ``hold`` returns, nothing that was dealt before can write any more: the wish is written, then the claim moves on, then
every slot is fenced. What the link has committed by then is final, so positions and log ends read afterwards belong together.
"""

from __future__ import annotations

from isthmus.config import Link
from isthmus.engine.pen import with_pen
from isthmus.engine.plan import ensure_state_topics
from isthmus.engine.state import Control
from isthmus.engine.steer import read_control, steer
from isthmus.kafka.cluster import Cluster

# At-least-once has no fence: a task sees the wish within a second, and ends what it has begun.
LETTING_GO_SECONDS = 3.0


async def hold(target: Cluster, link: Link, reason: str) -> None:
    """Hold a link for this reason; a link that is held already is fenced again, which does no harm."""
    await ensure_state_topics(target, link)
    await steer(target, link, held=reason)
    await with_pen(target, link, _nothing)
    if link.delivery != "exactly-once":
        await target.loop.sleep(LETTING_GO_SECONDS)


async def _nothing(*_: object) -> None:
    """Taking the pen has fenced all there was."""


async def release(target: Cluster, link: Link) -> Control:
    """Let a held link go on."""
    await ensure_state_topics(target, link)
    control = await read_control(target, link.name)
    return await steer(target, link, held="", deal_again=True) if control.held else control
