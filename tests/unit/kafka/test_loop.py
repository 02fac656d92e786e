"""The loop of a task: what is left when it is closed."""

from __future__ import annotations

import gc

import pytest

from isthmus.kafka.loop import Loop


async def _work(done: list[str], loop: Loop) -> None:
    await loop.sleep(0)
    done.append("done")


@pytest.mark.filterwarnings("error")
def test_what_was_never_begun_goes_quietly_with_its_loop() -> None:
    loop, done = Loop(), list[str]()
    loop.run(_work, done, loop)
    loop.run(loop.spawn, _work(done, loop))
    loop.spawn(_work(done, loop))
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.spawn(_work(done, loop))
    gc.collect()  # a coroutine that nobody has awaited would warn now
    assert not loop._spawned
    assert done[0] == "done"
