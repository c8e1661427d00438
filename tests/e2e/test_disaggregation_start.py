"""How prefill and decode workers come up, and what keeps them from it."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.disaggregated import (
    ENVIRONMENT,
    PROMPTS,
    SPLIT,
    Deployment,
    answers_alike,
    phase_of,
)
from tests.support.stack import Stack
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def prompts_of_rank(deployment: Deployment, rank: int) -> int:
    """How many prompt batches a data-parallel rank of the prefill worker has logged."""
    return len(re.findall(rf" DP{rank}\] Prefill batch", deployment.prefill.log()))


def test_a_dense_model_is_split_as_well_and_each_side_waits_for_the_other(
    checkpoint: Callable[[str], Path],
) -> None:
    """With two data-parallel ranks on the prefill side, both of which decode must find."""
    with Stack(environ=ENVIRONMENT) as stack:
        deployment = Deployment(stack, checkpoint("dense"))
        decode = deployment.start("decode")
        deployment.start_whole()
        wait_until(
            lambda: phase_of(decode).get("phase") == "waiting for peers",
            "decode waits for a prefill worker",
            deadline_s=180.0,
        )
        assert phase_of(decode)["status"] == 503
        assert SPLIT not in deployment.client.models()
        deployment.start("prefill", "--dp-size", "2")
        deployment.wait_served()
        for prompt in PROMPTS:
            answers_alike(deployment, prompt)
        before = [prompts_of_rank(deployment, rank) for rank in (0, 1)]
        # The router draws a room for each request, and the room decides the rank.
        for number in range(40):
            answers_alike(deployment, f"Question {number}")
            if all(prompts_of_rank(deployment, rank) > before[rank] for rank in (0, 1)):
                return
        pytest.fail("all of 40 prompts went to one rank")


@pytest.mark.compat
def test_a_taken_bootstrap_port_ends_the_start_by_name(
    stack: Stack, checkpoint: Callable[[str], Path]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = stack.start_worker(
            *("--model-path", str(checkpoint("dense")), "--disaggregation-mode", "prefill"),
            *("--disaggregation-bootstrap-port", str(port)),
            environ={"SGLANG_HOST_IP": "127.0.0.1"},
        )
        assert worker.wait_exit(120.0) == 2
    assert f"--disaggregation-bootstrap-port={port} cannot be opened" in worker.log()


def test_a_prefill_engine_that_cannot_hand_over_never_registers(
    stack: Stack, checkpoint: Callable[[str], Path]
) -> None:
    worker = stack.start_worker(
        *("--model-path", str(checkpoint("dense")), "--disaggregation-mode", "prefill"),
        # SGLang's own fault injection: every look at a transfer finds it failed.
        environ={"SGLANG_HOST_IP": "127.0.0.1", "SGLANG_TEST_DISAGG_FAILURE_PROB": "1"},
    )
    assert worker.wait_exit(180.0) == 1
    assert "registered model" not in worker.log()
    assert re.search(r"the warm-up request failed: \S", worker.log())
    worker.check_nothing_left()
