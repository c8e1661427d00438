"""One request inside an internal worker, as the encode worker sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sglang_worker.engine import dynamo_compat_forward
from sglang_worker.engine.dynamo_compat_forward import Peers
from sglang_worker.requests.errors import EndedByEngine


class Forwarded:
    """Relays the chunks; a hang-up or `fail` ends the request over there as well."""

    def __init__(self, peers: Peers, request: Mapping[str, Any], context: Any) -> None:
        self._peers = peers
        self._request = request
        self._outer = context
        self._inner = dynamo_compat_forward.linked_context(context)
        self.stopped = False
        self.failed = False

    def stop(self, _: object = None) -> None:
        self.stopped = True
        self._inner.stop_generating()

    def fail(self) -> None:
        self.failed = True
        self._inner.stop_generating()

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Raises what the internal worker raised, and EndedByEngine after `fail`."""
        gone: asyncio.Future[Any] = self._outer.async_killed_or_stopped()
        gone.add_done_callback(self.stop)
        finished = False
        try:
            async for chunk in self._peers.send(self._request, self._inner):
                finished = finished or bool(chunk.get("finish_reason"))
                yield chunk
        finally:
            gone.remove_done_callback(self.stop)
            gone.cancel()
            if not finished:
                self._inner.stop_generating()
        if self.failed and not self.stopped:
            raise EndedByEngine("the worker is shutting down")
