"""Calling another worker from inside a handler (ai-dynamo 1.6.1, its ``Client``)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from sglang_worker.config.worker_config import EndpointAddress
from sglang_worker.engine import dynamo_compat

# What failed over there arrives as an exception whose text begins with its kind; only an
# InvalidArgument arrives as itself.
UNAVAILABLE, INVALID, INTERNAL = "Unavailable", "InvalidRequest", "Internal"


class Peers:
    """The instances of one endpoint, which may come and go."""

    def __init__(self, runtime: Any, address: EndpointAddress) -> None:
        self._endpoint = runtime.endpoint(address.path)
        self._client: Any = None

    async def watch(self) -> None:
        """Begin to follow the instances; none need exist yet."""
        self._client = await self._endpoint.client()

    @property
    def exist(self) -> bool:
        return bool(self._client.instance_ids())

    async def send(self, request: Mapping[str, Any], context: Any) -> AsyncGenerator[Any, None]:
        """The answer of the next instance, chunk by chunk.

        Raises what the frontend understands as the instance's own failure.
        """
        try:
            async for item in await self._client.round_robin(dict(request), context=context):
                yield item.data()
        except Exception as error:
            raise relayed(error) from None


def linked_context(context: Any) -> Any:
    """A context of its own for the call onward, with the request's id and trace."""
    return context.detached(context.id())


def relayed(error: Exception) -> Exception:
    """A peer's failure as this worker's own, for the frontend.

    A peer that is gone must not have this worker set aside: `Disconnected` lets the frontend try
    again, here too.
    """
    from dynamo.llm import exceptions

    if isinstance(error, exceptions.DynamoException):
        return error
    kind, _, text = str(error).partition(": ")
    coded = _with_code(text)
    if coded is not None:
        return dynamo_compat.http_error(*coded)
    makers: Mapping[str, Callable[[str], Exception]] = {
        UNAVAILABLE: exceptions.Disconnected,
        "Cancelled": exceptions.Cancelled,
        INVALID: lambda message: exceptions.InvalidArgument(message.removeprefix("ValueError: ")),
        INTERNAL: RuntimeError,
    }
    return makers[kind](text) if kind in makers else error


def _with_code(text: str) -> tuple[int, str] | None:
    """An HttpError arrives as ``{"message": …, "code": …}``."""
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
        return int(found["code"]), str(found["message"])
    except (ValueError, KeyError, TypeError):
        return None
