"""Health of real workers: what turns it, what must not, and that it comes back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "demo"
ANSWER_S, STALL_S = 2.0, 3.0
BOUNDS = {
    "DYN_CANARY_WAIT_TIME": "1",
    "DYN_SGL_HEALTH_ANSWER_TIMEOUT_S": str(ANSWER_S),
    "DYN_SGL_HEALTH_STALL_TIMEOUT_S": str(STALL_S),
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
}
# Longer than any bound above, so that a verdict that would turn has turned.
LONG_ENOUGH_S = 2 * STALL_S


class Deployment:
    """One frontend, one worker, and the worker's probes."""

    def __init__(self, frontend: Frontend, worker: Worker) -> None:
        self.frontend = frontend
        self.worker = worker

    def status(self, path: str) -> int:
        assert self.worker.system is not None
        return self.worker.system.get(path).status

    def wait(self, path: str, status: int) -> None:
        wait_until(lambda: self.status(path) == status, f"{path} answers {status}", deadline_s=60)

    def reason(self) -> str:
        assert self.worker.system is not None
        return str(self.worker.system.get("/ready").json()["reason"])

    def process(self, name: str) -> psutil.Process:
        """The engine's process with this word in its title."""
        found = [
            child
            for child in psutil.Process(self.worker.pid).children(recursive=True)
            if name in " ".join(child.cmdline())
        ]
        assert found, f"no process is called {name}"
        return found[0]

    def stays(self, path: str, status: int, *, during: Callable[[], bool]) -> int:
        """The answer never changes while ``during`` says so; how often it was asked."""
        asked = 0
        while during():
            assert self.status(path) == status, self.worker.system.get(path).text  # type: ignore[union-attr]
            asked += 1
        return asked

    def post(self, path: str) -> int:
        assert self.worker.system is not None
        return self.worker.system.post(path, {}).status


def for_long_enough() -> Callable[[], bool]:
    end = time.monotonic() + LONG_ENOUGH_S
    return lambda: time.monotonic() < end


OWN, CANARY = "own judge", "canary"
# Three engine processes that import SGLang take minutes on two busy cores.
TWO_RANKS = pytest.param("canary, two ranks", marks=pytest.mark.long)


def on(*kinds: Any) -> pytest.MarkDecorator:
    """The deployments that a test runs on."""
    return pytest.mark.parametrize("deployed", kinds, indirect=True)


@pytest.fixture(scope="module")
def deployed(
    request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]
) -> Iterator[Deployment]:
    """The worker's own judge alone, with a route that answers with text, so that outputs pass the
    detokenizer; the runtime's canary asking it; and that about two data-parallel ranks, of which
    the tests hang the first."""
    routes = ("--engine-route", "ask=generate") if request.param == OWN else ()
    canary = {"DYN_HEALTH_CHECK_ENABLED": "on"} if "canary" in request.param else {}
    ranks = ("--dp-size", "2") if "two ranks" in request.param else ()
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=0, ready=False)
        worker = stack.start_worker(
            "--model-path",
            str(checkpoint("gdn")),
            "--served-model-name",
            MODEL,
            *ranks,
            *routes,
            environ={**BOUNDS, **canary},
            ready_path="/ready",
            ready_deadline_s=300,
        )
        frontend.wait_for_model(MODEL)
        yield Deployment(frontend, worker)


@on(OWN, CANARY, TWO_RANKS)
def test_the_worker_is_warm_before_it_is_known(deployed: Deployment) -> None:
    log = deployed.worker.log()
    assert 0 < log.index("warmed up in") < log.index("registered model")
    assert deployed.status("/startup") == 200
    deployed.wait("/health", 200)
    assert deployed.status("/live") == 200


@on(OWN, CANARY, TWO_RANKS)
def test_a_hung_scheduler_fails_health_until_it_goes_on(deployed: Deployment) -> None:
    hang_and_go_on(deployed, "scheduler")


@on(OWN)
def test_a_hung_detokenizer_fails_health_until_it_goes_on(deployed: Deployment) -> None:
    hang_and_go_on(deployed, "detokenizer")


@on(OWN)
def test_a_route_that_answers_with_text_gets_text(deployed: Deployment) -> None:
    assert deployed.worker.system is not None
    options = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
    answer = deployed.worker.system.post(
        "/engine/ask", {"prompt": "The worker", "sampling_params": options}
    )
    assert answer.status == 200, answer.text
    assert answer.json()["text"], answer.text


@on(CANARY)
def test_a_hung_detokenizer_troubles_nobody_where_nobody_reads_its_text(
    deployed: Deployment,
) -> None:
    process = deployed.process("detokenizer")
    process.send_signal(signal.SIGSTOP)
    try:
        assert deployed.stays("/ready", 200, during=for_long_enough())
        answer = deployed.frontend.client.chat(MODEL, "Hello", max_tokens=8, ignore_eos=True)
        assert answer.status == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 8
    finally:
        process.send_signal(signal.SIGCONT)


def hang_and_go_on(deployed: Deployment, name: str) -> None:
    process = deployed.process(name)
    process.send_signal(signal.SIGSTOP)
    try:
        deployed.wait("/ready", 503)
        deployed.wait("/health", 503)
        assert "health check" in deployed.reason()
        assert deployed.status("/startup") == 200
    finally:
        process.send_signal(signal.SIGCONT)
    deployed.wait("/health", 200)
    deployed.wait("/ready", 200)


@on(OWN, TWO_RANKS)
def test_a_scheduler_that_hangs_under_load_fails_health_and_its_streams_go_on_later(
    deployed: Deployment,
) -> None:
    body = {"max_tokens": 400, "temperature": 0, "ignore_eos": True}
    with deployed.frontend.client.open_chat(MODEL, "Count", **body) as stream:
        next(iter(stream))
        process = deployed.process("scheduler")
        process.send_signal(signal.SIGSTOP)
        try:
            deployed.wait("/ready", 503)
            wait_until(lambda: "health check: " in deployed.reason(), "the reason is told")
        finally:
            process.send_signal(signal.SIGCONT)
        deployed.wait("/ready", 200)
        assert sum(1 for _ in stream) > 1


@on(CANARY, TWO_RANKS)
def test_a_busy_engine_that_lets_probes_wait_stays_healthy(deployed: Deployment) -> None:
    """Every slot is taken for longer than an idle engine may stay silent."""
    began_s = time.monotonic()
    body = {"max_tokens": 300, "temperature": 1.0, "ignore_eos": True, "n": 4}
    with deployed.frontend.client.open_chat(MODEL, "Count", **body) as stream:
        assert stream.status == 200
        for index, _ in enumerate(stream):
            if index % 100 == 0:
                assert deployed.status("/health") == 200
                assert deployed.status("/ready") == 200
    assert time.monotonic() - began_s > ANSWER_S, "too short to show anything"


@on(CANARY, TWO_RANKS)
def test_a_paused_worker_is_unready_but_neither_sick_nor_dead(deployed: Deployment) -> None:
    assert deployed.post("/engine/control/pause_generation") == 200
    assert deployed.stays("/health", 200, during=for_long_enough()) > 10
    assert deployed.status("/live") == 200
    assert deployed.status("/ready") == 503
    assert deployed.post("/engine/control/continue_generation") == 200
    deployed.wait("/ready", 200)


@on(CANARY, TWO_RANKS)
def test_probes_pass_a_closed_gate_and_a_drain_does_not_wait_for_them(
    deployed: Deployment,
) -> None:
    assert deployed.worker.system is not None
    assert deployed.post("/engine/drain") in (200, 202)
    wait_until(
        lambda: deployed.worker.system.get("/engine/status").json()["state"] == "drained",  # type: ignore[union-attr]
        "the worker is drained",
    )
    asked = deployed.stays("/health", 200, during=for_long_enough())
    assert asked > 10
    assert deployed.status("/live") == 200
    assert deployed.worker.system.get("/engine/status").json()["state"] == "drained"
    assert deployed.post("/engine/resume") == 200
    deployed.wait("/ready", 200)


@on(OWN)
def test_a_dead_scheduler_is_never_called_healthy_again(deployed: Deployment) -> None:
    """Last of this module's tests: it takes the shared worker away."""
    deployed.process("scheduler").kill()
    assert deployed.worker.wait_exit(60) == 71


def test_a_warm_up_that_fails_is_an_error_line_and_code_1(
    stack: Stack, checkpoint: Callable[[str], Path]
) -> None:
    """A grammar that only the engine's backend can refuse."""
    payload = {
        "token_ids": [1],
        "stop_conditions": {"max_tokens": 1},
        "sampling_options": {"guided_decoding": {"regex": "a("}},
    }
    worker = stack.start_worker(
        "--model-path",
        str(checkpoint("gdn")),
        with_system_port=False,
        environ={"DYN_HEALTH_CHECK_PAYLOAD": json.dumps(payload)},
    )
    assert worker.wait_exit(120) == 1
    lines = [line for line in worker.log().splitlines() if line.startswith("error: ")]
    assert lines and "warm-up request failed" in lines[-1]
    assert "registered model" not in worker.log()
