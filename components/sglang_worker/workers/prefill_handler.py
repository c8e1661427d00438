"""The ``generate`` handler of prefill workers.

The first chunk tells where the KV cache can be fetched. The last one comes when the transfer is
done: SGLang holds a finished prefill until decode has everything, so a request that is still in
flight here is one whose KV cache this process must keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.requests.chunks import ChunkWriter
from sglang_worker.requests.disaggregation import BootstrapAddress
from sglang_worker.requests.mapping import GenerateCall
from sglang_worker.requests.prefill import handover_chunk, map_prefill, unwrapped
from sglang_worker.workers.generate_handler import GenerateHandler


class PrefillChunkWriter(ChunkWriter):
    """The end of a prefill: how it finished and what it found in the cache, but no token.

    Decode sends the first token, which it got together with the KV cache.
    """

    __slots__ = ()

    def write(self, output: Mapping[str, Any]) -> dict[str, Any] | None:
        chunk = super().write(output)
        if chunk is None or "finish_reason" not in chunk:
            return None
        kept = ("finish_reason", "completion_usage", "engine_data")
        return {"token_ids": [], **{name: chunk[name] for name in kept if name in chunk}}


class PrefillHandler(GenerateHandler):
    """Serves requests for one prompt each, in both forms that routers send."""

    def __init__(
        self, address: BootstrapAddress, follows_room: bool, *args: Any, **options: Any
    ) -> None:
        """``follows_room``: SGLang takes the data-parallel rank from the room."""
        super().__init__(*args, **options)
        self._address = address
        self._follows_room = follows_room

    def _map(self, request: Any, probe: bool) -> GenerateCall:
        return map_prefill(
            request,
            self._limits,
            self._address,
            follows_room=self._follows_room,
            loras=self._loras(),
        )

    def _body(self, request: Any) -> Any:
        return unwrapped(request)

    def _opening(self, call: GenerateCall, probe: bool) -> dict[str, Any] | None:
        # A probe that got a chunk before the engine answered would count as passed.
        return None if probe else handover_chunk(call)

    def _writer(
        self, call: GenerateCall, request: Any, context: Any, probe: bool
    ) -> PrefillChunkWriter:
        return PrefillChunkWriter(call)
