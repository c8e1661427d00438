"""The same requests at frontend + worker and at SGLang's own server, compared field by field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.equivalence_table import CHAT, PLAIN, REFUSED, Case, body, cases
from tests.support.client import OpenAIClient, collect
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.stack import NOT_UP_YET, Stack

pytestmark = pytest.mark.e2e
MODEL = "demo"
LOGPROB_TOLERANCE = 1e-3
SERVER = (sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1")
SERVER_FLAGS = (
    *("--device", "cpu", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--mem-fraction-static", "0.3", "--max-total-tokens", "32768"),
    *("--max-mamba-cache-size", "64", "--max-running-requests", "16", "--sleep-on-idle"),
)


class Pair:
    def __init__(self, ours: OpenAIClient, sglang: OpenAIClient) -> None:
        self.ours = ours
        self.sglang = sglang


@pytest.fixture(scope="module")
def pair(checkpoint: Callable[[str], Path]) -> Iterator[Pair]:
    model = ("--model-path", str(checkpoint("gdn")), "--served-model-name", MODEL)
    # The model fills JSON with spaces otherwise, and no schema ever ends.
    model = (*model, "--constrained-json-disable-any-whitespace")
    with Stack() as stack:
        port = free_port()
        server = stack._start(
            ManagedProcess,
            [*SERVER, "--port", str(port), *model, *SERVER_FLAGS],
            "sglang-server",
            {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"},
        )
        frontend = stack.start_frontend(ready=False)
        stack.start_worker(*model)
        client = OpenAIClient(f"http://127.0.0.1:{port}")
        server.wait_for(
            lambda: client.get("/health_generate").status == 200,
            "SGLang's server answers",
            deadline_s=180,
            interval_s=0.5,
            ignore=NOT_UP_YET,
        )
        frontend.wait_for_model(MODEL, deadline_s=180)
        yield Pair(frontend.client, client)


def choice_text(choice: dict[str, Any]) -> str:
    message = choice.get("message")
    return str((message["content"] if message else choice.get("text")) or "")


def chosen_logprobs(choice: dict[str, Any]) -> list[tuple[str, float]]:
    logprobs = choice.get("logprobs") or {}
    if logprobs.get("content") is not None:
        return [(entry["token"], entry["logprob"]) for entry in logprobs["content"]]
    return list(
        zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or (), strict=True)
    )


def top_counts(choice: dict[str, Any]) -> list[int]:
    """Alternatives per token; one alone is the chosen token, which the frontend always lists."""
    logprobs = choice.get("logprobs") or {}
    if logprobs.get("content") is not None:
        counts = [len(entry["top_logprobs"]) for entry in logprobs["content"]]
    else:
        counts = [len(entry or ()) for entry in logprobs.get("top_logprobs") or ()]
    return counts if max(counts, default=0) > 1 else []


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    usage = answer["usage"]
    return {
        "texts": [choice_text(choice) for choice in answer["choices"]],
        "indices": [choice["index"] for choice in answer["choices"]],
        "ends": [choice["finish_reason"] for choice in answer["choices"]],
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
        "tokens": [[token for token, _ in chosen_logprobs(c)] for c in answer["choices"]],
        "top_counts": [top_counts(choice) for choice in answer["choices"]],
        "object": answer["object"],
        "model": answer["model"],
    }


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_whole_answer_is_the_same(pair: Pair, case: Case) -> None:
    ours = pair.ours.post(case.path, body(case, MODEL))
    sglang = pair.sglang.post(case.path, body(case, MODEL))
    assert (ours.status, sglang.status) == (200, 200), f"{ours.text}\n{sglang.text}"
    assert comparable(ours.json()) == comparable(sglang.json())
    for mine, theirs in zip(ours.json()["choices"], sglang.json()["choices"], strict=True):
        assert [value for _, value in chosen_logprobs(mine)] == pytest.approx(
            [value for _, value in chosen_logprobs(theirs)], abs=LOGPROB_TOLERANCE
        )


STREAMED = [case for case in cases() if "two_answers" not in case.name]


@pytest.mark.parametrize("case", STREAMED, ids=lambda case: case.name)
def test_a_streamed_answer_is_the_same(pair: Pair, case: Case) -> None:
    request = {
        **body(case, MODEL),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answers = []
    for client in (pair.ours, pair.sglang):
        with client.open("POST", case.path, request) as stream:
            answers.append(collect(stream))
    ours, sglang = answers
    assert ours.complete
    assert sglang.complete
    assert (ours.errors, sglang.errors) == ([], [])
    assert ours.text == sglang.text
    assert ours.finish_reason == sglang.finish_reason
    assert ours.usage is not None
    assert sglang.usage is not None
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert ours.usage[field] == sglang.usage[field], field


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_one_refuses_the_other_refuses(pair: Pair, name: str) -> None:
    path, options = REFUSED[name]
    request = body(Case(name, path, {"max_tokens": 4, **options}), MODEL)
    ours = pair.ours.post(path, request)
    sglang = pair.sglang.post(path, request)
    assert 400 <= ours.status < 500, ours.text
    assert 400 <= sglang.status < 500, sglang.text


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(cases()) + len(STREAMED) + len(REFUSED) >= 60
    assert {case.path for case in cases()} == {CHAT, PLAIN}
