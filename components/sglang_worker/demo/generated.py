"""Weights that are drawn, not trained: the vision-language and the diffusion demo models.

They exercise the worker's code paths; what they say has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from sglang_worker.demo import configs
from sglang_worker.demo.vocabulary import VOCABULARY_SIZE

Shape = tuple[int, ...]
SEED: Final = 7
_SCALE: Final = 0.1


def dllm_tensors() -> dict[str, np.ndarray]:
    """Return float32 weights of the SDAR model (a Qwen3 decoder with a large vocabulary).

    Tokens that the tokenizer does not have get no weight in the head, so that answers are text.
    """
    drawn = _draw(dict(_decoder_shapes("model", configs.DLLM, biased=False)))
    drawn["lm_head.weight"][VOCABULARY_SIZE:] = 0.0
    return drawn


def vlm_tensors() -> dict[str, np.ndarray]:
    """Return float32 weights of the Qwen2.5-VL model."""
    shapes = dict(_decoder_shapes("model", configs.VLM["text_config"], biased=True))
    shapes.update(_vision_shapes(configs.VLM["vision_config"]))
    return _draw(shapes)


def _draw(shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    rng = np.random.Generator(np.random.PCG64(SEED))
    drawn: dict[str, np.ndarray] = {}
    for name in sorted(shapes):
        values = rng.standard_normal(shapes[name], dtype=np.float32) * np.float32(_SCALE)
        is_norm = name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "ln_q.weight"))
        drawn[name] = values + np.float32(1.0) if is_norm else values
    return drawn


def _decoder_shapes(
    prefix: str, config: Mapping[str, Any], biased: bool
) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of a Qwen decoder: ``biased`` is Qwen2 (q/k/v biases), else q/k norms."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config["head_dim"]
    widths = {
        "q_proj": config["num_attention_heads"] * head,
        "k_proj": config["num_key_value_heads"] * head,
        "v_proj": config["num_key_value_heads"] * head,
    }
    yield f"{prefix}.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "lm_head.weight", (config["vocab_size"], hidden)
    yield f"{prefix}.norm.weight", (hidden,)
    for index in range(config["num_hidden_layers"]):
        layer = f"{prefix}.layers.{index}"
        for name, width in widths.items():
            yield f"{layer}.self_attn.{name}.weight", (width, hidden)
            if biased:
                yield f"{layer}.self_attn.{name}.bias", (width,)
        if not biased:
            yield f"{layer}.self_attn.q_norm.weight", (head,)
            yield f"{layer}.self_attn.k_norm.weight", (head,)
        yield f"{layer}.self_attn.o_proj.weight", (hidden, widths["q_proj"])
        yield f"{layer}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.up_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)


def _vision_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, inner, patch = config["hidden_size"], config["intermediate_size"], config["patch_size"]
    merged = hidden * config["spatial_merge_size"] ** 2
    yield (
        "visual.patch_embed.proj.weight",
        (hidden, config["in_channels"], config["temporal_patch_size"], patch, patch),
    )
    yield "visual.merger.ln_q.weight", (hidden,)
    for name, shape in (("0", (merged, merged)), ("2", (config["out_hidden_size"], merged))):
        yield f"visual.merger.mlp.{name}.weight", shape
        yield f"visual.merger.mlp.{name}.bias", shape[:1]
    linear = {
        "attn.qkv": (3 * hidden, hidden),
        "attn.proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for index in range(config["depth"]):
        block = f"visual.blocks.{index}"
        for name, shape in linear.items():
            yield f"{block}.{name}.weight", shape
            yield f"{block}.{name}.bias", shape[:1]
        yield f"{block}.norm1.weight", (hidden,)
        yield f"{block}.norm2.weight", (hidden,)
