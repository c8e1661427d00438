"""The first requests of a worker, with a handler that is steered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from sglang_worker.observability.health.probe import Asked
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import map_request
from sglang_worker.workers.health import for_rank, normal_end
from sglang_worker.workers.warm_up import WarmUpError, generation_rounds, send_first

LIMITS = EngineLimits(vocab_size=4000, context_length=1024)


class Context:
    def __init__(self) -> None:
        self.stopped = False

    def stop_generating(self) -> None:
        self.stopped = True


class Engine:
    def __init__(self, *answers: Any, ranks: int = 1) -> None:
        self.answers = answers or ({"token_ids": [1], "finish_reason": "length"},)
        self.ranks = ranks
        self.asked: list[Any] = []
        self.contexts: list[Context] = []

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        for answer in self.answers:
            if answer == "hang":
                await asyncio.Event().wait()
            yield answer

    def context(self) -> Context:
        self.contexts.append(Context())
        return self.contexts[-1]

    def probe(self, payload: Mapping[str, Any]) -> Asked:
        return Asked(
            handler=self.generate,
            payload=payload,
            normal_end=normal_end,
            for_rank=for_rank,
            new_context=self.context,
            ranks=self.ranks,
        )


def send(engine: Engine, rounds: list[Mapping[str, Any]], timeout_s: float = 30.0) -> None:
    asyncio.run(send_first(engine.probe, rounds, timeout_s))


def test_every_round_reaches_every_rank_one_round_after_the_other() -> None:
    engine = Engine(ranks=2)
    send(engine, [{"round": 1}, {"round": 2}])
    assert [request["round"] for request in engine.asked] == [1, 1, 2, 2]
    assert sorted(request["routing"]["dp_rank"] for request in engine.asked[:2]) == [0, 1]


def test_an_abnormal_answer_fails_the_start_with_its_reason() -> None:
    engine = Engine({"token_ids": [], "finish_reason": "error: no kernel"})
    with pytest.raises(WarmUpError, match=r"warm-up request failed.*no kernel"):
        send(engine, [{}, {}])
    assert len(engine.asked) == 1


def test_the_rank_that_failed_is_named() -> None:
    with pytest.raises(WarmUpError, match="data-parallel rank 0"):
        send(Engine({"token_ids": [1]}, ranks=2), [{}])


def test_an_engine_that_never_answers_fails_the_start_and_keeps_nothing() -> None:
    engine = Engine("hang")
    with pytest.raises(WarmUpError, match=r"did not end within 0\.05 s"):
        send(engine, [{}], timeout_s=0.05)
    assert all(context.stopped for context in engine.contexts)


@pytest.mark.parametrize(
    "limits",
    [
        LIMITS,
        EngineLimits(vocab_size=10, context_length=16),
        EngineLimits(vocab_size=2, context_length=64),
        EngineLimits(vocab_size=150_000, context_length=131_072, max_input_length=131_000),
    ],
)
def test_the_rounds_are_valid_requests_for_any_model(limits: EngineLimits) -> None:
    rounds = generation_rounds(limits, "_PROBE")
    assert all(one["_PROBE"] is True for one in rounds)
    calls = [map_request(one, limits) for one in rounds]
    assert {call.max_tokens for call in calls} == {4}
    assert any(call.fields["sampling_params"].get("temperature") == 0 for call in calls)


def test_no_round_begins_like_another() -> None:
    first = [one["token_ids"][:4] for one in generation_rounds(LIMITS, "_PROBE")]
    assert first[0] != first[1]
