"""Small random models for numerics, one per family, made in seconds by transformers.

Random weights hide errors when they are small: activations then barely depend on what a kernel
computed. So initial weights are large, decay parameters are spread over their useful range, and
norms are not the identity. `write` needs transformers and must run where SGLang is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

VOCABULARY = 1024
_CONTEXT = 4096
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": _CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "initializer_range": 0.12,
}
_GDN = {
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
_KDA = {
    "kda_layers": [2, 3],
    "full_attn_layers": [1],
    "head_dim": 32,
    "num_heads": 4,
    "short_conv_kernel_size": 4,
}
# Residual branches of the speculation models are damped so that a draft agrees now and then.
_DAMPED = ("out_proj.weight", "o_proj.weight", "down_proj.weight")
_DAMPING = 0.3


def write(name: str, folder: Path) -> None:
    """Writes the checkpoint ``name`` (a key of WRITERS) into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    WRITERS[name](folder)


def _qwen3(folder: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(**_COMMON, num_hidden_layers=2)
    _save(Qwen3ForCausalLM, config, folder, rope_theta=10000.0)


def _qwen3_next(folder: Path) -> None:
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(**_COMMON, **_GDN, **_EXPERTS)
    _save(Qwen3NextForCausalLM, config, folder, rope_theta=10000.0, full_attention_interval=4)


def _qwen3_5(folder: Path) -> None:
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(**_COMMON, **_GDN)
    _save(Qwen3_5ForCausalLM, config, folder, full_attention_interval=4)


def _qwen3_5_moe(folder: Path) -> None:
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    config = Qwen3_5MoeTextConfig(**_COMMON, **_GDN, **_EXPERTS)
    _save(Qwen3_5MoeForCausalLM, config, folder, full_attention_interval=4)


def _kimi_linear(folder: Path) -> None:
    from transformers.models.kimi_linear import KimiLinearConfig, KimiLinearForCausalLM

    layers = 3
    config = KimiLinearConfig(
        **{**_COMMON, "num_key_value_heads": 4, "head_dim": None},
        moe_intermediate_size=64,
        num_hidden_layers=layers,
        kv_lora_rank=32,
        qk_rope_head_dim=16,
        qk_nope_head_dim=32,
        v_head_dim=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        pad_token_id=0,
        linear_attn_config=_KDA,
        first_k_dense_replace=layers,
        n_shared_experts=1,
    )
    _save(
        KimiLinearForCausalLM,
        config,
        folder,
        rename={"block_sparse_moe.": "mlp."},
        # The names under which SGLang reads the same configuration.
        linear_attn_config=_KDA,
        first_k_dense_replace=layers,
        num_experts=4,
        num_experts_per_token=2,
        num_shared_experts=1,
        moe_layer_freq=1,
        mla_use_nope=True,
        q_lora_rank=None,
        model_max_length=_CONTEXT,
        moe_router_activation_func="sigmoid",
        rope_theta=10000.0,
    )


def _speculative_target(folder: Path) -> None:
    """Qwen3-Next with an MTP head that continues its last layer."""
    import torch
    from safetensors.torch import load_file

    _qwen3_next(folder)
    weights = _damped(load_file(folder / "model.safetensors"))
    weights["model.embed_tokens.weight"] *= 10
    torch.manual_seed(5)
    last, hidden = "model.layers.3.", int(_COMMON["hidden_size"])  # type: ignore[call-overload]
    head = {
        "mtp.layers.0." + name[len(last) :]: value + 0.02 * torch.randn_like(value)
        for name, value in weights.items()
        if name.startswith(last)
    }
    head["mtp.norm.weight"] = weights["model.norm.weight"].clone()
    head["mtp.pre_fc_norm_embedding.weight"] = torch.zeros(hidden)
    head["mtp.pre_fc_norm_hidden.weight"] = torch.zeros(hidden)
    head["mtp.fc.weight"] = torch.cat(
        [torch.eye(hidden) * 10, 0.1 * torch.randn(hidden, hidden)], 1
    )
    _store(weights | head, folder)


def _speculative_draft(folder: Path) -> None:
    """A dense draft with the target's embedding and head, beside it as ``speculative_target``."""
    from safetensors.torch import load_file

    _qwen3(folder)
    weights = _damped(load_file(folder / "model.safetensors"))
    target = load_file(folder.parent / "speculative_target" / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = target[name].clone()
    _store(weights, folder)


WRITERS: dict[str, Callable[[Path], None]] = {
    "qwen3": _qwen3,
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5_moe,
    "kimi_linear": _kimi_linear,
    "speculative_target": _speculative_target,
    "speculative_draft": _speculative_draft,
}


def _save(
    model_class: Any,
    config: Any,
    folder: Path,
    rename: dict[str, str] | None = None,
    **more_config: Any,
) -> None:
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(1)
    model = model_class(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _make_telling(name, parameter)
    model.to(torch.float32).save_pretrained(folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more_config, indent=1))
    for old, new in (rename or {}).items():
        weights = load_file(folder / "model.safetensors")
        _store({name.replace(old, new): value for name, value in weights.items()}, folder)


def _make_telling(name: str, parameter: Any) -> None:
    if name.endswith("A_log"):
        parameter.uniform_(-3, 1)
    elif "dt_bias" in name:
        parameter.uniform_(-2, 1)
    elif "conv1d" in name and name.endswith("weight"):
        parameter.normal_(0, 0.5)
    elif "norm.weight" in name:
        parameter.add_(parameter.clone().normal_(0, 0.1))


def _damped(weights: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value * _DAMPING if name.endswith(_DAMPED) else value
        for name, value in weights.items()
    }


def _store(weights: dict[str, Any], folder: Path) -> None:
    from safetensors.torch import save_file

    contiguous = {name: value.contiguous() for name, value in weights.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
