"""What an encode worker passes on to internal workers, and what comes back: chunks and failures.

The texts are what the runtime's client raised for each kind of exception in a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from dynamo.llm import exceptions
from sglang_worker.engine.dynamo_compat_forward import relayed
from sglang_worker.requests.errors import EndedByEngine
from sglang_worker.workers.multimodal_forward import Forwarded, InternalWorkers


@pytest.mark.parametrize(
    ("arrived", "kind", "text"),
    [
        (ValueError("Unavailable: late"), exceptions.Disconnected, "late"),
        (Exception("Unavailable: No workers available"), exceptions.Disconnected, "No workers"),
        (ValueError("Cancelled: c"), exceptions.Cancelled, "c"),
        (ValueError("InvalidRequest: ValueError: bad"), exceptions.InvalidArgument, "bad"),
        (ValueError("Internal: RuntimeError: boom"), RuntimeError, "boom"),
        (ValueError('Unavailable: {"message":"busy","code":503}'), exceptions.HttpError, "busy"),
        (ValueError('RateLimited: {"message":"q","code":429}'), exceptions.HttpError, "q"),
    ],
)
def test_each_kind_keeps_its_meaning(arrived: Exception, kind: type[Exception], text: str) -> None:
    found = relayed(arrived)
    assert type(found) is kind
    assert text in str(found)


def test_a_status_survives() -> None:
    found = relayed(ValueError('RateLimited: {"message":"q","code":429}'))
    assert isinstance(found, exceptions.HttpError)
    assert found.code == 429


def test_a_refused_request_arrives_as_it_was_refused() -> None:
    refused = exceptions.InvalidArgument("max_tokens: too many")
    assert relayed(refused) is refused


def test_an_unknown_failure_stays_what_it_is() -> None:
    strange = OSError("what: ever")
    assert relayed(strange) is strange


class Context:
    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.children: list[Context] = []
        self._gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def id(self) -> str:
        return "request"

    def detached(self, _: str) -> Context:
        self.children.append(Context())
        return self.children[-1]

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        return self._gone

    def hang_up(self) -> None:
        self._gone.set_result(True)

    def stop_generating(self) -> None:
        self.stopped.set()


class Peer:
    """Internal workers that answer with ``chunks``, then fail, or wait until they are stopped."""

    def __init__(self, chunks: list[Any], *, exist: bool = True, waits: bool = False) -> None:
        self.exist = exist
        self.requests: list[Mapping[str, Any]] = []
        self._chunks = chunks
        self._waits = waits

    async def send(self, request: Mapping[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        self.requests.append(request)
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        if self._waits:
            await context.stopped.wait()


PLACE = {"bootstrap_host": "127.0.0.1", "bootstrap_port": 1, "bootstrap_room": 7}
MEDIA = {"items": [{"kind": "image_url", "grid": [1, 2, 2], "rows": 1}], "transfer": {"a": 1}}
ABSENT = Peer([], exist=False)


def forwarded(generating: Any, prefilling: Any, context: Context) -> Forwarded:
    request = {"token_ids": [1], "embedded_media": MEDIA}
    return Forwarded(InternalWorkers(generating, prefilling), request, context)


async def test_a_pd_worker_gets_the_request_as_it_is() -> None:
    peer = Peer([{"token_ids": [5]}, {"token_ids": [6], "finish_reason": "stop"}])
    chunks = [one async for one in forwarded(peer, ABSENT, Context()).chunks()]
    assert [one["token_ids"] for one in chunks] == [[5], [6]]
    assert peer.requests[0]["embedded_media"] == MEDIA


async def test_prefill_gets_the_embeddings_and_decode_the_place_of_the_cache() -> None:
    prefill = Peer([{"token_ids": [], "disaggregated_params": PLACE}], waits=True)
    decode = Peer([{"token_ids": [5], "finish_reason": "stop"}])
    chunks = [one async for one in forwarded(decode, prefill, Context()).chunks()]
    assert [one["token_ids"] for one in chunks] == [[5]]
    assert prefill.requests[0]["embedded_media"] == MEDIA
    assert decode.requests[0]["embedded_media"] == {**MEDIA, "transfer": {}}
    assert decode.requests[0]["bootstrap_info"] == PLACE


async def test_what_prefill_refuses_never_reaches_decode() -> None:
    refused = exceptions.InvalidArgument("max_tokens: too many")
    decode = Peer([])
    with pytest.raises(exceptions.InvalidArgument):
        _ = [one async for one in forwarded(decode, Peer([refused]), Context()).chunks()]
    assert decode.requests == []


async def test_a_prefill_that_fails_later_ends_decode_and_is_the_reason() -> None:
    lost = exceptions.Disconnected("prefill is gone")
    prefill = Peer([{"disaggregated_params": PLACE}, lost])
    with pytest.raises(exceptions.Disconnected, match="prefill is gone"):
        _ = [one async for one in forwarded(Peer([], waits=True), prefill, Context()).chunks()]


@pytest.mark.parametrize("split", [False, True])
async def test_a_hang_up_ends_the_request_everywhere_without_an_error(split: bool) -> None:
    context = Context()
    prefill = Peer([{"disaggregated_params": PLACE}], waits=True) if split else ABSENT
    onward = forwarded(Peer([{"token_ids": [5]}], waits=True), prefill, context)
    async for _ in onward.chunks():
        context.hang_up()
    assert onward.stopped
    assert all(child.stopped.is_set() for child in context.children)
    assert len(context.children) == 1 + split


async def test_the_end_of_the_worker_sends_the_request_elsewhere() -> None:
    context = Context()
    onward = forwarded(Peer([{"token_ids": [5]}], waits=True), ABSENT, context)
    with pytest.raises(EndedByEngine):
        async for _ in onward.chunks():
            onward.fail()


async def test_decode_alone_gets_no_request_once_prefill_has_been_lost() -> None:
    gone = exceptions.Disconnected("No workers available")
    prefill = Peer([{"disaggregated_params": PLACE}])
    decode = Peer([{"token_ids": [5], "finish_reason": "stop"}])
    workers = InternalWorkers(decode, prefill)
    request = {"token_ids": [1], "embedded_media": MEDIA}
    _ = [one async for one in Forwarded(workers, request, Context()).chunks()]
    workers.prefilling = Peer([gone], exist=False)
    with pytest.raises(exceptions.Disconnected):
        _ = [one async for one in Forwarded(workers, request, Context()).chunks()]
    assert len(decode.requests) == 1
