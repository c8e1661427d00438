"""Several gateways in front of one engine, behind a real frontend, on the CPU platform."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.drain_proof.fleet import scheduler_of
from tests.support.checkpoints import checkpoint
from tests.support.client import HttpClient, Reply, StreamResult
from tests.support.exposition import Scrape
from tests.support.ports import free_port
from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

GROUP, ALONE = "demo", "demo-alone"
PROMPTS = ("The old house", "Count to five", "What is a river?")
START_S = 240.0


def start_worker(stack: Stack, name: str, *flags: str, gateways: int = 2) -> Worker:
    return stack.start_worker(
        *("--model-path", str(checkpoint("gdn")), "--served-model-name", name),
        *("--gateway-workers", str(gateways), *flags),
        name=name,
        environ={"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5"},
    )


def system(worker: Worker) -> HttpClient:
    assert worker.system is not None
    return worker.system


class Deployment:
    """A group of two gateways, and one worker without, behind one frontend."""

    def __init__(self, folder: Path) -> None:
        self.stack = Stack(folder)
        self.frontend: Frontend = self.stack.start_frontend(migration_limit=3, ready=False)
        self.kv: Frontend = self.stack.start_frontend(
            router_mode="kv", arguments=("--event-plane", "zmq"), ready=False
        )
        events = {"publisher": "zmq", "endpoint": f"tcp://*:{free_port()}"}
        flags = ("--enable-metrics", "--kv-events-config", json.dumps(events))
        self.alone = start_worker(self.stack, ALONE, gateways=1)
        self.group = start_worker(self.stack, GROUP, *flags)
        for worker in (self.alone, self.group):
            self.stack.wait_ready(worker, deadline_s=START_S)
        for name in (GROUP, ALONE):
            self.frontend.wait_for_model(name)
        self.pool = ThreadPoolExecutor(16)

    def restarted(self) -> Worker:
        """The group, started again when the test before ended it."""
        if not self.group.running:
            self.group = start_worker(self.stack, GROUP)
            self.stack.wait_ready(self.group, deadline_s=START_S)
            wait_until(
                lambda: ask(self.frontend, GROUP, "Hello").status == 200,
                "the frontend has found the group again",
            )
        return self.group

    def streams(self, count: int, tokens: int) -> list[Future[StreamResult]]:
        """Streams that the group has begun to answer, on both gateways."""
        running = [
            self.pool.submit(
                self.frontend.client.stream_chat,
                GROUP,
                f"story {number}",
                max_tokens=tokens,
                ignore_eos=True,
                temperature=0,
            )
            for number in range(count)
        ]
        wait_until(
            lambda: all(one["in_flight"] for one in gateways(self.group)), "both gateways relay"
        )
        return running


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("gateways"))
    with made.stack:
        yield made


def ask(frontend: Frontend, model: str, prompt: str, **options: Any) -> Reply:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 12,
        "temperature": 0,
        "nvext": {"extra_fields": ["worker_id"]},
        **options,
    }
    return frontend.client.post("/v1/chat/completions", body)


def details(worker: Worker) -> dict[str, Any]:
    found: dict[str, Any] = system(worker).get("/engine").json()["details"]
    return found


def gateways(worker: Worker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = details(worker)["gateways"]
    return found


def pids_of_gateways(worker: Worker) -> list[int]:
    """Until they join the engine they have their program's name, then SGLang's."""
    children = psutil.Process(worker.pid).children()
    words = {one.pid: " ".join(one.cmdline()) for one in children}
    return [
        pid
        for pid, line in words.items()
        if "tokenizer_worker" in line or "sglang_worker.gateway.child" in line
    ]


def sample(scrape: Scrape, name: str, **labels: str) -> float:
    return sum(
        one.value
        for one in scrape.families[name].samples
        if one.name == name and labels.items() <= one.labels.items()
    )


def test_both_gateways_answer_and_as_one_process_does(deployment: Deployment) -> None:
    seen = set()
    for prompt in PROMPTS:
        expected = ask(deployment.frontend, ALONE, prompt).json()
        for _ in range(2):
            reply = ask(deployment.frontend, GROUP, prompt)
            assert reply.status == 200, reply.text
            body = reply.json()
            seen.add(str(body["nvext"]["worker_id"]["decode_worker_id"]))
            assert body["choices"] == expected["choices"]
            assert body["usage"]["completion_tokens"] == expected["usage"]["completion_tokens"]
    assert seen == {one["worker_id"] for one in gateways(deployment.group)}
    assert len(seen) == 2
    several = ask(deployment.frontend, GROUP, PROMPTS[0], n=2, temperature=0.5).json()
    assert [choice["index"] for choice in several["choices"]] == [0, 1]


def test_lifecycle_routes_are_absent_and_what_would_reach_one_process_is_refused(
    deployment: Deployment,
) -> None:
    client = system(deployment.group)
    assert client.get("/engine/status").status == 404
    for path in ("drain", "resume"):
        assert client.post(f"/engine/{path}").status == 404
    for name in ("pause_generation", "release_memory_occupation"):
        reply = client.post(f"/engine/control/{name}")
        assert reply.status == 409
        assert f"{name} is not offered with --gateway-workers above 1" in reply.json()["error"]
    info = client.get("/engine/server_info").json()
    assert info["tokenizer_worker_num"] == 2
    alone = system(deployment.alone).get("/engine/server_info").json()
    assert info["linear_attn_runners"] == alone["linear_attn_runners"]
    assert client.post("/engine/control/flush_cache").status == 200
    assert [client.get(path).status for path in ("/health", "/live", "/ready")] == [200] * 3


def test_a_disconnect_reaches_the_engine_through_either_gateway(deployment: Deployment) -> None:
    with contextlib.ExitStack() as open_streams:
        for number in range(2):
            stream = deployment.frontend.client.open_chat(
                GROUP, f"a long story {number}", max_tokens=3000, ignore_eos=True
            )
            open_streams.enter_context(stream)
        wait_until(
            lambda: details(deployment.group)["running_in_engine"] == 2, "the engine runs both"
        )
        wait_until(
            lambda: [one["in_flight"] for one in gateways(deployment.group)] == [1, 1],
            "each gateway relays one",
        )
    wait_until(
        lambda: (
            details(deployment.group)["running_in_engine"] == 0
            and details(deployment.group)["in_flight"] == 0
        ),
        "the engine and the gateways have let go",
    )


def test_each_series_is_shown_once_and_counts_the_requests_of_all(deployment: Deployment) -> None:
    client = system(deployment.group)
    before = Scrape(client.get("/metrics").text)
    for _ in range(4):
        assert ask(deployment.frontend, GROUP, "Hello").status == 200
    after = Scrape(client.get("/metrics").text)
    assert set(after.heads.values()) == {1}

    def grown(name: str, **labels: str) -> float:
        return sample(after, name, **labels) - sample(before, name, **labels)

    for gateway in ("0", "1"):
        labels = {"gateway": gateway, "dynamo_endpoint": "generate"}
        assert grown("dynamo_component_requests_total", **labels) == 2
        assert grown("dynamo_sglang_requests_admitted_total", gateway=gateway) == 2
    assert grown("sglang:num_requests_total") == 4
    once = [one.labels.get("gateway") for one in after.families["dynamo_sglang_healthy"].samples]
    assert once == [None]
    chosen = client.get("/metrics?name[]=dynamo_sglang_requests_admitted_total").text
    assert set(Scrape(chosen).families) == {"dynamo_sglang_requests_admitted_total"}


def test_the_engine_s_cache_is_announced_under_every_instance(deployment: Deployment) -> None:
    """The router may send a repeat to either: both stand for the cache that has the prefix."""
    prompt = "nobody had lived in the old house on the hill for years and years " * 8

    def accepted(gateway: str) -> float:
        return sample(
            Scrape(system(deployment.group).get("/metrics").text),
            "dynamo_component_kv_publisher_zmq_events_total",
            gateway=gateway,
            stage="accepted",
        )

    before = [accepted("0"), accepted("1")]
    deployment.kv.wait_for_model(GROUP)
    assert ask(deployment.kv, GROUP, prompt).status == 200
    wait_until(
        lambda: accepted("0") > before[0] and accepted("1") > before[1],
        "both gateways relay the events",
    )
    for _ in range(2):
        usage = ask(deployment.kv, GROUP, prompt).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 100


def test_a_signal_with_streams_under_way_loses_none(deployment: Deployment) -> None:
    worker = deployment.restarted()
    running = deployment.streams(6, tokens=150)
    worker.send(signal.SIGTERM)
    for stream in running:
        result = stream.result(60)
        assert result.complete and not result.errors, result
        assert result.finish_reason == "length"
    assert worker.wait_exit(60) == 0
    worker.check_nothing_left()


def test_a_killed_gateway_s_streams_go_on_at_the_other_and_the_worker_ends_loudly(
    deployment: Deployment,
) -> None:
    worker = deployment.restarted()
    running = deployment.streams(4, tokens=300)
    victim = min(pids_of_gateways(worker))
    worker.members()
    psutil.Process(victim).kill()
    wait_until(
        lambda: (details(worker)["in_flight"], details(worker)["running_in_engine"]) == (4, 4),
        "the other relays all, and the engine runs no request of the lost one any more",
    )
    for stream in running:
        result = stream.result(60)
        assert result.complete and not result.errors, result
        assert result.finish_reason == "length"
    assert worker.wait_exit(60) == 1
    assert "was ended by signal 9 while serving" in worker.log()
    worker.check_nothing_left()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_nothing_outlives_a_main_process_that_ends_while_the_engine_loads(
    stack: Stack, signum: int, code: int
) -> None:
    worker = start_worker(stack, GROUP)
    wait_until(lambda: len(pids_of_gateways(worker)) == 2, "the gateways import", deadline_s=120)
    worker.send(signum)
    assert worker.wait_exit(30) == code
    worker.check_nothing_left()


@pytest.mark.long
def test_a_gateway_that_is_lost_before_it_serves_ends_the_start(stack: Stack) -> None:
    worker = start_worker(stack, GROUP)
    wait_until(lambda: len(pids_of_gateways(worker)) == 2, "the gateways import", deadline_s=120)
    psutil.Process(pids_of_gateways(worker)[0]).kill()
    assert worker.wait_exit(START_S) == 1
    assert "was ended by signal 9 before it served" in worker.log()
    worker.check_nothing_left()


def test_a_killed_scheduler_ends_all_of_them_with_71(deployment: Deployment) -> None:
    worker = deployment.restarted()
    running = deployment.streams(2, tokens=2000)
    worker.members()
    scheduler_of(worker).kill()
    assert worker.wait_exit(60) == 71
    worker.check_nothing_left()
    for stream in running:
        assert not stream.result(60).complete or stream.result(60).errors
