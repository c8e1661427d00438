"""Train the MTP head of the GDN target: ``python -m sglang_worker.demo.training.train_mtp``.

The target is frozen. The head sees what it sees in SGLang: the embedding of token t+1 and the
target's final hidden state at t, and guesses token t+2. A second pass feeds the head's own
hidden state back, as the second speculative step does, so that its second guess is good too.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn

from sglang_worker.demo.configs import GDN, HIDDEN_SIZE
from sglang_worker.demo.training.export import export_mtp, load_target
from sglang_worker.demo.training.rows import Batch, RowSource
from sglang_worker.demo.training.train_text_model import SEED, learning_rate, model_config

SECOND_STEP_WEIGHT = 0.5


class MtpHead(nn.Module):
    """SGLang's MTP layout: two norms, a joining projection, one attention layer, a norm."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.qwen3_next import modeling_qwen3_next as qwen

        one_layer = GDN | {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
        body = qwen.Qwen3NextModel(model_config(one_layer))
        self.layer, self.norm, self.rotary = body.layers[0], body.norm, body.rotary_emb
        self.pre_fc_norm_embedding = qwen.Qwen3NextRMSNorm(HIDDEN_SIZE)
        self.pre_fc_norm_hidden = qwen.Qwen3NextRMSNorm(HIDDEN_SIZE)
        self.fc = nn.Linear(2 * HIDDEN_SIZE, HIDDEN_SIZE, bias=False)

    def join(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        parts = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden))
        joined: torch.Tensor = self.fc(torch.cat(parts, dim=-1))
        return joined

    def attend(
        self, joined: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """joined [rows, n, hidden], positions [1, n], mask [n, n] (True may look)."""
        cos_sin = self.rotary(joined, positions)
        out = self.layer(joined, position_embeddings=cos_sin, attention_mask=mask[None, None])
        normed: torch.Tensor = self.norm(out)
        return normed


def two_steps(
    head: MtpHead, embedded: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states of both speculative steps.

    embedded, hidden: [rows, n, hidden], embedded[:, t] belongs to token t+1 and hidden[:, t] to
    the target at t. The first result guesses token t+2 from [:, t]; the second guesses t+3
    from [:, t] and has n-1 places.
    """
    length = embedded.shape[1]
    at = torch.arange(length, device=hidden.device)
    causal = at[None, :] <= at[:, None]
    first_input = head.join(embedded, hidden)
    first = head.attend(first_input, at[None], causal)
    # Second step at position t+1: it sees first-step keys up to t, and itself.
    again = head.join(embedded[:, 1:], first[:, :-1])
    later = at[1:]
    both = torch.cat([first_input, again], dim=1)
    sees_first = at[None, :] < later[:, None]
    sees_again = torch.eye(length - 1, dtype=torch.bool, device=hidden.device)
    upper = torch.cat([causal, torch.zeros_like(causal[:, 1:])], dim=1)
    mask = torch.cat([upper, torch.cat([sees_first, sees_again], dim=1)], dim=0)
    out = head.attend(both, torch.cat([at, later])[None], mask)
    return first, out[:, length:]


def imitation(
    guesses: torch.Tensor, truth: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted cross entropy against the target's own distribution, and how often both agree."""
    each = -(truth.softmax(-1) * guesses.log_softmax(-1)).sum(-1)
    agreement = (guesses.argmax(-1) == truth.argmax(-1)).float()
    total = weights.sum()
    return (each * weights).sum() / total, (agreement * weights).sum() / total


def step_loss(head: MtpHead, target: Any, batch: Batch) -> tuple[torch.Tensor, tuple[float, float]]:
    with torch.no_grad():
        hidden = target.model(input_ids=batch.tokens, use_cache=False).last_hidden_state
        logits = target.lm_head(hidden)
        embedded = target.model.embed_tokens(batch.tokens[:, 1:])
    first, second = two_steps(head, embedded, hidden[:, :-1])
    # Place t guesses what the target says at t+1 (then t+2), weighted as that token is.
    loss_1, hits_1 = imitation(target.lm_head(first[:, :-1]), logits[:, 1:-1], batch.weights[:, 2:])
    loss_2, hits_2 = imitation(
        target.lm_head(second[:, :-1]), logits[:, 2:-1], batch.weights[:, 3:]
    )
    return loss_1 + SECOND_STEP_WEIGHT * loss_2, (hits_1.item(), hits_2.item())


def train(steps: int, rows: int, seconds: float, device: str) -> MtpHead:
    torch.manual_seed(SEED)
    target = load_target().to(device).eval().requires_grad_(False)
    head = MtpHead().to(device)
    source = RowSource(SEED + 1, device)
    optimizer = torch.optim.AdamW(head.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    started = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss, hits = step_loss(head, target, source.draw(rows))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        used_s = time.monotonic() - started
        if step % 50 == 0 or step == steps - 1:
            print(
                f"mtp step {step} loss {loss.item():.3f} agrees {hits[0]:.2f} {hits[1]:.2f} "
                f"{used_s:.0f} s",
                flush=True,
            )
        if used_s > seconds:
            raise TimeoutError(f"mtp: only {step + 1} of {steps} steps in {seconds:.0f} s")
    return head


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1100.0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(export_mtp(train(options.steps, options.rows, options.seconds, options.device)))


if __name__ == "__main__":
    main()
