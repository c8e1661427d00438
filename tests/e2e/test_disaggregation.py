"""Prefill and decode as separate workers behind the real frontend, NIXL between them."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.disaggregated import (
    ENVIRONMENT,
    GREEDY,
    PROMPTS,
    SPLIT,
    WHOLE,
    Deployment,
    answers_alike,
)
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

LIFECYCLE = (("GET", "/engine/status"), ("POST", "/engine/drain"), ("POST", "/engine/resume"))


@pytest.fixture(scope="module")
def gdn(checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
    """A hybrid model: besides the KV cache, the linear layers' state moves."""
    with Stack(environ=ENVIRONMENT) as stack:
        deployment = Deployment(stack, checkpoint("gdn"))
        deployment.start("prefill")
        deployment.start("decode")
        deployment.start_whole()
        deployment.wait_served()
        yield deployment


@pytest.mark.parametrize("prompt", PROMPTS)
def test_answers_equal_the_aggregated_workers(gdn: Deployment, prompt: str) -> None:
    answers_alike(gdn, prompt)


def test_a_streamed_answer_says_the_same_as_a_whole_one(gdn: Deployment) -> None:
    options: dict[str, Any] = {**GREEDY, "max_tokens": 16}
    whole = gdn.client.chat(SPLIT, "What is a worker?", **options).json()
    streamed = gdn.client.stream_chat(
        SPLIT, "What is a worker?", **options, stream_options={"include_usage": True}
    )
    assert (streamed.complete, streamed.errors) == (True, [])
    assert streamed.text == whole["choices"][0]["message"]["content"]
    assert streamed.usage is not None
    assert streamed.usage["completion_tokens"] == 16


def test_one_token_is_enough_for_an_answer(gdn: Deployment) -> None:
    body = gdn.client.chat(SPLIT, "Hello", **GREEDY, max_tokens=1).json()
    assert body["usage"]["completion_tokens"] == 1
    assert body["choices"][0]["finish_reason"] == "length"


def test_decode_computes_no_prompt(gdn: Deployment) -> None:
    """SGLang logs every prompt batch; the cache that usage reports is the prefill worker's."""
    prompt = "Only the prefill worker reads this. " * 40
    first, second = (
        gdn.client.completion(SPLIT, prompt, **GREEDY, max_tokens=4).json()["usage"]
        for _ in range(2)
    )
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] > first["prompt_tokens"] / 2
    batches = re.compile(r"Prefill batch.*#new-token: (\d+)")
    computed = [int(count) for count in batches.findall(gdn.prefill.log())]
    assert max(computed) >= first["prompt_tokens"]
    assert batches.findall(gdn.decode.log()) == []


def test_many_requests_share_the_pair(gdn: Deployment) -> None:
    def ask(number: int) -> str:
        reply = gdn.client.chat(SPLIT, f"Question {number}", **GREEDY, max_tokens=6)
        assert reply.status == 200, reply.text
        return str(reply.json()["choices"][0]["message"]["content"])

    alone = [ask(number) for number in range(3)]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, [number % 3 for number in range(24)]))
    assert together == alone * 8
    gdn.wait_idle()


@pytest.mark.parametrize("chunks", [0, 1, 5])
def test_a_client_that_hangs_up_ends_decoding(gdn: Deployment, chunks: int) -> None:
    result = gdn.client.stream_chat(
        SPLIT, "Tell me everything", disconnect_after=chunks, max_tokens=3000, ignore_eos=True
    )
    assert not result.complete
    gdn.wait_idle()


def test_a_client_that_hangs_up_during_remote_prefill_leaves_nothing_behind(
    gdn: Deployment,
) -> None:
    """The exception of the cancellation table: prefill ends when decode has let go, not before."""
    with gdn.decode_held():
        gdn.ask_and_hang_up_when(gdn.prefill, "Hold this")
        assert gdn.inflight(gdn.prefill) == 1
    gdn.wait_idle()
    answers_alike(gdn, "Hello")


def test_what_the_handover_cannot_carry_is_refused_by_name(gdn: Deployment) -> None:
    reply = gdn.client.chat(SPLIT, "Hello", max_tokens=4, n=2)
    assert reply.status == 400
    assert reply.json()["message"].startswith("n: must be 1 when prefill and decode")


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_only_aggregated_workers_have_lifecycle_routes(gdn: Deployment, role: str) -> None:
    system = gdn.workers[role].system
    assert system is not None
    assert [system.request(method, path).status for method, path in LIFECYCLE] == [404] * 3
    assert system.get("/ready").status == 200
    assert gdn.workers[WHOLE].system.get("/engine/status").status == 200  # type: ignore[union-attr]


def test_a_prefill_worker_stays_until_decode_has_fetched_the_cache(gdn: Deployment) -> None:
    """Last of this module's tests with this deployment: it takes the prefill worker away."""
    expected = gdn.client.chat(SPLIT, "What is a drain?", **GREEDY, max_tokens=12).json()
    with ThreadPoolExecutor(1) as pool:
        with gdn.decode_held():
            asked = pool.submit(
                lambda: gdn.client.chat(SPLIT, "What is a drain?", **GREEDY, max_tokens=12)
            )
            gdn.wait_busy(gdn.prefill)
            gdn.prefill.send(signal.SIGTERM)
            # Withdrawn, its gate closed, and now it waits for what it has begun.
            gdn.prefill.wait_log(r"stopping \(dynamo_inflight\)", deadline_s=30.0)
            assert gdn.prefill.running
            assert gdn.inflight(gdn.prefill) == 1
        reply = asked.result()
    assert reply.status == 200, reply.text
    assert reply.json()["choices"][0]["message"] == expected["choices"][0]["message"]
    assert gdn.prefill.wait_exit(30.0) == 0
    gdn.prefill.check_nothing_left()
    # Decode alone serves nobody, and says so at once.
    assert gdn.client.chat(SPLIT, "Hello", max_tokens=4).status in (404, 503)
    assert gdn.decode.running
