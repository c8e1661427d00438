"""Model folders with a config.json alone: SGLang's dummy loader makes the weights up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_VOCABULARY = 8192

# Head dimensions of 128 and 16 K / 32 V heads: what SGLang's automatic defaults look for.
_SIZES: dict[str, dict[str, int]] = {
    "device": {
        "hidden": 2048,
        "layers": 8,
        "key_heads": 16,
        "value_heads": 32,
        "head_dim": 128,
        "experts": 16,
    },
    # At 128 sequences a step reads and writes 13 GB of states: the GPU needs longer for it than the
    # host for the step's launches. The weights are 6.5 GB, so five engines fit beside each other.
    "wide": {
        "hidden": 4096,
        "layers": 16,
        "key_heads": 16,
        "value_heads": 64,
        "head_dim": 128,
        "experts": 8,
    },
    "dry": {
        "hidden": 128,
        "layers": 4,
        "key_heads": 2,
        "value_heads": 4,
        "head_dim": 32,
        "experts": 4,
    },
}


def write_models(folder: Path, *, dry_run: bool, size: str = "device") -> tuple[Path, Path]:
    """(target, dense draft) below `folder`; a dry run has a size of its own."""
    sizes = _SIZES["dry" if dry_run else size]
    dtype = "float32" if dry_run else "bfloat16"
    target = _write(folder / "target", _target(sizes, dtype))
    return target, _write(folder / "dense", _dense(sizes, dtype))


def _write(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def _common(sizes: dict[str, int], dtype: str) -> dict[str, Any]:
    return {
        "vocab_size": _VOCABULARY,
        "hidden_size": sizes["hidden"],
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def _target(sizes: dict[str, int], dtype: str) -> dict[str, Any]:
    layers = sizes["layers"]
    return _common(sizes, dtype) | {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": layers,
        "full_attention_interval": 4,
        "layer_types": [
            "full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)
        ],
        "num_attention_heads": sizes["key_heads"],
        "num_key_value_heads": 2,
        "head_dim": sizes["head_dim"],
        "partial_rotary_factor": 0.25,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": sizes["head_dim"],
        "linear_value_head_dim": sizes["head_dim"],
        "linear_num_key_heads": sizes["key_heads"],
        "linear_num_value_heads": sizes["value_heads"],
        "intermediate_size": 2 * sizes["hidden"],
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": sizes["hidden"] // 4,
        "shared_expert_intermediate_size": sizes["hidden"] // 4,
        "norm_topk_prob": True,
        "num_experts": sizes["experts"],
        "num_experts_per_tok": 2,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }


def _dense(sizes: dict[str, int], dtype: str) -> dict[str, Any]:
    return _common(sizes, dtype) | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "num_attention_heads": sizes["key_heads"],
        "num_key_value_heads": 2,
        "head_dim": sizes["head_dim"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "intermediate_size": 2 * sizes["hidden"],
        "max_window_layers": 2,
        "sliding_window": None,
        "use_sliding_window": False,
        "layer_types": ["full_attention", "full_attention"],
    }
