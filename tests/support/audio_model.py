"""A folder with a small Qwen2-Audio style model: random weights, the demo's vocabulary.

``python -m tests.support.audio_model DIR`` writes it. Needs torch and transformers; nothing is
downloaded, weights are drawn from a fixed seed. What it says has no meaning, but depends on all of
what it hears.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sglang_worker.demo.configs import DENSE
from sglang_worker.demo.vocabulary import (
    CHAT_TEMPLATE_FILE,
    END_OF_TURN_ID,
    PAD_ID,
    TOKEN_IDS,
    TOKENIZER_FILE,
    tokenizer_config,
)

SEED = 20_261_130
SCALE = 0.1
CONTEXT_LENGTH = 2048
WINDOW_S = 30
RATE_HZ = 16_000
MELS = 128
# Tokens that the demo's tokenizer keeps free, under the names that Qwen2-Audio's processor knows.
TOKENS = {
    "<|reserved_0|>": "<|audio_bos|>",
    "<|reserved_1|>": "<|AUDIO|>",
    "<|reserved_2|>": "<|audio_eos|>",
}
AUDIO_TOKEN_ID = TOKEN_IDS["<|reserved_1|>"]
# The demo's template knows no sound.
PART = (
    "{%- elif part['type'] in ['audio', 'audio_url'] %}\n{{- '"
    + "".join(TOKENS.values())
    + "' }}\n"
)
NEXT_PART = "{%- elif part['type'] in ['video', 'video_url'] %}\n"
AUDIO_CONFIG = {
    "model_type": "qwen2_audio_encoder",
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "num_mel_bins": MELS,
    # Of two sampling steps each: the window.
    "max_source_positions": 1500,
}
TEXT_CONFIG = {
    **{name: value for name, value in DENSE.items() if name not in ("architectures", "head_dim")},
    "model_type": "qwen2",
    "max_position_embeddings": CONTEXT_LENGTH,
    "layer_types": ["full_attention"] * 2,
}
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2AudioForConditionalGeneration"],
    "model_type": "qwen2_audio",
    "audio_config": AUDIO_CONFIG,
    "text_config": TEXT_CONFIG,
    "audio_token_index": AUDIO_TOKEN_ID,
    "vocab_size": TEXT_CONFIG["vocab_size"],
    "hidden_size": TEXT_CONFIG["hidden_size"],
    "eos_token_id": END_OF_TURN_ID,
    "pad_token_id": PAD_ID,
    "dtype": "float32",
    "torch_dtype": "float32",
}
PREPROCESSOR = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "processor_class": "Qwen2AudioProcessor",
    "feature_size": MELS,
    "sampling_rate": RATE_HZ,
    "chunk_length": WINDOW_S,
    "hop_length": 160,
    "n_fft": 400,
    "padding_value": 0.0,
    "padding_side": "right",
    "return_attention_mask": True,
}


def write_audio_model(folder: Path) -> Path:
    """An existing folder is left as it is."""
    if (folder / "config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    template = CHAT_TEMPLATE_FILE.read_text().replace(NEXT_PART, PART + NEXT_PART)
    (folder / "tokenizer.json").write_text(_renamed(TOKENIZER_FILE.read_text()))
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = json.loads(_renamed(json.dumps(tokenizer_config(CONTEXT_LENGTH))))
    ends = {"eos_token_id": [END_OF_TURN_ID, PAD_ID], "pad_token_id": PAD_ID}
    _write_json(folder / "tokenizer_config.json", {**tokenizer, "chat_template": template})
    _write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    _write_json(folder / "generation_config.json", ends)
    _write_weights(folder / "model.safetensors")
    _write_json(folder / "config.json", CONFIG)
    return folder


def _write_weights(path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen2AudioConfig, Qwen2AudioForConditionalGeneration

    config = Qwen2AudioConfig(
        audio_config=dict(AUDIO_CONFIG),
        text_config=dict(TEXT_CONFIG),
        audio_token_index=AUDIO_TOKEN_ID,
    )
    with torch.device("meta"):
        shapes = Qwen2AudioForConditionalGeneration(config).state_dict()
    generator = torch.Generator().manual_seed(SEED)
    drawn = {}
    for name in sorted(shapes):
        values = SCALE * torch.randn(shapes[name].shape, generator=generator)
        drawn[_published(name)] = values + 1 if name.endswith("norm.weight") else values
    save_file(drawn, path, metadata={"format": "pt"})


def _published(name: str) -> str:
    """As checkpoints of this kind name their weights."""
    name = name.removeprefix("model.")
    if name.startswith("lm_head"):
        return f"language_model.{name}"
    return name.replace("language_model.", "language_model.model.", 1)


def _renamed(text: str) -> str:
    for old, new in TOKENS.items():
        text = text.replace(old, new)
    return text


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    print(write_audio_model(Path(sys.argv[1])))
