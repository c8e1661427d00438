"""The deprecated ``--use-sglang-tokenizer``: text in, text out, chat only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stack import Frontend, Stack, Worker

pytestmark = pytest.mark.e2e
MODEL = "demo"


@pytest.fixture(scope="module")
def deployed(checkpoint: Callable[[str], Path]) -> Iterator[tuple[Frontend, Worker]]:
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=1, ready=False)
        flags = ["--model-path", str(checkpoint("dense")), "--served-model-name", MODEL]
        worker = stack.start_worker(*flags, "--use-sglang-tokenizer")
        frontend.wait_for_model(MODEL, deadline_s=180)
        yield frontend, worker


def test_a_chat_is_answered_whole_and_streamed_alike(
    deployed: tuple[Frontend, Worker],
) -> None:
    frontend, worker = deployed
    whole = frontend.client.chat(MODEL, "Hello", max_tokens=10, temperature=0)
    assert whole.status == 200, whole.text
    choice = whole.json()["choices"][0]
    assert choice["message"]["content"]
    assert choice["finish_reason"] in ("stop", "length")
    streamed = frontend.client.stream_chat(MODEL, "Hello", max_tokens=10, temperature=0)
    assert streamed.complete
    assert streamed.text == choice["message"]["content"]
    assert "deprecated" in worker.log()


def test_a_faulty_chat_is_a_400_that_names_the_field(deployed: tuple[Frontend, Worker]) -> None:
    frontend, _ = deployed
    reply = frontend.client.chat(MODEL, "Hello", max_tokens=10, min_tokens=20)
    assert reply.status == 400, reply.text
    assert "min_tokens" in reply.json()["message"]
