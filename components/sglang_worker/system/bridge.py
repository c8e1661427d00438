"""Calling SGLang's synchronous Engine wrappers from a worker whose loop is running.

The wrappers end in ``self.loop.run_until_complete(...)``. On the running loop that raises, and any
other loop would touch the tokenizer manager's sockets and futures from the wrong one. So the
engine's ``loop`` is exchanged once for an `OwnerLoop`, and each wrapper runs in a thread of its
own, one at a time: it hands its coroutine to the owner loop and waits there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class OwnerLoop:
    """Stands in for the engine's loop; submits to the one that owns the tokenizer manager."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()

    def run_until_complete(self, awaitable: Awaitable[Any]) -> Any:
        if threading.get_ident() == self._thread_id:
            # Waiting here would wait for ourselves.
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError(
                "a synchronous Engine method was called on the worker's event loop; "
                "use the tokenizer manager's coroutine or the engine-route bridge"
            )
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop).result()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class SyncBridge:
    """Runs synchronous Engine methods off the loop, serialised. Create it on the owner loop."""

    def __init__(self, engine: Any) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(getattr(engine, "loop", None), OwnerLoop):
            engine.loop = OwnerLoop(loop)
        self._one_at_a_time = asyncio.Lock()

    async def run(self, method: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """The method's result or exception. Not cancelled half-way: SGLang could not follow."""
        async with self._one_at_a_time:
            return await asyncio.shield(_in_thread(method, arguments))


def _in_thread(method: Callable[..., Any], arguments: Mapping[str, Any]) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = method(**arguments)
        except StopIteration as stop:
            error = RuntimeError(f"StopIteration: {stop}")  # a future cannot carry it
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # The loop has closed: the process is ending and nobody waits any more.
            return

    # A daemon thread, not the loop's executor: a call that never ends must not hold up our exit.
    threading.Thread(target=work, name="engine-route", daemon=True).start()
    return answer


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
