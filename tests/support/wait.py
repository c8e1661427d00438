"""Waiting for a condition with a deadline and a message, instead of sleeping for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class WaitTimeout(AssertionError):
    """The condition did not hold in time; the message says which, and what was seen last."""


def _verdict(message: str, deadline_s: float, last: object) -> WaitTimeout:
    return WaitTimeout(f"not within {deadline_s:g} s: {message} (last seen: {last!r})")


def wait_until(
    condition: Callable[[], Result],
    message: str,
    *,
    deadline_s: float = 30.0,
    interval_s: float = 0.05,
    ignore: tuple[type[BaseException], ...] = (),
) -> Result:
    """Polls ``condition`` until it is truthy and returns that value.

    Exceptions listed in ``ignore`` count as "not yet"; every other one ends the wait at once.
    Raises :class:`WaitTimeout` after ``deadline_s``.
    """
    end = time.monotonic() + deadline_s
    while True:
        last: Any
        try:
            last = condition()
            if last:
                return last
        except ignore as error:
            last = error
        if time.monotonic() >= end:
            raise _verdict(message, deadline_s, last)
        time.sleep(interval_s)


async def wait_until_async(
    condition: Callable[[], Any],
    message: str,
    *,
    deadline_s: float = 30.0,
    interval_s: float = 0.02,
    ignore: tuple[type[BaseException], ...] = (),
) -> Any:
    """The same for a running loop; ``condition`` may be a plain or a coroutine function."""
    end = time.monotonic() + deadline_s
    while True:
        last: Any
        try:
            last = condition()
            if asyncio.iscoroutine(last) or asyncio.isfuture(last):
                last = await last
            if last:
                return last
        except ignore as error:
            last = error
        if time.monotonic() >= end:
            raise _verdict(message, deadline_s, last)
        await asyncio.sleep(interval_s)
