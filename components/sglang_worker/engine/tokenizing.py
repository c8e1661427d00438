"""Turning texts into tokens beside a busy event loop.

A long text takes long and must not hold the loop up, so a thread does it. A short one is done at
once: between a busy loop and a thread the interpreter changes hands only every few milliseconds,
which costs more than the text itself and would happen twice for every request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

# About a millisecond of a fast tokenizer.
SHORT_CHARS = 2000

Tokenize = Callable[[Sequence[str]], list[list[int]]]


class Tokenizing:
    """``tokenize`` never runs twice at a time: a tokenizer's own state is not safe to share."""

    def __init__(self, tokenize: Tokenize) -> None:
        self._tokenize = tokenize
        self._busy = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenize")

    async def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """One list of token ids per text; raises what ``tokenize`` raises."""
        short = sum(map(len, texts)) <= SHORT_CHARS
        if short and self._busy.acquire(blocking=False):
            try:
                return self._tokenize(texts)
            finally:
                self._busy.release()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._alone, texts)

    def _alone(self, texts: Sequence[str]) -> list[list[int]]:
        with self._busy:
            return self._tokenize(texts)
