"""Keeps a grammar that allows no token at all from ending the scheduler.

Such a grammar masks every logit, sampling finds no probability left and raises, and SGLang's
scheduler process ends with every request in it. A client can cause it: a left-recursive rule that
never begins, or characters that the vocabulary cannot spell. It shows only when the mask is
filled, so the guard sits there, in the scheduler process: a row without a single token gets one
token, and accepting that token fails, which SGLang turns into the end of this one request.

Read in SGLang 0.5.21 and 0.5.23: ``constrained/xgrammar_backend.py``, ``llguidance_backend.py``
(32 tokens per int32, a set bit allows the token), ``batch_result_processor.py`` (a ValueError of
``accept_token`` becomes FINISH_ABORT).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.errors import StartupCheckError

DEAD_END = "no token can continue this grammar"
MARK = "_no_token_left"
BITS = 32

GRAMMARS: Mapping[str, str] = {
    "sglang.srt.constrained.xgrammar_backend": "XGrammarGrammar",
    "sglang.srt.constrained.llguidance_backend": "GuidanceGrammar",
}


def install() -> None:
    """Patch the grammar classes of this process. A backend that is not installed is left out;
    a class without the expected methods is a StartupCheckError."""
    for module_name, class_name in GRAMMARS.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        grammar_class = getattr(module, class_name, None)
        wanted = ("fill_vocab_mask", "accept_token")
        if grammar_class is None or not all(hasattr(grammar_class, name) for name in wanted):
            raise StartupCheckError(f"{module_name}.{class_name} is not what the guard knows")
        guard(grammar_class)


def guard(grammar_class: Any) -> None:
    """Wrap one grammar class; wrapping it again changes nothing."""
    if getattr(grammar_class, "_guarded_against_dead_ends", False):
        return
    grammar_class._guarded_against_dead_ends = True
    grammar_class.fill_vocab_mask = _checked_fill(grammar_class.fill_vocab_mask)
    grammar_class.accept_token = _checked_accept(grammar_class.accept_token)
    batched = grammar_class.__dict__.get("fill_vocab_mask_batched")
    if isinstance(batched, staticmethod):
        grammar_class.fill_vocab_mask_batched = staticmethod(_checked_batch(batched.__func__))


def _checked_fill(fill: Callable[..., None]) -> Callable[..., None]:
    def checked(self: Any, vocab_mask: Any, row: int) -> None:
        fill(self, vocab_mask, row)
        check_row(self, vocab_mask[row])

    return checked


def _checked_batch(fill: Callable[..., None]) -> Callable[..., None]:
    def checked(entries: Any, vocab_mask: Any) -> None:
        fill(entries, vocab_mask)
        for entry in entries:
            check_row(entry.grammar, vocab_mask[entry.row])

    return checked


def _checked_accept(accept: Callable[..., None]) -> Callable[..., None]:
    def checked(self: Any, token: int) -> None:
        if getattr(self, MARK, False):
            raise ValueError(DEAD_END)
        accept(self, token)

    return checked


def check_row(grammar: Any, row: Any) -> None:
    """``row``: the packed mask of one request. When nothing is allowed, allow one token.

    The last token of the vocabulary: tokenizers keep reserved ids there, so that a speculative
    draft hardly ever proposes it and it is rarely an end of sequence.
    """
    if bool(row.any()):
        return
    setattr(grammar, MARK, True)
    last = int(getattr(grammar, "vocab_size", 0) or row.numel() * BITS) - 1
    bit = last % BITS
    # int32: the highest bit is the sign.
    row[last // BITS] = -(1 << bit) if bit == BITS - 1 else 1 << bit
