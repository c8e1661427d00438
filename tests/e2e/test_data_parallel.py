"""Several data-parallel ranks in one worker, and one engine on two nodes, on the CPU platform."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.checkpoints import checkpoint
from tests.support.ports import free_block
from tests.support.stack import NOT_UP_YET, Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "demo"
NEVER_BUSY = 1.0
BUSY_AT_ONCE = 0.0001
REFUSED_AS_BUSY = {503, 529}
# Rank r announces its blocks on the first of these plus r.
EVENT_PORTS = 2
# SGLang's nodes talk on ports up to 13 above the one in --dist-init-addr.
NODE_PORTS = 14
GRACE = {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5"}


def chat(prompt: str) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 8,
        "temperature": 0,
        "nvext": {"extra_fields": ["worker_id"]},
    }


def ask(frontend: Frontend, prompt: str, **headers: str) -> dict[str, Any]:
    """The answer's body, with the instance and the data-parallel rank that gave it."""
    reply = frontend.client.post("/v1/chat/completions", chat(prompt), **headers)
    assert reply.status == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def start_nodes(stack: Stack, count: int, *flags: str) -> list[Worker]:
    """The processes of one engine, all at once: the first serves."""
    events = {"publisher": "zmq", "endpoint": f"tcp://*:{free_block(EVENT_PORTS)}"}
    common = [*("--model-path", str(checkpoint("gdn")), "--served-model-name", MODEL), *flags]
    common += ["--kv-events-config", json.dumps(events), "--enable-metrics"]
    if count > 1:
        address = f"127.0.0.1:{free_block(NODE_PORTS)}"
        common += ["--nnodes", str(count), "--dist-init-addr", address]
    return [
        stack.start_worker(
            *common,
            *(("--node-rank", str(rank)) if count > 1 else ()),
            name=f"node{rank}",
            environ=GRACE,
        )
        for rank in range(count)
    ]


class Nodes:
    """Two processes with one rank of a tensor-parallel engine each."""

    def __init__(self, stack: Stack) -> None:
        self.frontend = stack.start_frontend(
            router_mode="kv", arguments=("--event-plane", "zmq"), ready=False
        )
        self.leader, self.follower = start_nodes(stack, 2, "--tp-size", "2")


def phase(worker: Worker) -> str:
    assert worker.system is not None
    return str(worker.system.get("/startup").json()["phase"])


@pytest.fixture
def nodes(stack: Stack) -> Iterator[Nodes]:
    yield Nodes(stack)


def wait_until_following(follower: Worker) -> None:
    system = follower.system
    assert system is not None
    follower.wait_for(
        lambda: system.get("/startup").status == 200,
        "the follower has started",
        deadline_s=60,
        ignore=NOT_UP_YET,
    )
    assert phase(follower) == "following"


def check_they_leave_together(leader: Worker, follower: Worker) -> None:
    leader.send(signal.SIGTERM)
    assert leader.wait_exit(60) == 0
    assert follower.wait_exit(60) == 0
    for node in (leader, follower):
        node.check_nothing_left()


def test_a_follower_computes_and_serves_nothing_and_leaves_with_its_leader(nodes: Nodes) -> None:
    leader, follower, frontend = nodes.leader, nodes.follower, nodes.frontend
    assert leader.system is not None
    assert follower.system is not None
    frontend.wait_for_model(MODEL, deadline_s=180)
    wait_until_following(follower)
    answer = ask(frontend, "Hello")
    assert answer["choices"][0]["message"]["content"]
    runners = leader.system.get("/engine/server_info").json()["linear_attn_runners"]
    assert [runner["ranks"] for runner in runners] == [[0, 1]]

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
    check_they_leave_together(leader, follower)


def test_a_follower_whose_leader_is_killed_says_that_the_engine_died(nodes: Nodes) -> None:
    nodes.frontend.wait_for_model(MODEL, deadline_s=180)
    nodes.leader.send(signal.SIGKILL)
    assert nodes.follower.wait_exit(60) == 71
    nodes.follower.check_nothing_left()


class Ranks:
    """One engine with two data-parallel ranks, on one node or two, behind two frontends.

    ``kv`` routes by the ranks' events. ``plain`` has requests go to a rank unseen by ``kv``.
    """

    def __init__(self, stack: Stack, *flags: str, nodes: int = 1) -> None:
        arguments = ("--event-plane", "zmq", "--active-decode-blocks-threshold", str(NEVER_BUSY))
        self.kv, self.plain = (
            stack.start_frontend(router_mode=mode, arguments=arguments, ready=False)
            for mode in ("kv", "round-robin")
        )
        self.nodes = start_nodes(stack, nodes, *flags)
        self.worker = self.nodes[0]
        for frontend in (self.kv, self.plain):
            frontend.wait_for_model(MODEL, deadline_s=240)
        assert self.worker.system is not None
        self.system = self.worker.system
        self.instance = str(self.system.get("/engine/status").json()["worker_id"])

    def to(self, rank: int) -> dict[str, str]:
        """The frontend drops the rank of a request that names no instance."""
        return {"x_worker_instance_id": self.instance, "x_data_parallel_rank": str(rank)}

    def place(self, number: int, rank: int) -> str:
        """Have one rank compute a prompt; returns the text once the blocks are announced."""
        # On several nodes each announces the blocks of its own ranks.
        node = self.nodes[rank * len(self.nodes) // 2]
        before = relayed(node)
        body = ask(self.plain, story(number), **self.to(rank))
        assert cached(body) < 30
        wait_until(lambda: relayed(node) > before, "its blocks are announced")
        return str(body["choices"][0]["message"]["content"])

    def check_a_chosen_rank_computes_and_repeats_find_it(self) -> list[str]:
        texts = [self.place(number, number % 2) for number in range(4)]
        for number in range(4):
            body = ask(self.kv, story(number))
            assert int(body["nvext"]["worker_id"]["decode_dp_rank"]) == number % 2
            assert cached(body) > 30, f"prompt {number} was computed again"
            # A rank that was not chosen does not have the prompt.
            other = ask(self.plain, story(number), **self.to(1 - number % 2))
            assert cached(other) < 30, f"prompt {number} was on both ranks"
        return texts

    def reported_ranks(self) -> list[list[int]]:
        runners = self.system.get("/engine/server_info").json()["linear_attn_runners"]
        return [runner["ranks"] for runner in runners]


def story(number: int) -> str:
    return f"{number * 7919} begins story {number}. " * 12


def cached(body: dict[str, Any]) -> int:
    return int((body["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def relayed(worker: Worker) -> float:
    """Events that the runtime has taken over from the ranks' streams."""
    assert worker.system is not None
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in worker.system.get("/metrics").text.splitlines()
        if line.startswith("dynamo_component_kv_publisher_zmq_events_total{")
        and 'stage="accepted"' in line
    )


def refuse_from(frontend: Frontend, used_share: float) -> None:
    """From which share of its KV blocks in use the frontend holds a worker for busy."""
    body = {"model": MODEL, "active_decode_blocks_threshold": used_share}
    reply = frontend.client.post("/busy_threshold", body)
    assert reply.status == 200, reply.text


@pytest.fixture(scope="module")
def replicas() -> Iterator[Ranks]:
    with Stack() as stack:
        yield Ranks(stack, "--dp-size", "2")


def test_the_replica_that_a_request_names_computes_it_and_repeats_find_it_there(
    replicas: Ranks,
) -> None:
    replicas.check_a_chosen_rank_computes_and_repeats_find_it()
    assert replicas.reported_ranks() == [[0, 1]]


def test_a_rank_that_does_not_exist_is_refused(replicas: Ranks) -> None:
    reply = replicas.plain.client.post("/v1/chat/completions", chat("Hello"), **replicas.to(2))
    assert reply.status == 400, reply.text
    assert "dp_rank: must be below 2, this worker's ranks, got 2" in reply.text
    assert ask(replicas.plain, "Hello", **replicas.to(1))["choices"], "the worker goes on"


def test_a_router_refuses_when_the_published_loads_of_all_ranks_are_too_high(
    replicas: Ranks,
) -> None:
    """The loads come from requests that the refusing router has not seen."""

    def status() -> int:
        return replicas.kv.client.post("/v1/chat/completions", chat("Hello")).status

    long = {**chat("Count"), "max_tokens": 4000, "ignore_eos": True, "stream": True}
    refuse_from(replicas.kv, BUSY_AT_ONCE)
    try:
        wait_until(lambda: status() == 200, "the idle worker is not busy", interval_s=0.5)
        with contextlib.ExitStack() as streams:
            for rank in range(2):
                headers = replicas.to(rank)
                stream = replicas.plain.client.open("POST", "/v1/chat/completions", long, **headers)
                streams.enter_context(stream)
                next(iter(stream))
            wait_until(lambda: status() in REFUSED_AS_BUSY, "the router knows the loads")
        wait_until(lambda: status() == 200, "the router knows that they are gone", interval_s=0.5)
    finally:
        refuse_from(replicas.kv, NEVER_BUSY)


# Two nodes go through what one node does, but for the choice of its ports.
@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.long), 2])
def test_ranks_with_attention_of_their_own_answer_as_replicas_do(
    nodes: int, stack: Stack, replicas: Ranks
) -> None:
    ranks = Ranks(stack, "--tp-size", "2", "--dp-size", "2", "--enable-dp-attention", nodes=nodes)
    for follower in ranks.nodes[1:]:
        wait_until_following(follower)
    texts = ranks.check_a_chosen_rank_computes_and_repeats_find_it()
    assert texts == [
        ask(replicas.plain, story(number))["choices"][0]["message"]["content"]
        for number in range(4)
    ]
    assert ranks.reported_ranks() == [[0, 1]]
    check_they_leave_together(ranks.worker, ranks.nodes[-1])
