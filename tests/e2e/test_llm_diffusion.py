"""A diffusion language model behind the real frontend, on the generated SDAR model.

What the worker answers is compared with SGLang's own ``Engine.generate``, reached through an
engine route of the same worker.
"""

from __future__ import annotations

import concurrent.futures
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Reply, StreamResult, collect
from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "dllm"
BLOCK_TOKENS = 4
# Inside a block, at its end, one past it, and shorter than one.
PROMPTS = ["The worker drains.", "a", "Hello world, how are you today?", "one two three four five"]


class Deployment:
    def __init__(self, frontend: Frontend, worker: Worker) -> None:
        self.client = frontend.client
        self.worker = worker

    def complete(self, prompt: Any, **options: Any) -> Reply:
        return self.client.completion(MODEL, prompt, **{"temperature": 0, **options})

    def stream(
        self, prompt: str, *, hang_up_after: int | None = None, **options: Any
    ) -> StreamResult:
        body = {"model": MODEL, "prompt": prompt, "stream": True, "temperature": 0, **options}
        with self.client.open("POST", "/v1/completions", body) as stream:
            return collect(stream, disconnect_after=hang_up_after)

    def engine(self, prompt: str, **sampling: Any) -> dict[str, Any]:
        """SGLang's own answer to the same prompt."""
        system = self.worker.system
        assert system is not None
        reply = system.post(
            "/engine/generate",
            {"prompt": prompt, "sampling_params": {"temperature": 0, **sampling}},
        )
        assert reply.status == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def inflight(self) -> float:
        system = self.worker.system
        assert system is not None
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in system.get("/metrics").text.splitlines()
            if line.startswith("dynamo_component_inflight_requests{") and '"generate"' in line
        )


@pytest.fixture(scope="module")
def deployed(checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
    with Stack() as stack:
        frontend = stack.start_frontend(ready=False)
        worker = stack.start_worker(
            *("--model-path", str(checkpoint("dllm")), "--served-model-name", MODEL),
            *("--dllm-algorithm", "LowConfidence", "--engine-route", "generate"),
            environ={"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0"},
        )
        frontend.wait_for_model(MODEL, deadline_s=180)
        yield Deployment(frontend, worker)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("tokens", [1, 4, 11])
def test_the_answer_is_that_of_sglang_s_engine(
    deployed: Deployment, prompt: str, tokens: int
) -> None:
    options = {"max_tokens": tokens, "ignore_eos": True}
    expected = deployed.engine(prompt, max_new_tokens=tokens, ignore_eos=True)
    for _ in range(2):
        body = deployed.complete(prompt, **options).json()
        assert body["choices"][0]["text"] == expected["text"] != ""
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["completion_tokens"] == tokens
        assert body["usage"]["prompt_tokens"] == expected["meta_info"]["prompt_tokens"]


def test_blocks_become_disjoint_chunks(deployed: Deployment) -> None:
    tokens = 6 * BLOCK_TOKENS
    options: dict[str, Any] = {"max_tokens": tokens, "ignore_eos": True}
    whole = deployed.complete(PROMPTS[0], **options).json()
    streamed = deployed.stream(PROMPTS[0], **options, stream_options={"include_usage": True})
    assert streamed.complete and not streamed.errors
    assert streamed.text == whole["choices"][0]["text"]
    assert streamed.usage is not None and streamed.usage["completion_tokens"] == tokens
    texts = [c for chunk in streamed.chunks for c in chunk["choices"] if c.get("text")]
    assert 2 <= len(texts) <= tokens // BLOCK_TOKENS + 1


def test_a_chat_answers_too(deployed: Deployment) -> None:
    reply = deployed.client.chat(MODEL, "Hello", max_tokens=6, temperature=0)
    assert reply.status == 200, reply.text
    assert reply.json()["choices"][0]["finish_reason"] in ("length", "stop")


def test_a_stop_string_ends_the_answer(deployed: Deployment) -> None:
    # With ignore_eos the frontend drops stop strings.
    options: dict[str, Any] = {"max_tokens": 20}
    text = deployed.complete(PROMPTS[0], **options).json()["choices"][0]["text"]
    stop = text[5:7]
    choice = deployed.complete(PROMPTS[0], **options, stop=[stop]).json()["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_several_answers_and_several_clients_get_the_same_text(deployed: Deployment) -> None:
    options: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True}
    alone = [deployed.complete(prompt, **options).json() for prompt in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(pool.map(lambda prompt: deployed.complete(prompt, **options), PROMPTS))
    assert [reply.json()["choices"] for reply in together] == [one["choices"] for one in alone]
    # The frontend wants a temperature for n > 1; this kind of model ignores it.
    sampled = {**options, "n": 2, "temperature": 1.0}
    twice = deployed.complete(PROMPTS[0], **sampled).json()["choices"]
    assert [one["text"] for one in twice] == [alone[0]["choices"][0]["text"]] * 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"logprobs": 0}, "logprobs"),
        ({"logprobs": 2}, "logprobs"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"guided_regex": "[0-9]+"}, "guided_regex"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"guided_choice": ["a", "b"]}, "guided_regex"),
    ],
)
def test_what_a_diffusion_model_cannot_do_is_refused(
    deployed: Deployment, options: dict[str, Any], field: str
) -> None:
    reply = deployed.complete(PROMPTS[0], max_tokens=8, **options)
    assert reply.status == 400, reply.text
    assert f"{field}: is not possible with a diffusion" in reply.text


def test_a_schema_for_a_chat_answer_is_refused(deployed: Deployment) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    reply = deployed.client.chat(MODEL, "Hello", max_tokens=8, response_format=form)
    assert reply.status == 400 and "guided" in reply.text, reply.text


def test_a_tool_may_be_offered_but_not_forced(deployed: Deployment) -> None:
    """Forcing one takes a grammar."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
    offered = deployed.client.chat(MODEL, "Hello", max_tokens=4, tools=tools)
    assert offered.status == 200, offered.text
    forced = deployed.client.chat(MODEL, "Hello", max_tokens=4, tools=tools, tool_choice="required")
    assert forced.status == 400, forced.text


def test_a_prompt_must_leave_room_for_a_block(deployed: Deployment) -> None:
    reply = deployed.complete([100] * 2040, max_tokens=1)
    assert reply.status == 400 and "prompt: has 2040 tokens" in reply.text, reply.text


def test_lifecycle_routes_are_not_there_and_probes_are(deployed: Deployment) -> None:
    system = deployed.worker.system
    assert system is not None
    assert system.get("/engine/status").status == 404
    assert [system.post(f"/engine/{name}").status for name in ("drain", "resume")] == [404, 404]
    assert [system.get(path).status for path in ("/live", "/health", "/ready")] == [200] * 3


def test_a_client_that_hangs_up_frees_the_engine(deployed: Deployment) -> None:
    cut = deployed.stream(PROMPTS[0], max_tokens=1500, ignore_eos=True, hang_up_after=2)
    assert cut.status == 200 and not cut.complete
    wait_until(lambda: deployed.inflight() == 0, "the request is gone", deadline_s=20)
    assert deployed.complete("still serving", max_tokens=4).status == 200


def test_a_stopping_worker_finishes_what_it_has_begun(deployed: Deployment) -> None:
    """Last, for it ends the worker."""
    options: dict[str, Any] = {"max_tokens": 120, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(deployed.complete, PROMPTS[0], **options)
        wait_until(lambda: deployed.inflight() == 1, "the request runs", interval_s=0.01)
        deployed.worker.send(signal.SIGTERM)
        body = answer.result(timeout=60).json()
    assert body["usage"]["completion_tokens"] == 120
    assert body["choices"][0]["finish_reason"] == "length"
    assert deployed.worker.wait_exit(30) == 0
