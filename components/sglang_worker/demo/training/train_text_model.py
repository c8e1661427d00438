"""Train one text model: ``python -m sglang_worker.demo.training.train_text_model gdn|dense|kda``.

Needs torch and transformers; one core and about ten minutes. The result, rounded to float16,
replaces ``demo/weights/<name>.safetensors``. The seed fixes data and initial weights; sums in
another order (other core counts, other torch builds) still change the last digits.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from typing import Any

import torch

from sglang_worker.demo.configs import DENSE, GDN, KDA
from sglang_worker.demo.training.export import export_model
from sglang_worker.demo.training.rows import Batch, RowSource

SEED = 20240229
CONFIGS = {"gdn": GDN, "dense": DENSE, "kda": KDA}
PEAK_LEARNING_RATE = 4e-3
WARMUP_STEPS = 30


def model_config(settings: Mapping[str, Any]) -> Any:
    """Return the Hugging Face configuration of a ``config.json``."""
    from transformers import AutoConfig

    kept = {k: v for k, v in settings.items() if k not in ("torch_dtype", "rope_theta")}
    if settings["model_type"] != "kimi_linear":
        kept["rope_parameters"] = {
            "rope_type": "default",
            "rope_theta": settings["rope_theta"],
            "partial_rotary_factor": settings.get("partial_rotary_factor", 1.0),
        }
    return AutoConfig.for_model(**kept)


def build_model(name: str) -> Any:
    """Return a freshly initialised Hugging Face model of the named configuration."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(model_config(CONFIGS[name])).float()


def learning_rate(step: int, steps: int) -> float:
    if step < WARMUP_STEPS:
        return PEAK_LEARNING_RATE * (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return PEAK_LEARNING_RATE * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def loss_of(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Weighted cross entropy of the next token; logits [rows, width, vocabulary]."""
    each = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), batch.tokens[:, 1:].flatten(), reduction="none"
    )
    weights = batch.weights[:, 1:].flatten()
    return (each * weights).sum() / weights.sum()


def train(name: str, steps: int, rows: int, seconds: float, device: str) -> Any:
    """Train for ``steps`` steps; running out of ``seconds`` is an error, never a shorter run."""
    torch.manual_seed(SEED)
    model = build_model(name).to(device)
    source = RowSource(SEED, device)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.98),
    )
    started = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        batch = source.draw(rows)
        loss = loss_of(model(input_ids=batch.tokens, use_cache=False).logits, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        used_s = time.monotonic() - started
        if step % 50 == 0 or step == steps - 1:
            print(f"{name} step {step} loss {loss.item():.3f} {used_s:.0f} s", flush=True)
        if used_s > seconds:
            raise TimeoutError(f"{name}: only {step + 1} of {steps} steps in {seconds:.0f} s")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(CONFIGS))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1100.0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = train(options.name, options.steps, options.rows, options.seconds, options.device)
    print(export_model(options.name, model))


if __name__ == "__main__":
    main()
