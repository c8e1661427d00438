"""One engine on two nodes, on the CPU platform."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.checkpoints import checkpoint
from tests.support.ports import free_port
from tests.support.stack import NOT_UP_YET, Frontend, Stack, Worker

pytestmark = pytest.mark.e2e
MODEL = "demo"
GRACE = {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5"}


def ask(frontend: Frontend, prompt: str, **headers: str) -> dict[str, Any]:
    """The answer's body, with the instance and the data-parallel rank that gave it."""
    reply = frontend.client.post(
        "/v1/chat/completions",
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 4,
            "temperature": 0,
            "nvext": {"extra_fields": ["worker_id"]},
        },
        **headers,
    )
    assert reply.status == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


class Nodes:
    """Two processes with one rank of a tensor-parallel engine each."""

    def __init__(self, stack: Stack, *flags: str) -> None:
        self.frontend = stack.start_frontend(router_mode="kv", arguments=("--event-plane", "zmq"))
        address = f"127.0.0.1:{free_port()}"
        events = {"publisher": "zmq", "endpoint": f"tcp://*:{free_port()}"}
        self.leader, self.follower = (
            stack.start_worker(
                *("--model-path", str(checkpoint("gdn")), "--served-model-name", MODEL),
                *("--tp-size", "2", "--nnodes", "2", "--node-rank", str(rank)),
                *("--dist-init-addr", address, "--kv-events-config", json.dumps(events)),
                *("--enable-metrics", *flags),
                name=f"node{rank}",
                environ=GRACE,
            )
            for rank in range(2)
        )


def phase(worker: Worker) -> str:
    assert worker.system is not None
    return str(worker.system.get("/startup").json()["phase"])


@pytest.fixture
def nodes(stack: Stack) -> Iterator[Nodes]:
    yield Nodes(stack)


def test_a_follower_computes_and_serves_nothing_and_leaves_with_its_leader(nodes: Nodes) -> None:
    leader, follower, frontend = nodes.leader, nodes.follower, nodes.frontend
    assert leader.system is not None
    assert follower.system is not None
    frontend.wait_for_model(MODEL, deadline_s=180)
    follower.wait_for(
        lambda: follower.system.get("/startup").status == 200,
        "the follower has started",
        deadline_s=60,
        ignore=NOT_UP_YET,
    )
    answer = ask(frontend, "Hello")
    assert answer["choices"][0]["message"]["content"]
    runners = leader.system.get("/engine/server_info").json()["linear_attn_runners"]
    assert [runner["ranks"] for runner in runners] == [[0, 1]]

    assert phase(follower) == "following"
    assert follower.system.get("/health").status == 200
    assert follower.system.get("/ready").status == 200
    for path in ("/engine/status", "/engine/server_info", "/engine/drain"):
        assert follower.system.get(path).status == 404, path
    shown = follower.system.get("/metrics").text
    assert "sglang:" in shown
    assert "dynamo_sglang_linear_attn_runner_info{" in shown
    assert "dynamo_component_requests_total{" not in shown

    follower.send(signal.SIGTERM)
    follower.wait_log("SIGTERM: stopping")
    assert ask(frontend, "Hello again")["choices"], "the follower keeps its ranks for the leader"
    leader.send(signal.SIGTERM)
    assert leader.wait_exit(60) == 0
    assert follower.wait_exit(60) == 0
    for node in (leader, follower):
        node.check_nothing_left()


def test_a_follower_whose_leader_is_killed_says_that_the_engine_died(nodes: Nodes) -> None:
    nodes.frontend.wait_for_model(MODEL, deadline_s=180)
    nodes.leader.send(signal.SIGKILL)
    assert nodes.follower.wait_exit(60) == 71
    nodes.follower.check_nothing_left()
