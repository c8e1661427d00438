"""A Qwen3-Next-shaped checkpoint with drawn weights and an MTP layer, written where it is used.

SGLang's dummy loader would give every rank weights of its own, so that two ranks would not make
up the model of one: the weights must lie in a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sglang_worker.demo.vocabulary import VOCABULARY_SIZE

from benchmarks.gpu_rows.tokenizer import add_tokenizer

SEED = 11
# Large enough that the best token stands out of what bf16 rounds away, most of the time.
LOGIT_SPREAD = 3.0
LAYERS = 4
EXPERTS = 8
# Head dimensions of 128 and 16 K / 32 V heads: what SGLang's automatic defaults look for.
DEVICE_SIZES = {"hidden": 1024, "key_heads": 16, "value_heads": 32, "head_dim": 128}
DRY_SIZES = {"hidden": 128, "key_heads": 2, "value_heads": 4, "head_dim": 32}
Shape = tuple[int, ...]


def write_model(folder: Path, *, dry_run: bool) -> Path:
    """float32 for a dry run, else bfloat16; the demo's tokenizer, whose ids all fit."""
    import torch
    from safetensors.torch import save_file

    config = config_of(DRY_SIZES if dry_run else DEVICE_SIZES, "float32" if dry_run else "bfloat16")
    target = folder / "target"
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps(config, indent=1))
    add_tokenizer(target, folder)
    draw = torch.Generator().manual_seed(SEED)
    dtype = getattr(torch, config["dtype"])
    tensors = {
        name: _drawn(name, shape, config, draw).to(dtype).contiguous()
        for name, shape in shapes(config)
    }
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def config_of(sizes: Mapping[str, int], dtype: str) -> dict[str, Any]:
    hidden, head = sizes["hidden"], sizes["head_dim"]
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": hidden,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
        "partial_rotary_factor": 0.25,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "dtype": dtype,
        "torch_dtype": dtype,
        "num_hidden_layers": LAYERS,
        "num_nextn_predict_layers": 1,
        "full_attention_interval": LAYERS,
        "layer_types": ["linear_attention"] * (LAYERS - 1) + ["full_attention"],
        "num_attention_heads": max(4, hidden // head),
        "num_key_value_heads": 2,
        "head_dim": head,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": head,
        "linear_value_head_dim": head,
        "linear_num_key_heads": sizes["key_heads"],
        "linear_num_value_heads": sizes["value_heads"],
        "intermediate_size": 2 * hidden,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": hidden // 2,
        "shared_expert_intermediate_size": hidden // 2,
        "norm_topk_prob": True,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }


def shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    yield "lm_head.weight", (vocabulary, hidden)
    yield "model.norm.weight", (hidden,)
    for index, kind in enumerate(config["layer_types"]):
        layer = f"model.layers.{index}"
        yield from (_linear(layer, config) if "linear" in kind else _attention(layer, config))
        yield from _rest(layer, config)
    yield "mtp.fc.weight", (hidden, 2 * hidden)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield f"mtp.{name}.weight", (hidden,)
    yield from _attention("mtp.layers.0", config)
    yield from _rest("mtp.layers.0", config)


def _linear(layer: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden = config["hidden_size"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    heads = config["linear_num_value_heads"]
    yield f"{layer}.linear_attn.A_log", (heads,)
    yield f"{layer}.linear_attn.dt_bias", (heads,)
    yield (
        f"{layer}.linear_attn.conv1d.weight",
        (2 * keys + values, 1, config["linear_conv_kernel_dim"]),
    )
    yield f"{layer}.linear_attn.in_proj_ba.weight", (2 * heads, hidden)
    yield f"{layer}.linear_attn.in_proj_qkvz.weight", (2 * keys + 2 * values, hidden)
    yield f"{layer}.linear_attn.norm.weight", (config["linear_value_head_dim"],)
    yield f"{layer}.linear_attn.out_proj.weight", (hidden, values)


def _attention(layer: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, head = config["hidden_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    # The gate of the output lies beside the queries.
    for name, width in (("q_proj", 2 * query), ("k_proj", key), ("v_proj", key)):
        yield f"{layer}.self_attn.{name}.weight", (width, hidden)
    yield f"{layer}.self_attn.o_proj.weight", (hidden, query)
    for name in ("q_norm", "k_norm"):
        yield f"{layer}.self_attn.{name}.weight", (head,)


def _rest(layer: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden = config["hidden_size"]
    yield f"{layer}.input_layernorm.weight", (hidden,)
    yield f"{layer}.post_attention_layernorm.weight", (hidden,)
    yield f"{layer}.mlp.gate.weight", (config["num_experts"], hidden)
    yield f"{layer}.mlp.shared_expert_gate.weight", (1, hidden)
    experts = [f"experts.{index}" for index in range(config["num_experts"])]
    for expert in ("shared_expert", *experts):
        size = "shared_expert" if expert == "shared_expert" else "moe"
        inner = config[f"{size}_intermediate_size"]
        for name, shape in (
            ("gate_proj", (inner, hidden)),
            ("up_proj", (inner, hidden)),
            ("down_proj", (hidden, inner)),
        ):
            yield f"{layer}.mlp.{expert}.{name}.weight", shape


def _drawn(name: str, shape: Shape, config: Mapping[str, Any], draw: Any) -> Any:
    import torch

    noise = torch.randn(shape, generator=draw)
    if name.endswith("A_log"):
        return torch.log(1 + 15 * torch.rand(shape, generator=draw))
    if name.endswith("dt_bias"):
        return noise * 0.5 + 1
    if name.endswith("linear_attn.norm.weight"):
        return noise * 0.1 + 1
    if "norm" in name:
        return noise * 0.1  # added to one by the model
    if name == "model.embed_tokens.weight":
        return noise
    spread = LOGIT_SPREAD if name == "lm_head.weight" else 1.0
    return noise * spread / math.sqrt(math.prod(shape[1:]))
