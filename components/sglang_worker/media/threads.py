"""Blocking calls that may hang: name lookups, foreign storage.

In asyncio's own pool (a handful of threads on a small machine) hanging calls would leave no thread
to anything else of the worker, and would hold up its exit. Here each call has a daemon thread, and
callers that stopped waiting leave theirs behind, up to a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Value = TypeVar("Value")


class AllTaken(Exception):
    """As many calls as there may be have not returned yet."""


class BlockingCalls:
    """Used from one event loop."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._running = 0

    @property
    def running(self) -> int:
        """Calls that have not returned, awaited or not."""
        return self._running

    async def run(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """What it returns or raises. Raises AllTaken at once.

        Cancelling this stops the wait, not the call.
        """
        if self._running >= self._most:
            raise AllTaken(f"{self._running} calls of {self._name} have not returned")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Value] = loop.create_future()
        target = partial(self._call, loop, partial(function, *arguments), done)
        threading.Thread(target=target, name=self._name, daemon=True).start()
        # Counted down on this loop, so not before it is counted up.
        self._running += 1
        return await done

    def _call(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[], Value],
        done: asyncio.Future[Value],
    ) -> None:
        try:
            report = partial(self._finish, done, value=call())
        except Exception as error:
            report = partial(self._finish, done, failure=error)
        # A closed loop: the worker has ended without waiting for this call.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(report)

    def _finish(
        self, done: asyncio.Future[Any], *, value: Any = None, failure: Exception | None = None
    ) -> None:
        self._running -= 1
        if done.done():
            return
        if failure is None:
            done.set_result(value)
        else:
            done.set_exception(failure)
