"""``/metrics`` of a worker with gateways: the main process's and each gateway's, as one text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import h11
import msgspec

from sglang_worker.system.http import HttpError, HttpRequest, HttpResponse
from sglang_worker.system.metrics_merge import merge
from sglang_worker.system.proxy import RuntimeSilent, RuntimeUnreachable, forward
from sglang_worker.system.state import GatewayState, RuntimeAddress

GATEWAY_TIMEOUT_S = 2.0
"""One that is stopped must not cost the scrape of the others."""
_RECOMPUTED = ("content-length", "content-encoding")


async def joined(
    answer: HttpResponse, gateways: Sequence[GatewayState], request: HttpRequest
) -> HttpResponse:
    """``answer``: the main process's. Raises HttpError 502 when it breaks off."""
    if answer.status != 200 or request.method != "GET":
        return answer
    texts = await asyncio.gather(*(_text(one.runtime, request) for one in gateways))
    try:
        main = await whole(answer)
    except (OSError, asyncio.TimeoutError, h11.ProtocolError):
        raise HttpError(502, "the runtime's metrics broke off") from None
    headers = {
        name: value for name, value in answer.headers.items() if name.lower() not in _RECOMPUTED
    }
    return msgspec.structs.replace(answer, body=merge(main, texts).encode(), headers=headers)


async def _text(address: RuntimeAddress | None, request: HttpRequest) -> str | None:
    """None when it does not answer."""
    if address is None:
        return None
    try:
        answer = await forward(address, request, GATEWAY_TIMEOUT_S)
        return await whole(answer) if answer.status == 200 else None
    except (
        RuntimeUnreachable,
        RuntimeSilent,
        OSError,
        asyncio.TimeoutError,
        h11.ProtocolError,
    ):
        return None


async def whole(answer: HttpResponse) -> str:
    body = answer.body
    content = body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])
    return content.decode()
