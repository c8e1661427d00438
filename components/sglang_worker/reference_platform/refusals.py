"""What cannot run on the CPU reference platform, by flag and with a sentence each.

Checked by the worker's configuration before a model is read. Engines that other programs start on
the platform meet the same limits inside SGLang or in the kernels, which refuse by ValueError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from sglang_worker.reference_platform.defaults import ATTENTION_BACKEND, SPECULATIVE_ALGORITHMS
from sglang_worker.runners.guard import STANDALONE_SENTENCE

Accepts = Callable[[Any], bool]


def _one_of(*values: Any) -> Accepts:
    return lambda value: value in values


def _off(value: Any) -> bool:
    return value is None or value is False


class Limit(msgspec.Struct, frozen=True):
    """A ServerArgs field, the values that run, and what to do instead."""

    field: str
    accepts: Accepts
    advice: str

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")


_TRITON_ONLY = _one_of(None, ATTENTION_BACKEND)
_ATTENTION_ADVICE = "the platform's own attention runs under the name triton; leave it unset"
_LINEAR_ADVICE = "linear attention runs under the name triton; leave it unset"
_GRAPH_ADVICE = "there are no device graphs on a CPU; leave it unset"
_FULL_PRECISION_ADVICE = "only float32, bfloat16 and float16 run; leave it unset"

LIMITS: tuple[Limit, ...] = (
    Limit("device", _one_of(None, "cpu"), "the platform runs on the CPU; leave it unset"),
    *(
        Limit(field, _TRITON_ONLY, _ATTENTION_ADVICE)
        for field in (
            "attention_backend",
            "decode_attention_backend",
            "prefill_attention_backend",
            "speculative_draft_attention_backend",
        )
    ),
    *(
        Limit(field, _TRITON_ONLY, _LINEAR_ADVICE)
        for field in (
            "linear_attn_backend",
            "linear_attn_decode_backend",
            "linear_attn_prefill_backend",
            "linear_attn_verify_backend",
            "mamba_backend",
        )
    ),
    Limit("sampling_backend", _one_of(None, "pytorch"), "sampling runs in PyTorch; leave it unset"),
    Limit("lora_backend", _one_of(None, "torch_native"), "use --lora-backend torch_native"),
    Limit("moe_runner_backend", _one_of(None, "auto"), "experts run in PyTorch; leave it unset"),
    Limit(
        "moe_a2a_backend", _one_of(None, "none"), "there is no expert all-to-all; leave it unset"
    ),
    *(
        Limit(field, _one_of(None, "disabled"), _GRAPH_ADVICE)
        for field in ("cuda_graph_backend_decode", "cuda_graph_backend_prefill")
    ),
    *(
        Limit(field, _one_of(None), _GRAPH_ADVICE)
        for field in (
            "cuda_graph_config",
            "cuda_graph_max_bs_decode",
            "cuda_graph_max_bs_prefill",
            "cuda_graph_bs_decode",
            "cuda_graph_bs_prefill",
        )
    ),
    *(
        Limit(field, _one_of(None, "unquant"), _FULL_PRECISION_ADVICE)
        for field in (
            "quantization",
            "speculative_draft_model_quantization",
            "modelopt_quant",
        )
    ),
    Limit("kv_cache_dtype", _one_of(None, "auto", "bfloat16", "bf16"), _FULL_PRECISION_ADVICE),
    *(
        Limit(field, _off, "it needs kernels that have no CPU form; leave it off")
        for field in (
            "enable_torch_compile",
            "enable_linear_replayssm",
            "enable_linear_replayssm_spec",
            "enable_hierarchical_cache",
            "enable_hisparse",
            "enable_page_major_kv_layout",
            "enable_unified_memory",
            "enable_two_batch_overlap",
            "enable_deterministic_inference",
            "speculative_use_rejection_sampling",
            "enable_multi_layer_eagle",
        )
    ),
    *(
        Limit(field, _one_of(None, 1), "it needs kernels that have no CPU form; leave it at 1")
        for field in ("dcp_size", "attn_cp_size")
    ),
    Limit(
        "speculative_algorithm",
        lambda value: value is None or str(value).upper() in SPECULATIVE_ALGORITHMS,
        f"these drafts run: {', '.join(sorted(SPECULATIVE_ALGORITHMS))}",
    ),
)


def refusals(explicit: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing in ``explicit`` (ServerArgs fields) that cannot run here."""
    return [*_refused_flags(explicit), *_refused_page_size(explicit), *_refused_draft(explicit)]


def _refused_flags(explicit: Mapping[str, Any]) -> Iterator[str]:
    for limit in LIMITS:
        value = explicit.get(limit.field)
        if limit.field in explicit and not limit.accepts(value):
            yield (
                f"{limit.flag} {value} does not run on the CPU reference platform: {limit.advice}"
            )


def _refused_page_size(explicit: Mapping[str, Any]) -> Iterator[str]:
    if (explicit.get("page_size") or 1) > 1 and (explicit.get("speculative_eagle_topk") or 1) > 1:
        yield (
            "--page-size above 1 with --speculative-eagle-topk above 1 does not run on the CPU "
            "reference platform: use page size 1"
        )


def _refused_draft(explicit: Mapping[str, Any]) -> Iterator[str]:
    """A STANDALONE draft with linear attention: SGLang gives it no linear backend."""
    path = explicit.get("speculative_draft_model_path")
    if str(explicit.get("speculative_algorithm")).upper() != "STANDALONE" or not path:
        return
    layers = linear_attention_layers(str(path))
    if layers:
        yield (
            f"--speculative-draft-model-path {path} names a draft with linear attention: "
            f"{STANDALONE_SENTENCE}"
        )


def linear_attention_layers(model_path: str) -> bool:
    """Whether a local checkpoint's config.json describes linear-attention layers."""
    try:
        with open(os.path.join(model_path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return False
    text = config.get("text_config") or config
    return bool(
        text.get("linear_attn_config")
        or text.get("linear_num_value_heads")
        or "linear_attention" in (text.get("layer_types") or ())
    )
