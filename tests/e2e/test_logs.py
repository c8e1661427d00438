"""The log and the spans of a real worker: matched with its clients, without texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import chat_body
from tests.support.collector import Collector
from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "demo"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPANS_TRACE = "0af7651916cd43dd8448eb211c80319c"
REQUEST_ID = "7d2f6c1e-6d2f-4b52-9c53-0a6b1f0f7a11"
SECRET_WORD = "xyzzy"
FLOOD = 80


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


@pytest.fixture(scope="module")
def deployed(
    checkpoint: Callable[[str], Path], collector: Collector
) -> Iterator[tuple[Frontend, Worker]]:
    with Stack() as stack:
        # Without its JSON log the frontend drops the trace and the client's id.
        frontend = stack.start_frontend(environ={"DYN_LOGGING_JSONL": "1"}, ready=False)
        worker = stack.start_worker(
            "--model-path",
            str(checkpoint("gdn")),
            "--served-model-name",
            MODEL,
            "--log-requests",
            "--log-requests-format",
            "json",
            *("--enable-trace", "--otlp-traces-endpoint", collector.address),
            environ={
                "DYN_LOGGING_JSONL": "1",
                "SGLANG_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS": "100",
            },
        )
        frontend.wait_for_model(MODEL, deadline_s=180)
        yield frontend, worker


def lines(worker: Worker) -> list[dict[str, Any]]:
    found = []
    for line in worker.log().splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return found


def test_the_worker_the_engine_and_the_runtime_write_the_same_json(
    deployed: tuple[Frontend, Worker],
) -> None:
    _, worker = deployed
    records = [line for line in lines(worker) if "target" in line]
    assert all({"time", "level", "target", "message"} <= line.keys() for line in records)
    roots = Counter(line["target"].split(".")[0].split("::")[0] for line in records)
    assert roots["sglang_worker"] and roots["sglang"] and roots["dynamo_runtime"]
    pids = {line["pid"] for line in records if line["target"].startswith("sglang.")}
    assert len(pids) > 1, "the engine's processes follow as well"


def test_a_request_can_be_followed_into_sglang_and_its_text_cannot_be_read(
    deployed: tuple[Frontend, Worker],
) -> None:
    frontend, worker = deployed
    reply = frontend.client.post(
        "/v1/chat/completions",
        chat_body(MODEL, f"Say {SECRET_WORD}", max_tokens=4, ignore_eos=True),
        traceparent=f"00-{TRACE}-00f067aa0ba902b7-01",
        x_request_id=REQUEST_ID,
    )
    assert reply.status == 200

    def finished() -> list[str]:
        return [
            line
            for line in worker.log().splitlines()
            if '"request.finished"' in line and REQUEST_ID in line
        ]

    line = wait_until(finished, "SGLang's request log names the client's request")[0]
    assert TRACE in line
    assert SECRET_WORD not in worker.log()
    assert "input_ids" not in line


def test_spans_of_every_process_carry_the_clients_trace_and_no_text(
    deployed: tuple[Frontend, Worker], collector: Collector
) -> None:
    frontend, _ = deployed
    reply = frontend.client.post(
        "/v1/chat/completions",
        chat_body(MODEL, f"Say {SECRET_WORD}", max_tokens=4, ignore_eos=True),
        traceparent=f"00-{SPANS_TRACE}-00f067aa0ba902b7-01",
    )
    assert reply.status == 200

    def exported() -> bytes:
        return b"".join(one for one in collector.received if bytes.fromhex(SPANS_TRACE) in one)

    for thread in (b"Tokenizer", b"Scheduler"):
        wait_until(lambda name=thread: name in exported(), f"{thread!r} has exported its spans")
    assert SECRET_WORD.encode() not in b"".join(collector.received)


def test_a_flood_of_refused_requests_leaves_few_lines_and_no_traceback(
    deployed: tuple[Frontend, Worker],
) -> None:
    frontend, worker = deployed
    for _ in range(FLOOD):
        reply = frontend.client.chat(MODEL, "Hi", max_tokens=4, stop_token_ids=[10**6])
        assert reply.status == 400
    told = [line for line in lines(worker) if "was answered with" in str(line.get("message"))]
    assert 0 < len(told) < FLOOD
    assert all(line["target"] == "sglang_worker.requests" for line in told)
    assert "Traceback" not in worker.log()
