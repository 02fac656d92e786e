"""Taking a link out of service, and back into it.

Invariant: when ``hold`` returns, nothing that was dealt before can write any more: the wish is written, then the claim moves on, then
every slot is fenced. What the link has committed by then is final, so positions and log ends read afterwards belong together.
"""

from __future__ import annotations

from dataclasses import replace

from isthmus.config import Link
from isthmus.engine import state
from isthmus.engine.pen import Pen
from isthmus.engine.plan import ensure_state_topics
from isthmus.engine.state import Claim, Control
from isthmus.engine.steer import read_control, steer
from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.offsets import group_offsets
from isthmus.kafka.produce import Fenced, Interrupted

# A planner that was in the middle of a plan takes the pen back once; then it sees the wish.
ATTEMPTS = 5
# At-least-once has no fence: a task sees the wish within a second, and ends what it has begun.
LETTING_GO_SECONDS = 3.0


async def hold(target: Cluster, link: Link, reason: str) -> None:
    """Hold a link for this reason; a link that is held already is fenced again, which does no harm."""
    await ensure_state_topics(target, link)
    await steer(target, link.name, held=reason)
    map_key = (state.map_topic(link.name), 0)
    pen = Pen(target, link)
    for attempt in range(ATTEMPTS):
        try:
            await pen.take()
            claim = Claim.read(
                (await group_offsets(target, state.group(link.name), [map_key], stable=True)).get(map_key)
            )
            if claim is None:
                return
            await pen.write({map_key: replace(claim, number=claim.number + 1).commit()})
            await pen.fence(claim.slots)
            break
        except (Fenced, Interrupted):
            if attempt + 1 == ATTEMPTS:
                raise DataError(f"link {link.name}: another planner kept writing; give the command again") from None
    if link.delivery != "exactly-once":
        await target.loop.sleep(LETTING_GO_SECONDS)


async def release(target: Cluster, link: Link) -> Control:
    """Let a held link go on."""
    await ensure_state_topics(target, link)
    control = await read_control(target, link.name)
    return await steer(target, link.name, held="", deal_again=True) if control.held else control
