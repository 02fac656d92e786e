"""One event loop a task: every connection of the task, to both sites, lives on it and on one thread.

Invariant: nothing here is shared between threads, so no state needs a lock; a coroutine gives way only where
it awaits. kafka-python's selector is the loop, since its connections are written for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from kafka.future import Future
from kafka.net.selector import NetworkSelector


class Signal:
    """Wakes the one coroutine that waits for it; a set that nobody waits for is kept for the next wait."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiter: Future | None = None
        self._set = False

    def set(self) -> None:
        if self._waiter is not None and not self._waiter.is_done:
            self._waiter.success(None)
        else:
            self._set = True

    async def wait(self, seconds: float) -> None:
        """Return when set, or after so many seconds."""
        if self._set or seconds <= 0:
            self._set = False
            # Give way even so: whoever waits in a loop must not keep the rest of the loop from running.
            await self._loop.sleep(0)
            return
        self._waiter = waiter = Future()
        timer = self._loop.later(seconds, lambda: None if waiter.is_done else waiter.success(None))
        try:
            await waiter
        finally:
            self._loop.net.cancel(timer)
            self._waiter = None


class Loop:
    """kafka-python's selector with the few verbs that a task needs."""

    def __init__(self) -> None:
        # A batch being rewritten may hold the loop for longer than kafka-python's taste (0.1 s): no warning.
        self.net = NetworkSelector(slow_task_threshold_secs=0)
        self._closed = False
        self._failure: BaseException | None = None
        # The selector drops what it has not begun when it is closed; a coroutine that nobody ever awaits warns of that.
        self._spawned: set[Coroutine[Any, Any, Any]] = set()

    def run(self, work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Drive the loop on the calling thread until the coroutine function ``work(*args)`` is done."""
        return self.net.run(work, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Future:
        """Start a coroutine beside the running one; its result or exception is in the future."""
        try:
            future: Future = self.net.call_soon_with_future(coroutine)
        except BaseException:
            coroutine.close()
            raise
        self._spawned.add(coroutine)
        future.add_both(lambda _: self._spawned.discard(coroutine))
        return future

    def background(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine that nobody waits for. It deals with what it expects; the rest is raised by ``check``."""
        self.spawn(coroutine).add_errback(self._fail)

    def _fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure

    def check(self) -> None:
        """Raise what ended a background coroutine: without it the task would look alive and do nothing."""
        if self._failure is not None:
            raise self._failure

    def later(self, seconds: float, call: Callable[[], Any]) -> Any:
        return self.net.call_at(time.monotonic() + seconds, call)

    async def sleep(self, seconds: float) -> None:
        await self.net.sleep(seconds)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.net.close()
            for coroutine in list(self._spawned):
                with suppress(RuntimeError, ValueError):  # it will not end, or is the one that closes the loop
                    coroutine.close()
            self._spawned.clear()


async def gather(futures: list[Future]) -> list[Any]:
    """Await all; the first exception is raised only after each of them is done."""
    failed: BaseException | None = None
    results: list[Any] = []
    for future in futures:
        try:
            results.append(await future)
        except Exception as error:
            failed = failed or error
            results.append(None)
    if failed is not None:
        raise failed
    return results
