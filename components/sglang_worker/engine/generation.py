"""One client request inside SGLang, from its dispatch until SGLang has let go of it.

Two phases. Until the first output SGLang may not have dispatched the request yet, and it ignores
an abort that overtakes its request; so the task that waits for the first output is cancelled, on
which SGLang drops or aborts every sample itself. After the first output everything is dispatched:
an abort is one message per sample, and the stream ends by itself. The second phase therefore
iterates SGLang's generator directly, with no task and no wait set per token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from sglang_worker.engine import compat, compat_receive
from sglang_worker.requests.errors import EndedByEngine

FIRST_POLL_S = 0.002
LAST_POLL_S = 0.05
# A scheduler that needs longer than this to drop a request deserves a line in the log.
SLOW_RELEASE_S = 30.0

logger = logging.getLogger(__name__)


class Generation:
    """Used from the event loop's thread only."""

    __slots__ = ("_first", "_ids", "_manager", "_pace", "_stream", "ended", "failed", "stopped")

    def __init__(self, tokenizer_manager: Any, fields: Mapping[str, Any], request_id: str) -> None:
        self._open(tokenizer_manager, *compat.new_request(fields, request_id))

    def _open(self, tokenizer_manager: Any, request: Any, ids: set[str]) -> None:
        """``ids``: all ids of the request, a live set where SGLang makes more of them."""
        self._ids = ids
        self._manager = tokenizer_manager
        self._pace = compat_receive.pace_of(tokenizer_manager)
        self._stream: AsyncIterator[Any] = compat.generate(tokenizer_manager, request)
        self._first: asyncio.Task[Any] | None = None
        # The client went away: nothing more is to be sent.
        self.stopped = False
        # The worker cannot finish it: another worker shall.
        self.failed = False
        # SGLang's stream is exhausted, so SGLang holds none of the ids.
        self.ended = False

    @property
    def request_ids(self) -> frozenset[str]:
        """The ids of the request and of every sample that exists so far."""
        return frozenset(self._ids)

    async def first(self) -> Any:
        """Dispatch the request and wait for its first output (one output of SGLang, or for a
        batch without streaming the list of all); None when it was stopped before.

        Raises EndedByEngine when `fail` came first, and what SGLang raises (ValueError for a
        request that it refuses).
        """
        if self.stopped or self.failed:
            # Nothing was dispatched; closing an unstarted generator runs none of its code.
            self.ended = True
            self._raise_if_failed()
            return None
        self._first = asyncio.ensure_future(anext(self._stream))
        try:
            output = await self._first
            if self.stopped or self.failed:
                # SGLang waited with `asyncio.wait_for`, as older ones do, and that swallowed the
                # cancellation: the request is dispatched, and nothing but an abort ends it.
                compat.abort(self._manager, self._ids)
            return output
        except StopAsyncIteration:
            self.ended = True
            return None
        except asyncio.CancelledError:
            if not (self.stopped or self.failed):
                # Our own task was cancelled from outside: SGLang's must not run on alone.
                self._first.cancel()
                raise
            self._raise_if_failed()
            return None
        finally:
            self._first = None

    def _raise_if_failed(self) -> None:
        if self.failed and not self.stopped:
            raise EndedByEngine("the worker is shutting its engine down")

    async def rest(self) -> AsyncIterator[Any]:
        """All further outputs. After `stop` or `fail` it runs on until SGLang has let go."""
        pace, samples_heard = self._pace, 0
        async for output in self._stream:
            yield output
            # All samples of a request are in this one stream: it waits once for all of them, and
            # not after the last word.
            if pace.behind:
                samples_heard += 1
                if samples_heard >= len(self._ids) and not compat.is_last(output):
                    samples_heard = 0
                    await pace.turn()
        self.ended = True

    def stop(self, _: object = None) -> None:
        """The client no longer wants the answer. Also usable as a future's done-callback."""
        if not self.stopped and not self.ended:
            self.stopped = True
            self._end()

    def fail(self) -> None:
        """End it with an error on which the frontend goes on elsewhere."""
        if not self.failed and not self.ended:
            self.failed = True
            self._end()

    def fail_without_engine(self) -> None:
        """As `fail` when no scheduler is left to answer an abort."""
        self.fail()
        compat.end_locally(self._manager, self._ids)

    def _end(self) -> None:
        if self._first is not None and not self._first.done():
            self._first.cancel()
        else:
            compat.abort(self._manager, self._ids)

    async def let_go(self) -> None:
        """Return once SGLang holds none of the ids. Call it after `stop` or `fail`, or instead of
        iterating to the end."""
        with suppress(Exception):
            await self._close()
        compat.abort(self._manager, self._ids)
        delay_s, waited_s, told = FIRST_POLL_S, 0.0, False
        while compat.held(self._manager, self._ids):
            await asyncio.sleep(delay_s)
            waited_s += delay_s
            delay_s = min(delay_s * 2, LAST_POLL_S)
            if waited_s > SLOW_RELEASE_S and not told:
                told = True
                logger.warning("the engine still holds a request %d s after its end", waited_s)
        self.ended = True

    async def _close(self) -> None:
        """Close SGLang's generator, unless a cancelled task still unwinds inside it."""
        if self._first is not None:
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await self._first
        await self._stream.aclose()  # type: ignore[attr-defined]
