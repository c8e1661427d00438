"""The aggregated worker behind the real frontend, on the demo model."""

from __future__ import annotations

import concurrent.futures
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import OpenAIClient
from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "demo"


class Deployment:
    def __init__(self, stack: Stack, frontend: Frontend, worker: Worker) -> None:
        self.stack = stack
        self.frontend = frontend
        self.worker = worker

    @property
    def client(self) -> OpenAIClient:
        return self.frontend.client

    def inflight(self) -> float:
        """Requests in the worker's generate endpoint, as the runtime counts them.

        The handler stays until SGLang has let go of the request, so 0 means 0 in the engine too.
        """
        assert self.worker.system is not None
        lines = self.worker.system.get("/metrics").text.splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("dynamo_component_inflight_requests{")
            and 'dynamo_endpoint="generate"' in line
        )

    def wait_idle(self) -> None:
        wait_until(lambda: self.inflight() == 0, "no request is in flight", deadline_s=20)


@pytest.fixture(scope="module")
def deployed(checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=1, ready=False)
        worker = stack.start_worker(
            "--model-path", str(checkpoint("gdn")), "--served-model-name", MODEL
        )
        frontend.wait_for_model(MODEL, deadline_s=180)
        yield Deployment(stack, frontend, worker)


@pytest.mark.compat
def test_a_chat_answer_has_text_an_end_and_usage(deployed: Deployment) -> None:
    reply = deployed.client.chat(MODEL, "Hello", max_tokens=8, temperature=0)
    body = reply.json()
    assert reply.status == 200, reply.text
    choice = body["choices"][0]
    assert choice["message"]["content"]
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_streamed_answer_says_the_same_as_a_whole_one(deployed: Deployment) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    whole = deployed.client.chat(MODEL, "Hello", **options).json()
    streamed = deployed.client.stream_chat(
        MODEL, "Hello", **options, stream_options={"include_usage": True}
    )
    assert streamed.complete
    assert streamed.errors == []
    assert streamed.text == whole["choices"][0]["message"]["content"]
    assert streamed.finish_reason == whole["choices"][0]["finish_reason"]
    assert streamed.usage is not None
    assert streamed.usage["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_completion_has_aligned_logprobs(deployed: Deployment) -> None:
    reply = deployed.client.completion(
        MODEL, "The worker", max_tokens=6, temperature=0, ignore_eos=True, logprobs=2
    )
    logprobs = reply.json()["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == 6
    assert len(logprobs["top_logprobs"]) == 6


def test_chat_logprobs_without_alternatives_cover_every_token(deployed: Deployment) -> None:
    reply = deployed.client.chat(MODEL, "Hi", max_tokens=5, temperature=0, logprobs=True)
    body = reply.json()
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"]
    assert all(entry["logprob"] <= 0 for entry in content)


def test_several_answers_arrive_with_their_own_index(deployed: Deployment) -> None:
    reply = deployed.client.completion(
        MODEL, "The worker", max_tokens=5, n=3, temperature=1.0, ignore_eos=True
    )
    body = reply.json()
    assert sorted(choice["index"] for choice in body["choices"]) == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 15


def test_a_stop_string_is_cut_off_the_text(deployed: Deployment) -> None:
    options: dict[str, Any] = {"max_tokens": 30, "temperature": 0, "ignore_eos": False}
    text = deployed.client.completion(MODEL, "The worker", **options).json()["choices"][0]["text"]
    stop = text[4:7]
    reply = deployed.client.completion(MODEL, "The worker", **options, stop=[stop])
    choice = reply.json()["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"stop_token_ids": [10**6]}, "stop_token_ids"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
        ({"guided_json": {"type": "objekt"}}, "guided_json"),
        ({"guided_regex": "a("}, "regex"),
    ],
)
def test_a_faulty_request_is_a_400_that_names_the_field(
    deployed: Deployment, options: dict[str, Any], field: str
) -> None:
    reply = deployed.client.chat(MODEL, "Hi", **{"max_tokens": 4, **options})
    assert reply.status == 400, reply.text
    assert field in reply.json()["message"]


def test_an_image_for_a_text_model_is_a_400(deployed: Deployment) -> None:
    part = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}],
        "max_tokens": 4,
    }
    reply = deployed.client.post("/v1/chat/completions", body)
    assert reply.status == 400, reply.text


@pytest.mark.parametrize("chunks", [0, 1, 5])
def test_a_client_that_hangs_up_ends_its_request(deployed: Deployment, chunks: int) -> None:
    result = deployed.client.stream_chat(
        MODEL, "Tell me everything", disconnect_after=chunks, max_tokens=3000, ignore_eos=True
    )
    assert not result.complete
    deployed.wait_idle()


def test_hanging_up_on_several_answers_ends_all_of_them(deployed: Deployment) -> None:
    deployed.client.stream_chat(
        MODEL, "Tell", disconnect_after=2, n=3, max_tokens=3000, ignore_eos=True
    )
    deployed.wait_idle()


def test_many_clients_are_served_side_by_side(deployed: Deployment) -> None:
    def ask(number: int) -> int:
        return deployed.client.chat(MODEL, f"client {number}", max_tokens=6).status

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert set(pool.map(ask, range(48))) == {200}
    deployed.wait_idle()


def test_a_frontend_that_comes_back_serves_again(deployed: Deployment) -> None:
    port = deployed.frontend.http_port
    deployed.frontend.kill()
    deployed.frontend = deployed.stack.start_frontend(migration_limit=1, http_port=port)
    deployed.frontend.wait_for_model(MODEL)
    assert deployed.client.chat(MODEL, "Hello again", max_tokens=4).status == 200


def test_a_worker_killed_outright_leaves_no_process_behind(deployed: Deployment) -> None:
    """Last of this module's tests: it takes the shared worker away."""
    deployed.worker.send(signal.SIGKILL)
    deployed.worker.wait_exit()
    deployed.worker.check_nothing_left(5.0)
