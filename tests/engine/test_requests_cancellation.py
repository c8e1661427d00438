"""A client that hangs up, at every moment of a request's life."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dynamo.llm.exceptions import EngineShutdown
from sglang_worker.engine import compat, compat_receive

from tests.engine.request_host import Answer, FakeContext, RequestHost

pytestmark = pytest.mark.engine
LONG = {"max_tokens": 3000, "ignore_eos": True}


@pytest.fixture(scope="module")
def host(checkpoint: Callable[[str], Path]) -> Iterator[RequestHost]:
    host = RequestHost(checkpoint("gdn"), "--max-running-requests", "4")
    yield host
    host.close()


class Client:
    """One request that runs in a task and can be hung up."""

    def __init__(self, host: RequestHost, request: dict[str, Any]) -> None:
        self.context = FakeContext()
        self.chunks: list[dict[str, Any]] = []
        self._stream = host.handler.generate(request, self.context)
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async for chunk in self._stream:
            self.chunks.append(chunk)

    async def until_tokens(self, count: int = 1) -> None:
        async def enough() -> None:
            while sum(len(chunk["token_ids"]) for chunk in self.chunks) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        await asyncio.wait_for(enough(), 30)

    async def hang_up(self) -> None:
        self.context.hang_up()
        await asyncio.wait_for(self.task, 30)


def test_a_client_that_is_gone_before_the_request_started_costs_nothing(
    host: RequestHost,
) -> None:
    async def scene() -> None:
        context = FakeContext()
        context.hang_up()
        stream = host.handler.generate(host.request(stop_conditions=LONG), context)
        assert Answer([chunk async for chunk in stream]).chunks == []
        await host.settled()

    host.run(scene())


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 20])
def test_hanging_up_around_the_dispatch_leaves_nothing_behind(
    host: RequestHost, turns: int
) -> None:
    """``turns`` of the event loop after its start the request is anywhere up to the scheduler."""

    async def scene() -> None:
        client = Client(host, host.request("word " * 300, stop_conditions=LONG))
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.hang_up()
        await host.settled()

    host.run(scene())


def test_hanging_up_during_decode_ends_the_decoding(host: RequestHost) -> None:
    async def scene() -> None:
        client = Client(host, host.request(stop_conditions=LONG))
        await client.until_tokens(3)
        assert host.held == 1
        assert host.gate.in_flight == 1
        await client.hang_up()
        await host.settled()
        assert len(Answer(client.chunks).tokens()) < 1000

    host.run(scene())


def test_hanging_up_while_queued_frees_the_place(host: RequestHost) -> None:
    async def scene() -> None:
        running = [Client(host, host.request(stop_conditions=LONG)) for _ in range(4)]
        for client in running:
            await client.until_tokens()
        queued = Client(host, host.request("queued", stop_conditions=LONG))
        await asyncio.sleep(0.1)
        assert queued.chunks == []
        await queued.hang_up()
        for client in running:
            await client.hang_up()
        await host.settled()

    host.run(scene())


@pytest.mark.parametrize("tokens", [0, 1, 8])
def test_hanging_up_ends_every_sample(host: RequestHost, tokens: int) -> None:
    async def scene() -> None:
        request = host.request(sampling_options={"n": 3, "temperature": 1.0}, stop_conditions=LONG)
        client = Client(host, request)
        if tokens:
            await client.until_tokens(tokens)
            assert host.held == 3
        else:
            await asyncio.sleep(0.003)
        await client.hang_up()
        await host.settled()

    host.run(scene())


def test_a_generator_that_is_closed_ends_its_request(host: RequestHost) -> None:
    """What the runtime does when it drops a stream."""

    async def scene() -> None:
        stream = host.handler.generate(host.request(stop_conditions=LONG), FakeContext())
        await anext(stream)
        await stream.aclose()
        await host.settled()

    host.run(scene())


def test_ending_one_request_never_touches_another(host: RequestHost) -> None:
    async def scene() -> None:
        expected = await host.stream(host.request(stop_conditions={**LONG, "max_tokens": 60}))
        kept = Client(host, host.request(stop_conditions={**LONG, "max_tokens": 60}))
        await kept.until_tokens()
        for _ in range(5):
            other = Client(host, host.request(stop_conditions=LONG))
            await other.until_tokens()
            await other.hang_up()
        await asyncio.wait_for(kept.task, 30)
        assert Answer(kept.chunks).tokens() == expected.tokens()
        await host.settled()

    host.run(scene())


def test_hanging_up_on_a_paused_engine_does_not_wait_for_its_continuation(
    host: RequestHost,
) -> None:
    async def scene() -> None:
        await host.control.pause("in_place")
        held = Client(host, host.request(stop_conditions=LONG))
        await asyncio.sleep(0.05)
        assert host.gate.in_flight == 1
        await held.hang_up()
        await host.settled()
        await host.control.continue_({})

    host.run(scene())


def test_a_pause_that_aborts_ends_requests_with_the_migratable_error(host: RequestHost) -> None:
    async def scene() -> None:
        client = Client(host, host.request(stop_conditions=LONG))
        await client.until_tokens(2)
        await host.control.pause("abort")
        with pytest.raises(EngineShutdown):
            await asyncio.wait_for(client.task, 30)
        await host.control.continue_({})
        await host.settled()

    host.run(scene())


@pytest.mark.parametrize("tokens", [0, 2])
def test_a_worker_that_stops_hands_its_requests_on(host: RequestHost, tokens: int) -> None:
    async def scene() -> None:
        client = Client(host, host.request("word " * 200, stop_conditions=LONG))
        await (client.until_tokens(tokens) if tokens else asyncio.sleep(0.002))
        host.handler.fail_all()
        with pytest.raises(EngineShutdown):
            await asyncio.wait_for(client.task, 30)
        await host.settled()

    host.run(scene())


def test_requests_end_even_when_no_scheduler_answers_any_more(host: RequestHost) -> None:
    async def scene() -> None:
        client = Client(host, host.request(stop_conditions=LONG))
        await client.until_tokens(2)
        # An abort that reaches nobody, as after a scheduler's death.
        abort, compat.abort = compat.abort, lambda *_: None
        try:
            host.handler.fail_all_without_engine()
            with pytest.raises(EngineShutdown):
                await asyncio.wait_for(client.task, 30)
        finally:
            compat.abort = abort
        host.control.abort_all()
        await host.settled()

    host.run(scene())


def test_hundreds_of_clients_that_come_and_go_leave_nothing(host: RequestHost) -> None:
    async def visit(number: int) -> None:
        client = Client(host, host.request(f"visitor {number}", stop_conditions=LONG))
        await asyncio.sleep((number % 7) * 0.002)
        await client.hang_up()

    async def scene() -> None:
        for start in range(0, 400, 40):
            await asyncio.gather(*(visit(start + i) for i in range(40)))
        await host.settled()
        assert host.handler.live_generations == 0
        answer = await host.stream(host.request(stop_conditions={**LONG, "max_tokens": 3}))
        assert len(answer.tokens()) == 3

    host.run(scene())


def test_no_answer_waits_for_the_detokenizer_whose_text_nobody_reads(host: RequestHost) -> None:
    names = host.engine.process_names
    detokenizers = [pid for pid, name in names.items() if "detokenizer" in name]
    assert len(detokenizers) == 1, names
    request = host.request(stop_conditions={"max_tokens": 8, "ignore_eos": True})
    os.kill(detokenizers[0], signal.SIGSTOP)
    try:
        answer = host.run(asyncio.wait_for(host.stream(request), 60))
    finally:
        os.kill(detokenizers[0], signal.SIGCONT)
    assert len(answer.tokens()) == 8
    assert answer.finish_reason == "length"


def test_a_worker_that_falls_behind_sends_every_token_in_fewer_chunks(
    host: RequestHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglang_worker.engine.pace.PATIENCE_S", 0.0)
    request = host.request(stop_conditions={"max_tokens": 120, "ignore_eos": True})
    alone = host.run(host.stream(request))
    pace = compat_receive.watch(host.manager)
    assert pace is not None

    async def read_slowly() -> Answer:
        chunks = []
        async for chunk in host.handler.generate(request, FakeContext()):
            # Every chunk costs the process more than the engine's step; nothing else can run.
            time.sleep(0.05)  # noqa: ASYNC251
            chunks.append(chunk)
        return Answer(chunks)

    async def scene() -> list[Answer]:
        streams = (read_slowly() for _ in range(4))
        return await asyncio.wait_for(asyncio.gather(*streams), 120)

    for answer in host.run(scene()):
        assert answer.tokens() == alone.tokens()
        assert answer.finish_reason == "length"
        assert len(answer.chunks) < len(alone.chunks) / 2
    assert pace.behind_s > 0
    assert not pace.behind, "nothing waits any more"
