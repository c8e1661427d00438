"""One embeddings request inside SGLang: all its inputs as one batch, answered at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sglang_worker.engine import compat_embedding
from sglang_worker.engine.generation import Generation


class EmbeddingBatch(Generation):
    """Its `first` output is the list of all outputs; `rest` brings nothing more."""

    __slots__ = ()

    def __init__(
        self, tokenizer_manager: Any, fields: Mapping[str, Any], request_ids: Sequence[str]
    ) -> None:
        self._open(tokenizer_manager, *compat_embedding.new_batch(fields, request_ids))

    async def outputs(self) -> list[dict[str, Any]] | None:
        """One output per input, in their order; None when it was stopped. Raises as `first`."""
        try:
            found = await self.first()
        except Exception as error:
            refused = compat_embedding.refusal(error)
            raise refused or error from None
        if found is None:
            return None
        async for _ in self.rest():
            pass
        return None if self.stopped else found
