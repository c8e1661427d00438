"""The vocabulary shared by every demo checkpoint, and the files a tokenizer folder needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

VOCABULARY_SIZE: Final = 1024
SPECIAL_TOKENS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|mask|>",
    "<|reserved_0|>",
    "<|reserved_1|>",
    "<|reserved_2|>",
)
MARKUP_TOKENS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TOKEN_IDS: Final = {text: index for index, text in enumerate((*SPECIAL_TOKENS, *MARKUP_TOKENS))}
PAD_ID: Final = TOKEN_IDS["<|endoftext|>"]
END_OF_TURN_ID: Final = TOKEN_IDS["<|im_end|>"]

TOKENIZER_FOLDER: Final = Path(__file__).with_name("tokenizer")
TOKENIZER_FILE: Final = TOKENIZER_FOLDER / "tokenizer.json"
CHAT_TEMPLATE_FILE: Final = TOKENIZER_FOLDER / "chat_template.jinja"


def tokenizer_config(context_length: int) -> dict[str, Any]:
    """Return ``tokenizer_config.json``; the chat template is inside, as older readers expect."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "additional_special_tokens": [
            text for text in SPECIAL_TOKENS if text not in ("<|im_end|>", "<|endoftext|>")
        ],
        "chat_template": CHAT_TEMPLATE_FILE.read_text(),
    }
