"""One health request through the worker's own handler, from its start to its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

Handler = Callable[[Any, Any], AsyncIterator[Any]]
# None: it ended normally; else why not, in a few words.
NormalEnd = Callable[[Sequence[Any]], str | None]
ForRank = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe sends, where, and when its answer counts. ``new_context``: a request context
    of Dynamo's whose ``stop_generating`` ends the request as a client that hangs up would."""

    handler: Handler
    payload: Mapping[str, Any]
    normal_end: NormalEnd
    for_rank: ForRank
    new_context: Callable[[], Any]
    ranks: int = 1


class Probe:
    """Starts at once; ``on_end`` is called once, on the loop, with the reason or None."""

    def __init__(self, asked: Asked, rank: int, on_end: Callable[[str | None], None]) -> None:
        self._asked = asked
        self._rank = rank
        self._on_end = on_end
        self._context = asked.new_context()
        self.last_chunk: Any = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def abort(self) -> None:
        self._context.stop_generating()

    async def _run(self) -> None:
        try:
            reason = await self._verdict()
        except Exception as error:
            # Whatever the handler raises is the verdict, and must not end the health loop.
            reason = f"the probe failed: {' '.join(str(error).split()) or type(error).__name__}"
        self._on_end(reason)

    async def _verdict(self) -> str | None:
        asked = self._asked
        request = asked.payload
        if asked.ranks > 1:
            request = asked.for_rank(request, self._rank)
        chunks = [chunk async for chunk in asked.handler(request, self._context)]
        if chunks:
            self.last_chunk = chunks[-1]
        return asked.normal_end(chunks)
