"""Block diffusion by its definition, on transformers: no cache, no batch, one mask.

SDAR is a Qwen3 decoder in which a token sees its own block and all blocks before it. A block begins
as masks; in each step every mask whose likeliest token has more than `THRESHOLD` takes it, or the
surest of them alone when none has. Block and mask token are those that SGLang fixes for SDAR.
Must run where SGLang is not loaded.
"""

from __future__ import annotations

from typing import Any

BLOCK_TOKENS = 4
MASK_TOKEN = 151669
THRESHOLD = 0.95


def write(folder: str, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """``tokens`` new tokens after each prompt."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        return [_continue(model, prompt, tokens) for prompt in prompts]


def _continue(model: Any, prompt: list[int], tokens: int) -> list[int]:
    ids = list(prompt)
    while len(ids) < len(prompt) + tokens:
        missing = BLOCK_TOKENS - len(ids) % BLOCK_TOKENS
        ids += [MASK_TOKEN] * missing
        while MASK_TOKEN in ids[-missing:]:
            _step(ids, _logits(model, ids), missing)
    return ids[len(prompt) : len(prompt) + tokens]


def _logits(model: Any, ids: list[int]) -> Any:
    """Of the last block, [BLOCK_TOKENS, vocabulary]."""
    import torch

    block = torch.arange(len(ids)) // BLOCK_TOKENS
    hidden = block.unsqueeze(0) > block.unsqueeze(1)
    mask = torch.zeros(len(ids), len(ids)).masked_fill(hidden, float("-inf"))
    out = model(torch.tensor([ids]), attention_mask=mask[None, None], use_cache=False)
    return out.logits[0, -BLOCK_TOKENS:]


def _step(ids: list[int], logits: Any, missing: int) -> None:
    sure, likeliest = logits.softmax(-1).max(-1)
    open_places = [at for at in range(-missing, 0) if ids[at] == MASK_TOKEN]
    chosen = [at for at in open_places if sure[at] > THRESHOLD]
    for at in chosen or [max(open_places, key=lambda one: float(sure[one]))]:
        ids[at] = int(likeliest[at])
