"""What config.json decides before any load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.config.model_facts import ModelFacts, Unknown, facts_of, read_model
from sglang_worker.config.model_rules import check_models, verify_backend
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.errors import ConfigError

KDA = {"architectures": ["KimiLinearForCausalLM"], "linear_attn_config": {"kda_layers": [1, 2]}}
GDN = {"architectures": ["Qwen3NextForCausalLM"], "linear_num_value_heads": 4, "vocab_size": 512}
TREE = ["--speculative-algorithm", "STANDALONE", "--speculative-eagle-topk", "2"]


def model(folder: Path, name: str, config: dict[str, Any]) -> str:
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps(config))
    return str(folder / name)


def check(path: str, *flags: str) -> Any:
    return check_models(parse_worker_config(["--model-path", path, *flags], {}))


@pytest.mark.parametrize(
    "flags",
    [
        ["--linear-attn-verify-backend", "flashinfer"],
        ["--linear-attn-decode-backend", "flashinfer"],
        ["--linear-attn-backend", "flashinfer"],
    ],
)
def test_kda_with_flashinfer_verify_takes_no_tree(tmp_path: Path, flags: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check(model(tmp_path, "kda", KDA), *TREE, *flags)
    text = str(caught.value)
    assert f"{flags[0]} flashinfer" in text and "--speculative-eagle-topk 2" in text


@pytest.mark.parametrize(
    "flags",
    [
        [*TREE, "--linear-attn-verify-backend", "triton"],
        [*TREE, "--linear-attn-verify-backend", "triton", "--linear-attn-backend", "flashinfer"],
        ["--linear-attn-verify-backend", "flashinfer"],
        [*TREE[:2], "--speculative-eagle-topk", "1", "--linear-attn-backend", "flashinfer"],
    ],
)
def test_other_kda_combinations_are_allowed(tmp_path: Path, flags: list[str]) -> None:
    assert check(model(tmp_path, "kda", KDA), *flags).target.family == "kda"


def test_gdn_takes_a_tree_with_flashinfer(tmp_path: Path) -> None:
    path = model(tmp_path, "gdn", GDN)
    assert check(path, *TREE, "--linear-attn-backend", "flashinfer").target.family == "gdn"


def test_the_verify_backend_follows_sglangs_order() -> None:
    assert verify_backend({})[0] is None
    assert verify_backend({"linear_attn_backend": "triton"}) == ("triton", "--linear-attn-backend")


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--model-path=.* is no model folder"):
        check(str(tmp_path))


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_a_broken_config_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        check(str(tmp_path))


def test_a_hub_name_stays_unknown_with_the_reason() -> None:
    answer = read_model("--model-path", "org/model")
    assert isinstance(answer, Unknown) and "not a local folder" in answer.reason


def test_a_standalone_draft_shares_the_vocabulary(tmp_path: Path) -> None:
    target, draft = model(tmp_path, "t", GDN), model(tmp_path, "d", {**GDN, "vocab_size": 1024})
    flags = ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", draft]
    with pytest.raises(ConfigError, match="vocabulary of 1024 tokens, the target one of 512"):
        check(target, *flags)


def test_text_config_of_multimodal_models_counts() -> None:
    facts = facts_of({"architectures": ["X"], "model_type": "x", "text_config": GDN})
    assert facts == ModelFacts(("X",), "x", "gdn", 512, None)
