"""One request inside the internal workers, as the encode worker sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from sglang_worker.engine import dynamo_compat_forward
from sglang_worker.engine.dynamo_compat_forward import Peers
from sglang_worker.requests.errors import EndedByEngine
from sglang_worker.requests.multimodal_embedded import handed_over


class InternalWorkers:
    """``generating``: pd or decode. ``prefilling``: present when prefill runs on its own."""

    def __init__(self, generating: Peers, prefilling: Peers) -> None:
        self.generating = generating
        self.prefilling = prefilling
        self._split = False
        # asyncio keeps only weak references to tasks.
        self.handovers: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        await self.generating.watch()
        await self.prefilling.watch()

    @property
    def split(self) -> bool:
        """Whether prefill runs on its own. Once seen it stays: decode alone can do nothing with a
        request, and would call the client's what is a lost prefill worker's fault."""
        self._split = self._split or self.prefilling.exist
        return self._split


class Forwarded:
    """Relays the chunks; a hang-up or `fail` ends the request over there as well."""

    def __init__(self, workers: InternalWorkers, request: Mapping[str, Any], context: Any) -> None:
        self._workers = workers
        self._request = request
        self._outer = context
        self._inner = dynamo_compat_forward.linked_context(context)
        self._prefill: Any = None
        self._prefill_error: Exception | None = None
        self.stopped = False
        self.failed = False

    def stop(self, _: object = None) -> None:
        self.stopped = True
        self._end()

    def fail(self) -> None:
        self.failed = True
        self._end()

    def _end(self) -> None:
        self._inner.stop_generating()
        if self._prefill is not None:
            self._prefill.stop_generating()

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Raises what an internal worker raised, and EndedByEngine after `fail`."""
        gone: asyncio.Future[Any] = self._outer.async_killed_or_stopped()
        gone.add_done_callback(self.stop)
        finished = False
        try:
            request = self._request
            if self._workers.split:
                request = await self._prefilled()
            answer = self._workers.generating.send(request, self._inner)
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    finished = finished or bool(chunk.get("finish_reason"))
                    yield chunk
        except Exception:
            self._raise_prefill_error()
            raise
        finally:
            gone.remove_done_callback(self.stop)
            gone.cancel()
            if not finished:
                self._end()
        if not finished and not self.stopped:
            self._raise_prefill_error()
            if self.failed:
                raise EndedByEngine("the worker is shutting down")

    async def _prefilled(self) -> Mapping[str, Any]:
        """Start the prefill; it goes on by itself while decode fetches from it."""
        self._prefill = dynamo_compat_forward.linked_context(self._outer)
        chunks = self._workers.prefilling.send(self._request, self._prefill)
        first: Mapping[str, Any] = await anext(chunks, {})
        task = asyncio.get_running_loop().create_task(self._rest_of_prefill(chunks))
        self._workers.handovers.add(task)
        task.add_done_callback(self._workers.handovers.discard)
        return handed_over(self._request, first)

    async def _rest_of_prefill(self, chunks: AsyncIterator[Any]) -> None:
        try:
            async for _ in chunks:
                pass
        except Exception as error:
            # Decode waits for a KV cache that will not come.
            self._prefill_error = error
            self._inner.stop_generating()

    def _raise_prefill_error(self) -> None:
        if self._prefill_error is not None:
            raise self._prefill_error
