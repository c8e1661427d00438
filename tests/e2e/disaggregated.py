"""A disaggregated deployment beside an aggregated worker of the same model, for comparison."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drain_proof.fleet import scheduler_of
from tests.support.client import OpenAIClient, Reply, chat_body
from tests.support.stack import NOT_UP_YET, Frontend, Stack, Worker
from tests.support.wait import wait_until

SPLIT, WHOLE = "split", "whole"
SECTIONS = """
prefill:
  served-model-name: split
  disaggregation-mode: prefill
decode:
  served-model-name: split
  disaggregation-mode: decode
"""
ENVIRONMENT = {
    # What both sides tell each other; the default is the machine's first outside address.
    "SGLANG_HOST_IP": "127.0.0.1",
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
}


GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
# Longer than a page of the cache and than a chunk of GDN's state.
LONG = "The worker reads the prompt. " * 40
PROMPTS = ("Hello", "What is disaggregation?", LONG)


class Deployment:
    """``split`` is the model of prefill and decode, ``whole`` that of the aggregated worker."""

    def __init__(self, stack: Stack, model: Path) -> None:
        self.stack = stack
        self._model = model
        self._sections = stack.folder / "disagg.yaml"
        self._sections.write_text(SECTIONS)
        self.frontend: Frontend = stack.start_frontend(migration_limit=3, ready=False)
        self.workers: dict[str, Worker] = {}

    @property
    def client(self) -> OpenAIClient:
        return self.frontend.client

    @property
    def prefill(self) -> Worker:
        return self.workers["prefill"]

    @property
    def decode(self) -> Worker:
        return self.workers["decode"]

    def start(self, role: str, *more: str) -> Worker:
        flags = ("--disagg-config", str(self._sections), "--disagg-config-key", role)
        self.workers[role] = self.stack.start_worker(
            "--model-path", str(self._model), *flags, *more, name=role
        )
        return self.workers[role]

    def start_whole(self) -> None:
        self.workers[WHOLE] = self.stack.start_worker(
            *("--model-path", str(self._model), "--served-model-name", WHOLE),
            *("--endpoint", "dyn://whole.backend.generate"),
            name=WHOLE,
        )

    def wait_served(self) -> None:
        """The frontend lists a model a little before its prefill router is ready."""
        for worker in self.workers.values():
            self.stack.wait_ready(worker, "/startup", deadline_s=240.0)
        for name in (SPLIT, WHOLE):
            self.frontend.wait_for_model(name)
            self.frontend.wait_for(
                lambda name=name: self.client.chat(name, "hi", max_tokens=1).status == 200,
                f"{name} answers",
                deadline_s=60.0,
            )

    def inflight(self, worker: Worker) -> float:
        """Requests in the worker's generate endpoint; 0 means 0 in SGLang too."""
        assert worker.system is not None
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in worker.system.get("/metrics").text.splitlines()
            if line.startswith("dynamo_component_inflight_requests{")
            and 'dynamo_endpoint="generate"' in line
        )

    def wait_idle(self, *workers: Worker) -> None:
        wait_until(
            lambda: all(self.inflight(one) == 0 for one in workers or (self.prefill, self.decode)),
            "no request is in flight",
            deadline_s=30.0,
        )

    def wait_busy(self, worker: Worker) -> None:
        wait_until(
            lambda: self.inflight(worker) > 0, f"{worker.name} has a request", deadline_s=30.0
        )

    @contextlib.contextmanager
    def decode_held(self) -> Iterator[None]:
        """Decode's scheduler stands still: it announces no room for a KV cache and takes none, so
        every prefill stays in flight."""
        scheduler = scheduler_of(self.decode)
        scheduler.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            scheduler.send_signal(signal.SIGCONT)

    def ask_and_hang_up_when(self, busy: Worker, prompt: str) -> None:
        """Send a request and close the connection as soon as ``busy`` works on it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.frontend.http_port, timeout=30)
        body = {**chat_body(SPLIT, prompt, max_tokens=50), "stream": True}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        self.wait_busy(busy)
        connection.close()


def phase_of(worker: Worker) -> dict[str, Any]:
    """Status and body of ``/startup``; empty until the listener is up."""
    assert worker.system is not None
    try:
        reply = worker.system.get("/startup")
    except NOT_UP_YET:
        return {}
    return {"status": reply.status, **reply.json()}


def tokens_of(reply: Reply) -> list[tuple[str, float]]:
    assert reply.status == 200, reply.text
    found = reply.json()["choices"][0]["logprobs"]
    return list(zip(found["tokens"], found["token_logprobs"], strict=True))


def answers_alike(deployment: Deployment, prompt: str) -> None:
    """Token by token, and the log-probability of each: the first comes from prefill."""
    options = {**GREEDY, "max_tokens": 24, "logprobs": 1}
    split, whole = (
        tokens_of(deployment.client.completion(name, prompt, **options)) for name in (SPLIT, WHOLE)
    )
    assert [token for token, _ in split] == [token for token, _ in whole]
    assert [value for _, value in split] == pytest.approx([value for _, value in whole], abs=1e-3)
