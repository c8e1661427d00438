"""Two real workers and a frontend that routes by their KV events, on the CPU platform."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.checkpoints import checkpoint
from tests.support.environment import with_repository_on_path
from tests.support.exposition import Scrape
from tests.support.ports import free_port
from tests.support.stack import NOT_UP_YET, Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "demo"
PROMPTS = 6
PREFIX_TOKENS = 150
# What all prompts share is the chat template's beginning.
SHARED_TOKENS = 20
SEEN = "dynamo_sglang_kv_events_seen_total"
WORDS = "the old house stood on a hill above the quiet river and nobody had lived there for years"


def prompt(number: int) -> str:
    """Prompts that share no beginning, each some hundred tokens long."""
    return f"{number * 7919} is where story {number} begins. " + f"{WORDS} {number}. " * 8


def chat(number: int, tokens: int) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt(number)}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


class Fleet:
    def __init__(self, stack: Stack, model: str) -> None:
        self.stack = stack
        self.frontend = self.start_frontend()
        self.workers = [self._start(model, number) for number in range(2)]
        self.frontend.wait_for_model(MODEL, deadline_s=180)
        for worker in self.workers:
            stack.wait_ready(worker, deadline_s=120)

    def start_frontend(self) -> Frontend:
        return self.stack.start_frontend(
            router_mode="kv",
            migration_limit=1,
            arguments=("--event-plane", "zmq"),
            ready=False,
        )

    def _start(self, model: str, number: int) -> Worker:
        events = {"publisher": "zmq", "endpoint": f"tcp://*:{free_port()}"}
        return self.stack.start_worker(
            *("--model-path", str(checkpoint(model)), "--served-model-name", MODEL),
            *("--kv-events-config", json.dumps(events), "--fpm-trace"),
            name=f"worker{number}",
            environ={"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5"},
        )

    def instance(self, index: int) -> str:
        system = self.workers[index].system
        assert system is not None
        return str(system.get("/engine/status").json()["worker_id"])

    def ask(self, number: int, frontend: Frontend | None = None, **headers: str) -> tuple[str, int]:
        """The instance that answered prompt ``number``, and how many of its tokens it had."""
        reply = (frontend or self.frontend).client.post(
            "/v1/chat/completions",
            {**chat(number, 2), "nvext": {"extra_fields": ["worker_id"]}},
            **headers,
        )
        assert reply.status == 200, reply.text
        body = reply.json()
        cached = (body["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return str(body["nvext"]["worker_id"]["decode_worker_id"]), cached

    def place(self, number: int, index: int, frontend: Frontend | None = None) -> str:
        """Have one worker compute a prompt, and wait until it has announced the blocks."""
        worker, instance = self.workers[index], self.instance(index)
        before = relayed(worker)
        answered, cached = self.ask(number, frontend, x_worker_instance_id=instance)
        assert answered == instance
        assert cached <= SHARED_TOKENS
        wait_until(lambda: relayed(worker) > before, "the blocks are announced", deadline_s=10)
        return instance


def metric(worker: Worker, beginning: str, *labels: str) -> float:
    assert worker.system is not None
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in worker.system.get("/metrics").text.splitlines()
        if line.startswith(beginning + "{") and all(label in line for label in labels)
    )


def relayed(worker: Worker) -> float:
    """Events that the runtime has taken over from the engine's stream."""
    return metric(worker, "dynamo_component_kv_publisher_zmq_events_total", 'stage="accepted"')


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Stack() as stack:
        yield Fleet(stack, "gdn")


def test_repeats_go_to_the_worker_that_has_the_prefix(fleet: Fleet) -> None:
    homes = {number: fleet.place(number, number % 2) for number in range(PROMPTS)}
    assert len(set(homes.values())) == 2
    for number, home in homes.items():
        instance, cached = fleet.ask(number)
        assert instance == home, f"prompt {number} moved"
        assert cached > PREFIX_TOKENS, f"prompt {number} was computed again"


def test_a_drained_worker_keeps_its_prefixes_and_is_found_by_them_again(fleet: Fleet) -> None:
    numbers = range(100, 100 + PROMPTS)
    homes = {number: fleet.place(number, number % 2) for number in numbers}
    drained = fleet.workers[0]
    assert drained.system is not None
    drained_instance, other_instance = fleet.instance(0), fleet.instance(1)
    assert drained.system.post("/engine/drain").status == 202
    wait_until(lambda: state(drained) == "drained", "the worker is drained", deadline_s=30)
    assert fleet.ask(999)[0] == other_instance
    assert drained.system.post("/engine/resume").status == 200

    # Until the router has the instance and its index back, this prompt may go anywhere.
    probe = 102
    wait_until(
        lambda: fleet.ask(probe, x_worker_instance_id=drained_instance)[0] == drained_instance,
        "the router knows the resumed worker",
        deadline_s=30,
        ignore=(AssertionError,),
    )
    for number, home in homes.items():
        instance, cached = fleet.ask(number)
        assert instance == home, f"prompt {number} moved"
        assert cached > PREFIX_TOKENS, f"prompt {number} was computed again"


def test_a_frontend_that_stood_still_knows_what_was_cached_meanwhile(fleet: Fleet) -> None:
    """The workers are asked through another frontend, of whose choices the first hears nothing."""
    other = fleet.start_frontend()
    other.wait_for_model(MODEL)
    before = {frontend: heard(frontend) for frontend in (fleet.frontend, other)}
    fleet.frontend.send(signal.SIGSTOP)
    try:
        homes = {
            number: fleet.place(number, number % 2, other) for number in range(300, 300 + PROMPTS)
        }
    finally:
        fleet.frontend.send(signal.SIGCONT)
    news = heard(other) - before[other]
    assert news >= PROMPTS
    wait_until(
        lambda: heard(fleet.frontend) - before[fleet.frontend] >= news,
        "the frontend has read what waited for it",
        ignore=NOT_UP_YET,
    )
    for number, home in homes.items():
        instance, cached = fleet.ask(number)
        assert instance == home, f"prompt {number} moved"
        assert cached > PREFIX_TOKENS, f"prompt {number} was computed again"


def heard(frontend: Frontend) -> float:
    """Batches of events that this frontend's router took from the event plane."""
    text = frontend.client.get("/metrics").text
    return Scrape(text).value("dynamo_component_router_kv_zmq_ingress_batches_total")


def test_every_batch_of_events_was_seen_and_none_was_lost(fleet: Fleet) -> None:
    for worker in fleet.workers:
        wait_until(partial(counted, worker), "the watcher has counted what was relayed")
        for name in ("skipped", "late", "repeated"):
            assert metric(worker, f"dynamo_sglang_kv_events_batches_{name}_total") == 0, name
        # The empty cache is announced as cleared before anybody can listen.
        assert metric(worker, "dynamo_sglang_kv_events_batches_missed_at_start_total") <= 1


def counted(worker: Worker) -> bool:
    return metric(worker, SEEN, 'type="stored"') == received(worker) >= PROMPTS / 2


def received(worker: Worker) -> float:
    return metric(
        worker,
        "dynamo_component_kv_publisher_zmq_events_total",
        'stage="received"',
        'event_type="stored"',
    )


def test_forward_passes_carry_the_instance_that_made_them(fleet: Fleet) -> None:
    environ = with_repository_on_path(fleet.stack.environ())
    listener = fleet.stack.start_worker(
        "dynamo.backend.generate",
        module="tests.e2e.pass_listener",
        name="listener",
        with_system_port=False,
        environ={"PYTHONPATH": environ["PYTHONPATH"]},
    )
    listener.wait_log("^listening")
    instances = {fleet.instance(0), fleet.instance(1)}

    def heard() -> bool:
        # The listener finds the workers by and by.
        for index, instance in enumerate(sorted(instances)):
            fleet.ask(200 + index, x_worker_instance_id=instance)
        return {one["worker_id"] for one in passes(listener) if prefilled(one)} == instances

    wait_until(heard, "both workers' prefills are heard", deadline_s=30)
    assert {one["dp_rank"] for one in passes(listener)} == {0}
    assert listener.stop() is not None


def passes(listener: Worker) -> list[dict[str, Any]]:
    lines = [line for line in listener.log().splitlines() if line.startswith('{"version"')]
    return [json.loads(line) for line in lines]


def prefilled(record: dict[str, Any]) -> bool:
    return bool(record["scheduled_requests"]["num_prefill_requests"]) and record["wall_time"] > 0


def state(worker: Worker) -> str:
    assert worker.system is not None
    return str(worker.system.get("/engine/status").json()["state"])
