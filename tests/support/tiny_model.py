"""A model folder that the frontend can load and no engine needs: tokenizer, template, config.

One token per byte, so a test can read token ids as text: id = byte value + 3.
"""

from __future__ import annotations

import json
from pathlib import Path

FIRST_BYTE_ID = 3
SPECIALS = ("<s>", "<unk>", "</s>")
EOS_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def token_ids(text: str) -> list[int]:
    return [byte + FIRST_BYTE_ID for byte in text.encode()]


def write_tiny_model(folder: Path, *, context_length: int = 4096) -> Path:
    """Writes config.json, tokenizer.json and friends into ``folder`` and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {name: index for index, name in enumerate(SPECIALS)}
    for byte, symbol in enumerate(_byte_symbols()):
        vocabulary[symbol] = byte + FIRST_BYTE_ID
    files = {
        "tokenizer.json": _tokenizer(vocabulary),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": context_length,
            "chat_template": CHAT_TEMPLATE,
        },
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "bos_token_id": 0,
            "eos_token_id": EOS_ID,
            "hidden_size": 8,
            "intermediate_size": 16,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
            "max_position_embeddings": context_length,
            "vocab_size": len(vocabulary),
        },
        "generation_config.json": {"eos_token_id": EOS_ID},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def _tokenizer(vocabulary: dict[str, int]) -> dict[str, object]:
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": name, "special": True, **special}
            for index, name in enumerate(SPECIALS)
        ],
        "pre_tokenizer": {"type": "ByteLevel", **byte_level},
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def _byte_symbols() -> list[str]:
    """The printable stand-in that byte-level BPE uses for each of the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
