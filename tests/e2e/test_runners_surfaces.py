"""Where an operator meets the runner report: one real worker with an MTP draft, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sglang_worker.runners.guard import STANDALONE_SENTENCE

from tests.support.checkpoints import checkpoint
from tests.support.stack import Stack, Worker

pytestmark = pytest.mark.e2e

API_KEY = "a-secret-api-key"
CHAIN = (
    "--speculative-num-steps",
    "2",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "3",
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("runners")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def worker(stack: Stack) -> Worker:
    return stack.start_worker(
        "--model-path",
        str(checkpoint("gdn")),
        "--speculative-algorithm",
        "NEXTN",
        *CHAIN,
        "--api-key",
        API_KEY,
        ready_path="/ready",
        ready_deadline_s=180.0,
    )


@pytest.fixture(scope="module")
def server_info(worker: Worker) -> dict[str, Any]:
    assert worker.system is not None
    answer = worker.system.get("/engine/server_info")
    assert answer.status == 200
    assert API_KEY not in answer.text
    info: dict[str, Any] = json.loads(answer.text)
    return info


def test_server_info_and_each_internal_state_carry_the_runner_list(
    server_info: dict[str, Any],
) -> None:
    runners = server_info["linear_attn_runners"]
    assert [runner["runner"] for runner in runners] == ["target", "draft"]
    assert runners[0]["kernels"]["decode"] == "ReferenceGDNKernel"
    assert runners[1]["kernels"] is None
    for state in server_info["internal_states"]:
        assert state["linear_attn_runners"] == runners


def test_the_log_has_the_table_and_a_warning_for_each_difference(
    worker: Worker, server_info: dict[str, Any]
) -> None:
    log = worker.log()
    assert "attention d/p" in log
    differences = [d for r in server_info["linear_attn_runners"] for d in r["differences"]]
    assert differences
    assert log.count("reference_platform:") + log.count("no_backend:") == len(differences)


def test_the_gauge_has_a_sample_for_every_runner_and_phase(worker: Worker) -> None:
    assert worker.system is not None
    lines = [
        line
        for line in worker.system.get("/metrics").text.splitlines()
        if line.startswith("dynamo_sglang_linear_attn_runner_info{")
    ]
    assert all(line.endswith((" 1", " 1.0")) for line in lines)
    assert any('runner="target"' in line and 'phase="decode"' in line for line in lines)
    assert any('runner="draft"' in line and 'kernel=""' in line for line in lines)
    assert len(lines) == len(set(lines))


def test_the_model_card_carries_the_same_list(stack: Stack, server_info: dict[str, Any]) -> None:
    cards = [path.read_text() for path in stack.kv_folder.rglob("*") if path.is_file()]
    assert any("linear_attn_runners" in card and "ReferenceGDNKernel" in card for card in cards)


def test_the_report_folder_is_gone_when_the_worker_is(stack: Stack) -> None:
    folder = stack.folder / "temporary"
    folder.mkdir()
    started = stack.start_worker(
        "--model-path",
        str(checkpoint("gdn")),
        environ={"TMPDIR": str(folder)},
        ready_path="/ready",
        ready_deadline_s=180.0,
    )
    assert list(folder.glob("sglang-worker-runners-*"))
    started.stop()
    assert not list(folder.glob("sglang-worker-runners-*"))


def test_a_linear_attention_standalone_draft_is_refused_before_anything_loads(
    stack: Stack,
) -> None:
    refused = stack.start_worker(
        "--model-path",
        str(checkpoint("gdn")),
        "--speculative-algorithm",
        "STANDALONE",
        "--speculative-draft-model-path",
        str(checkpoint("kda")),
        *CHAIN,
    )
    assert refused.wait_exit(deadline_s=90.0) == 2
    assert STANDALONE_SENTENCE in refused.log()
