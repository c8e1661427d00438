"""Attention of a draft model over its consecutive steps.

Stands where SGLang looks for ``TritonMultiStepDraftBackend``.
"""

from __future__ import annotations

from typing import Any

from sglang_worker.reference_platform.attention import ReferenceAttnBackend


class ReferenceMultiStepDraftBackend:
    """One `ReferenceAttnBackend` per draft step after the first."""

    needs_cpu_seq_lens = False

    def __init__(self, model_runner: Any, topk: int, speculative_num_steps: int) -> None:
        self.topk = topk
        self.speculative_num_steps = speculative_num_steps
        self.attn_backends = [
            ReferenceAttnBackend(
                model_runner, draft_step=step, topk=topk, num_steps=speculative_num_steps
            )
            for step in range(speculative_num_steps - 1)
        ]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """No graphs on this platform."""
