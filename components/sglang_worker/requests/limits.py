"""What a started engine allows; requests are checked against it before SGLang sees them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths are in tokens. Read once from the engine (`engine.compat.read_limits`)."""

    vocab_size: int
    context_length: int
    # Speculative decoding reserves draft positions inside the context.
    reserved_tokens: int = 0
    # The scheduler's own bound on the prompt, which the KV pool may lower; None: unknown.
    max_input_length: int | None = None
    # prompt + max_tokens beyond the context is an error rather than a shorter answer.
    rejects_long_totals: bool = True
    # --allow-auto-truncate: SGLang cuts what is too long instead of refusing it.
    truncates: bool = False
    has_tokenizer: bool = True
    has_eos: bool = True
    accepts_media: bool = False
    dp_ranks: int = 1
    # Alternatives of the first token that prefill can hand over to a separate decode worker.
    handover_logprobs: int = 128
    # --enable-priority-scheduling
    priorities: bool = False
    guided: bool = True
    reasoning_parser: str | None = None
    strict_thinking: bool = False
    # The model's own sampling options (generation_config.json), for what a client leaves out.
    default_sampling: Mapping[str, float] = {}
    # Fields of SGLang's generate request that the installed release has.
    request_fields: frozenset[str] = frozenset()

    @property
    def usable_context(self) -> int:
        return self.context_length - self.reserved_tokens

    @property
    def longest_prompt(self) -> int:
        """In tokens. SGLang refuses a prompt that reaches the context's length or its own bound."""
        bound = self.usable_context - 1
        return bound if self.max_input_length is None else min(bound, self.max_input_length - 1)
