"""What happens to an embeddings request whose client or worker leaves at an awkward moment.

The engine is a fake: only it can be made slow at an exact point.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_worker.engine.tokenizing import SHORT_CHARS
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.requests.embedding import EmbeddingLimits
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.workers.embedding_handler import EmbeddingHandler

from tests.support.wait import wait_until_async

# Too long to be tokenized on the event loop.
LONG = "x" * (SHORT_CHARS + 1)
LIMITS = EmbeddingLimits(engine=EngineLimits(vocab_size=100, context_length=64), dimensions=2)


class Manager:
    """SGLang's tokenizer manager as far as one batch needs it."""

    def __init__(self) -> None:
        self.rid_to_state: dict[str, Any] = {}
        self.dispatched: list[Any] = []
        self.tokenizing = threading.Event()
        self.may_tokenize = threading.Event()
        self.answer = asyncio.Event()
        self.error: Exception | None = None
        self.threads: list[int] = []

    async def _tokenize_texts(self, texts: list[str]) -> tuple[list[list[int]], None]:
        self.threads.append(threading.get_ident())
        self.tokenizing.set()
        assert self.may_tokenize.wait(20)
        return [[len(text) % 100] for text in texts], None

    async def generate_request(self, request: Any, _: None) -> AsyncIterator[Any]:
        self.dispatched.append(request)
        self.rid_to_state.update({rid: SimpleNamespace(dispatched=True) for rid in request.rid})
        try:
            await self.answer.wait()
            if self.error is not None:
                raise self.error
            yield [
                {"embedding": [1.0, 0.0], "meta_info": {"prompt_tokens": len(ids)}}
                for ids in request.input_ids
            ]
        finally:
            self.rid_to_state.clear()

    def abort_request(self, rid: str, abort_all: bool) -> None:
        raise AssertionError("the cancelled wait for the first output ends the batch")


class Client:
    def __init__(self) -> None:
        self.gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        return self.gone


class Bench:
    def __init__(self) -> None:
        self.manager, self.gate = Manager(), AdmissionGate()
        self.handler = EmbeddingHandler(
            self.manager, LIMITS, self.gate, lambda request: False, name="m"
        )
        self.client = Client()

    def start(self, value: Any) -> asyncio.Task[list[Any]]:
        async def collect() -> list[Any]:
            request = {"model": "m", "input": value}
            return [chunk async for chunk in self.handler.generate(request, self.client)]

        return asyncio.ensure_future(collect())

    async def until(self, condition: Callable[[], Any]) -> None:
        await wait_until_async(condition, "the request is where it should be", deadline_s=20)

    async def until_tokenizing(self) -> None:
        await self.until(self.manager.tokenizing.is_set)

    def idle(self) -> bool:
        return self.gate.in_flight == 0 and self.handler.live_generations == 0


async def test_an_answer_comes_as_one_chunk() -> None:
    bench = Bench()
    bench.manager.may_tokenize.set()
    bench.manager.answer.set()
    (chunk,) = await bench.start(["ab", "c"])
    assert len(chunk["data"]) == 2 and bench.idle()
    (request,) = bench.manager.dispatched
    assert request.input_ids == [[2], [1]] and len(set(request.rid)) == 2
    assert bench.handler.cancelled == 0


async def test_a_client_that_leaves_before_its_text_is_tokens_costs_the_engine_nothing() -> None:
    bench = Bench()
    running = bench.start(LONG)
    await bench.until_tokenizing()
    bench.client.gone.set_result(True)
    bench.manager.may_tokenize.set()
    assert await running == []
    await bench.until(bench.idle)
    assert bench.manager.dispatched == [] and bench.handler.cancelled == 1


async def test_a_short_text_waits_for_no_thread_and_never_meets_a_long_one() -> None:
    bench = Bench()
    long = bench.start(LONG)
    await bench.until_tokenizing()
    short = bench.start("ab")
    await bench.until(lambda: bench.gate.in_flight == 2)
    assert not short.done() and bench.manager.dispatched == []
    bench.manager.may_tokenize.set()
    bench.manager.answer.set()
    await asyncio.gather(long, short)
    assert [request.input_ids for request in bench.manager.dispatched] == [[[1]], [[2]]]
    assert bench.manager.threads[0] != threading.get_ident()
    await bench.start("abc")
    assert bench.manager.threads[-1] == threading.get_ident()


async def test_a_client_that_leaves_later_ends_the_batch() -> None:
    bench = Bench()
    running = bench.start([[1], [2]])
    await bench.until(lambda: bench.manager.rid_to_state)
    bench.client.gone.set_result(True)
    assert await running == []
    await bench.until(bench.idle)
    assert bench.manager.rid_to_state == {} and bench.handler.cancelled == 1


@pytest.mark.parametrize("tokenizing", [True, False])
async def test_a_stopping_worker_sends_what_it_holds_elsewhere(tokenizing: bool) -> None:
    from dynamo.llm.exceptions import EngineShutdown

    bench = Bench()
    running = bench.start(LONG if tokenizing else [1])
    if tokenizing:
        await bench.until_tokenizing()
    else:
        await bench.until(lambda: bench.manager.rid_to_state)
    bench.handler.fail_all()
    bench.manager.may_tokenize.set()
    with pytest.raises(EngineShutdown):
        await running
    await bench.until(bench.idle)


async def test_a_refusal_of_the_scheduler_keeps_its_status() -> None:
    from dynamo.llm.exceptions import HttpError
    from fastapi import HTTPException

    bench = Bench()
    bench.manager.error = HTTPException(503, "the queue is full")
    bench.manager.answer.set()
    with pytest.raises(HttpError, match="queue is full"):
        await bench.start([1])
    await bench.until(bench.idle)
