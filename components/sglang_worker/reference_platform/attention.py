"""Dense attention over SGLang's paged KV pool, in PyTorch.

`ReferenceAttnBackend` stands where SGLang looks for ``TritonAttnBackend``: under the name
``triton``, so that the draft factory and the isinstance checks in SGLang keep working.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

from sglang_worker.reference_platform.older import write_place
from sglang_worker.reference_platform.sdpa import Span, attend, causal_mask, within_window


class ReferenceAttnBackend(AttentionBackend):
    """Decode, prefill with cached prefixes, target verify and draft steps by SDPA per request.

    Refuses by ValueError what it cannot compute: sliding-window KV pools, cross attention and
    attention sinks.
    """

    needs_cpu_seq_lens = False

    def __init__(
        self,
        model_runner: Any,
        skip_prefill: bool = False,
        kv_indptr_buf: Any = None,
        *,
        dllm_fa4: bool = False,
        draft_step: int | None = None,
        topk: int = 1,
        num_steps: int = 1,
    ) -> None:
        super().__init__()
        self.device = model_runner.device
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        if isinstance(self.token_to_kv_pool, BaseSWAKVPool):
            raise ValueError("sliding-window KV pools do not run on the CPU reference platform")
        self.kv_index_translator = getattr(model_runner, "kv_index_translator", None)
        self.max_context_len = model_runner.model_config.context_len
        self.use_sliding_window_kv_pool = False
        self._draft_step = draft_step
        self._topk = topk
        self._num_steps = num_steps
        self.forward_metadata: list[Span] = []

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """No graphs on this platform."""

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def update_verify_buffers_to_fill_after_draft(
        self, spec_info: Any, cuda_graph_bs: int | None
    ) -> None:
        """Nothing is kept between the draft and the verify step."""

    def support_triton(self) -> bool:
        return False

    def init_forward_metadata(self, forward_batch: Any) -> None:
        mode = forward_batch.forward_mode
        if mode.is_decode_or_idle():
            spans = (
                self._decode_spans(forward_batch)
                if self._draft_step is None
                else self._draft_spans(forward_batch, self._draft_step)
            )
        elif mode.is_target_verify():
            spans = self._verify_spans(forward_batch)
        else:
            spans = self._extend_spans(forward_batch)
        self.forward_metadata = spans

    def _requests(self, forward_batch: Any, lengths: torch.Tensor) -> list[tuple[Any, int]]:
        table = self.req_to_token_pool.req_to_token
        rows = forward_batch.req_pool_indices.tolist()
        return [(table[row], n) for row, n in zip(rows, lengths.tolist(), strict=False)]

    def _decode_spans(self, forward_batch: Any) -> list[Span]:
        requests = self._requests(forward_batch, forward_batch.seq_lens)
        return [Span(row[:length].long(), 1, None) for row, length in requests]

    def _draft_spans(self, forward_batch: Any, step: int) -> list[Span]:
        """Branch t of a request writes its drafts to ``num_steps`` slots of its own."""
        spans = []
        for row, length in self._requests(forward_batch, forward_batch.seq_lens):
            for branch in range(self._topk):
                start = length + branch * self._num_steps
                slots = torch.cat([row[:length], row[start : start + step + 1]])
                spans.append(Span(slots.long(), 1, None))
        return spans

    def _verify_spans(self, forward_batch: Any) -> list[Span]:
        spec = forward_batch.spec_info
        drafts, custom, offset = spec.draft_token_num, spec.custom_mask, 0
        spans = []
        for row, length in self._requests(forward_batch, forward_batch.seq_lens):
            total = length + drafts
            if custom is not None and custom.numel() >= offset + drafts * total:
                mask = custom[offset : offset + drafts * total].view(drafts, total)
                offset += drafts * total
            else:
                mask = causal_mask(drafts, total)
            spans.append(Span(row[:total].long(), drafts, mask))
        return spans

    def _extend_spans(self, forward_batch: Any) -> list[Span]:
        prefixes = forward_batch.extend_prefix_lens
        lengths = forward_batch.extend_seq_lens.tolist()
        spans = []
        for (row, prefix), new in zip(
            self._requests(forward_batch, prefixes), lengths, strict=False
        ):
            total = prefix + new
            spans.append(Span(row[:total].long(), new, causal_mask(new, total)))
        return spans

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **options: Any,
    ) -> torch.Tensor:
        """[T, Hq*D] -> [T, Hq*Dv]; stores k and v in the pool first when asked."""
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, options)

    forward_extend = forward_decode

    def _forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool,
        options: dict[str, Any],
    ) -> torch.Tensor:
        if options.get("sinks") is not None or layer.is_cross_attention:
            raise ValueError("attention sinks and cross attention do not run on the CPU platform")
        pool = self.token_to_kv_pool
        if save_kv_cache and k is not None:
            pool.set_kv_buffer(layer, write_place(forward_batch), k, v)
        queries = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = queries.new_zeros(queries.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        # As in SGLang's extend kernels, a prefill reads only the prefix from the pool and takes
        # its own k/v as handed over: MLA and embedding mode may never have stored them.
        fresh = None
        if k is not None and v is not None and not forward_batch.forward_mode.is_decode():
            fresh = (
                k.view(-1, layer.tp_k_head_num, layer.qk_head_dim),
                v.view(-1, layer.tp_v_head_num, layer.v_head_dim),
            )
        stored = (pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id))
        done = 0
        for span in self.forward_metadata:
            if span.queries == 0:
                continue
            part = slice(done, done + span.queries)
            keys, values = _keys_and_values(span, part, layer, stored, fresh)
            out[part] = attend(
                queries[part], keys, values, _mask(span, layer), layer.scaling, layer.logit_cap
            )
            done = part.stop
        return out.view(q.shape[0], -1)


def _mask(span: Span, layer: Any) -> torch.Tensor | None:
    if layer.attn_type == AttentionType.ENCODER_ONLY:
        return None
    window = layer.sliding_window_size
    if window is not None and window > -1:
        return within_window(span, window)
    return span.mask


def _keys_and_values(
    span: Span,
    part: slice,
    layer: Any,
    stored: tuple[torch.Tensor, torch.Tensor],
    fresh: tuple[torch.Tensor, torch.Tensor] | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of the span's slots: from the pool, or prefix from it plus fresh ones."""
    sizes = (layer.qk_head_dim, layer.v_head_dim)
    if fresh is None:
        slots = span.slots
        read = [p[slots].view(len(slots), -1, d) for p, d in zip(stored, sizes, strict=True)]
        return read[0], read[1]
    prefix = span.slots[: -span.queries]
    if not len(prefix):
        return fresh[0][part], fresh[1][part]
    joined = [
        torch.cat([p[prefix].view(len(prefix), -1, d).to(f.dtype), f[part]])
        for p, d, f in zip(stored, sizes, fresh, strict=True)
    ]
    return joined[0], joined[1]
