"""``config.json`` of every demo model: real architectures at a size that two cores can run.

Head sizes are those the CPU reference platform was verified with; all text models share the
vocabulary of :mod:`sglang_worker.demo.vocabulary`, so that any of them can draft for another.
"""

from __future__ import annotations

from typing import Any, Final

from sglang_worker.demo.vocabulary import END_OF_TURN_ID, PAD_ID, TOKEN_IDS, VOCABULARY_SIZE

CONTEXT_LENGTH: Final = 4096
HIDDEN_SIZE: Final = 128
_HEAD_SIZE: Final = 32

_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": _HEAD_SIZE,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": CONTEXT_LENGTH,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "rope_theta": 10000.0,
    "eos_token_id": END_OF_TURN_ID,
    "pad_token_id": PAD_ID,
    "bos_token_id": None,
    "dtype": "float32",
    "torch_dtype": "float32",
}

GDN: Final[dict[str, Any]] = _COMMON | {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "partial_rotary_factor": 0.25,
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": _HEAD_SIZE,
    "linear_value_head_dim": _HEAD_SIZE,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "num_nextn_predict_layers": 1,
}

DENSE: Final[dict[str, Any]] = _COMMON | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "layer_types": ["full_attention"] * 2,
}

KDA_LAYERS: Final = 3
KDA: Final[dict[str, Any]] = _COMMON | {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    # SGLang builds the output norm of a KDA layer with 1e-5 whatever the checkpoint says.
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": KDA_LAYERS,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": _HEAD_SIZE,
    "v_head_dim": _HEAD_SIZE,
    "mla_use_nope": True,
    "linear_attn_config": {
        "kda_layers": [2, 3],
        "full_attn_layers": [1],
        "head_dim": _HEAD_SIZE,
        "num_heads": 4,
        "short_conv_kernel_size": 4,
    },
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_token": 2,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "moe_layer_freq": 1,
    "moe_router_activation_func": "sigmoid",
    "first_k_dense_replace": KDA_LAYERS,
    "model_max_length": CONTEXT_LENGTH,
}

DLLM_VOCABULARY_SIZE: Final = 151936
"""SGLang fixes the mask token of SDAR models at 151669, so this one vocabulary has to reach it."""
DLLM: Final[dict[str, Any]] = DENSE | {
    "architectures": ["SDARForCausalLM"],
    "vocab_size": DLLM_VOCABULARY_SIZE,
    "hidden_size": 64,
    "intermediate_size": 128,
    "head_dim": 16,
    "max_position_embeddings": 2048,
}

VLM: Final[dict[str, Any]] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "dtype": "float32",
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
    "eos_token_id": END_OF_TURN_ID,
    "pad_token_id": PAD_ID,
    "bos_token_id": None,
    "image_token_id": TOKEN_IDS["<|image_pad|>"],
    "video_token_id": TOKEN_IDS["<|video_pad|>"],
    "vision_start_token_id": TOKEN_IDS["<|vision_start|>"],
    "vision_end_token_id": TOKEN_IDS["<|vision_end|>"],
    "text_config": _COMMON
    | {
        "model_type": "qwen2_5_vl_text",
        "num_hidden_layers": 2,
        "layer_types": ["full_attention"] * 2,
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]},
        "max_position_embeddings": 2048,
    },
    "vision_config": {
        "model_type": "qwen2_5_vl",
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": HIDDEN_SIZE,
        "fullatt_block_indexes": [1],
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "window_size": 112,
        "in_channels": 3,
        "hidden_act": "silu",
    },
}

VLM_PREPROCESSOR: Final[dict[str, Any]] = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 3136,
    "max_pixels": 50176,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}
