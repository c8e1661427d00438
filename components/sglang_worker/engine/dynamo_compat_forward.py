"""Calling another worker from inside a handler (ai-dynamo 1.6.1, its ``Client``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from sglang_worker.config.worker_config import EndpointAddress


class Peers:
    """The instances of one endpoint, which may come and go."""

    def __init__(self, runtime: Any, address: EndpointAddress) -> None:
        self._endpoint = runtime.endpoint(address.path)
        self._client: Any = None

    async def watch(self) -> None:
        """Begin to follow the instances; none need exist yet."""
        self._client = await self._endpoint.client()

    async def send(self, request: Mapping[str, Any], context: Any) -> AsyncIterator[Any]:
        """The answer of the next instance, chunk by chunk; what it raises is raised here."""
        async for item in await self._client.round_robin(dict(request), context=context):
            yield item.data()


def linked_context(context: Any) -> Any:
    """A context of its own for the call onward, with the request's id and trace."""
    return context.detached(context.id())
