"""LoRA adapters on a running worker: loaded, routed to by name, drained with it, unloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL, ADAPTER = "demo", "poet"
RANK = 8


def write_adapter(base: Path, folder: Path) -> Path:
    """A random adapter for the attention of the dense demo model, strong enough to show."""
    config = json.loads((base / "config.json").read_text())
    hidden, head = config["hidden_size"], config["head_dim"]
    widths = {
        "q_proj": config["num_attention_heads"] * head,
        "v_proj": config["num_key_value_heads"] * head,
    }
    rng = np.random.default_rng(9)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, width in widths.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{prefix}.lora_A.weight"] = rng.normal(0, 0.3, (RANK, hidden))
            weights[f"{prefix}.lora_B.weight"] = rng.normal(0, 0.3, (width, RANK))
    folder.mkdir()
    save_file(
        {name: value.astype(np.float32) for name, value in weights.items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "r": RANK,
                "lora_alpha": 16,
                "target_modules": sorted(widths),
                "bias": "none",
                "base_model_name_or_path": str(base),
                "task_type": "CAUSAL_LM",
                "lora_dropout": 0.0,
            }
        )
    )
    return folder


@pytest.fixture(scope="module")
def adapter(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(checkpoint("dense"), tmp_path_factory.mktemp("lora") / ADAPTER)


@pytest.fixture(scope="module")
def deployed(checkpoint: Callable[[str], Path]) -> Iterator[tuple[Frontend, Worker]]:
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=1, ready=False)
        flags = ["--model-path", str(checkpoint("dense")), "--served-model-name", MODEL]
        flags += ["--enable-lora", "--max-lora-rank", str(RANK)]
        worker = stack.start_worker(*flags, "--lora-target-modules", "q_proj", "v_proj")
        frontend.wait_for_model(MODEL, deadline_s=180)
        yield frontend, worker


def text_of(frontend: Frontend, model: str) -> str:
    reply = frontend.client.completion(
        model, "The worker", max_tokens=12, temperature=0, ignore_eos=True
    )
    assert reply.status == 200, reply.text
    return str(reply.json()["choices"][0]["text"])


def test_an_adapter_is_served_under_its_name_from_load_to_unload(
    deployed: tuple[Frontend, Worker], adapter: Path
) -> None:
    frontend, worker = deployed
    assert worker.system is not None
    base = text_of(frontend, MODEL)
    assert frontend.client.completion(ADAPTER, "x", max_tokens=2).status == 404

    body = {"lora_name": ADAPTER, "source": {"uri": f"file://{adapter}"}}
    loaded = worker.system.post("/v1/loras", body)
    assert loaded.status == 200, loaded.text
    assert worker.system.post("/v1/loras", body).status == 200
    assert list(worker.system.get("/v1/loras").json()["loras"]) == [ADAPTER]

    frontend.wait_for_model(ADAPTER)
    assert text_of(frontend, ADAPTER) != base
    assert text_of(frontend, MODEL) == base

    unloaded = worker.system.request("DELETE", f"/v1/loras/{ADAPTER}")
    assert unloaded.status == 200, unloaded.text
    wait_until(
        lambda: ADAPTER not in frontend.client.models(),
        "the frontend has forgotten the adapter",
        deadline_s=20,
    )
    assert worker.system.request("DELETE", f"/v1/loras/{ADAPTER}").status == 404
    assert text_of(frontend, MODEL) == base


def test_a_folder_that_is_no_adapter_is_refused_and_nothing_stays(
    deployed: tuple[Frontend, Worker], tmp_path: Path
) -> None:
    frontend, worker = deployed
    assert worker.system is not None
    for uri in (f"file://{tmp_path}", "/no/such/folder", "s3://bucket/adapter"):
        reply = worker.system.post("/v1/loras", {"lora_name": "bad", "source": {"uri": uri}})
        assert 400 <= reply.status < 500, reply.text
    assert worker.system.get("/v1/loras").json()["loras"] == {}
    assert "bad" not in frontend.client.models()
    assert frontend.client.chat(MODEL, "still there", max_tokens=2).status == 200
