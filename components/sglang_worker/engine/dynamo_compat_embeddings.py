"""Embeddings from one process to another, by ``dynamo.common.multimodal`` (ai-dynamo 1.6.1).

``local`` writes a file that the receiver reads on the same machine; ``nixl-write`` and
``nixl-read`` move memory through NIXL. Everything here is used from one running event loop.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

LOCAL = "local"
# A receiver that took the rows has answered long before; this bounds the wait for one that died.
CONFIRMATION_TIMEOUT_S = 10.0
# Ring buffer that senders write into (nixl-write).
RECEIVE_BUFFER_BYTES = 2 << 30
_FILE_PREFIX, _FILE_SUFFIX = "encoder_cache.", ".safetensors"


class SentEmbeddings:
    """Rows that wait for their receiver. ``transfer`` is JSON for it."""

    def __init__(self, transfer: Mapping[str, Any], done: Any, mode: str) -> None:
        self.transfer = transfer
        self._done = done
        self._mode = mode

    async def settle(self) -> None:
        """After the receiver answered: let the transfer finish, and leave nothing behind."""
        if self._mode == LOCAL:
            Path(self.transfer["serialized_request"]).unlink(missing_ok=True)
            return
        try:
            async with asyncio.timeout(CONFIRMATION_TIMEOUT_S):
                await self._done
        except asyncio.TimeoutError:
            return


class EmbeddingSender:
    def __init__(self, mode: str) -> None:
        from dynamo.common.constants import EmbeddingTransferMode
        from dynamo.common.multimodal import EMBEDDING_SENDER_FACTORIES

        self._mode = mode
        self._sender = EMBEDDING_SENDER_FACTORIES[EmbeddingTransferMode(mode)]()

    async def send(self, rows: Any) -> SentEmbeddings:
        """``rows``: a tensor (rows, width), copied if it must outlive the call."""
        request, done = await self._sender.send_embeddings(rows)
        return SentEmbeddings(request.model_dump(), done, self._mode)


class EmbeddingReceiver:
    def __init__(self, mode: str) -> None:
        from dynamo.common.constants import EmbeddingTransferMode
        from dynamo.common.multimodal import (
            EMBEDDING_RECEIVER_FACTORIES,
            NixlWriteEmbeddingReceiver,
        )

        self._mode = EmbeddingTransferMode(mode)
        if self._mode is EmbeddingTransferMode.NIXL_WRITE:
            self._receiver: Any = NixlWriteEmbeddingReceiver(RECEIVE_BUFFER_BYTES)
        else:
            self._receiver = EMBEDDING_RECEIVER_FACTORIES[self._mode]()

    async def receive(self, transfer: Mapping[str, Any]) -> tuple[Any, Callable[[], None]]:
        """The rows, and what gives their memory back; calling it again does nothing.

        Raises ValueError when ``transfer`` cannot be one of ours, OSError when the rows are gone.
        """
        from dynamo.common.multimodal import TransferRequest

        request = TransferRequest.model_validate(dict(transfer))
        if self._mode.value == LOCAL:
            _require_own_file(request.serialized_request)
        tensor_id, rows = await self._receiver.receive_embeddings(request)

        return rows, Once(partial(self._give_back, tensor_id))

    def _give_back(self, tensor_id: Any) -> None:
        try:
            self._receiver.release_tensor(tensor_id)
        except FileNotFoundError:
            # The sender has cleaned up already.
            return


class Once:
    """Calls a function the first time it is called itself."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


def _require_own_file(path: Any) -> None:
    """Only what a sender on this machine wrote is opened, and later deleted."""
    folder, name = os.path.split(str(path))
    if (
        os.path.realpath(folder) != os.path.realpath(tempfile.gettempdir())
        or not name.startswith(_FILE_PREFIX)
        or not name.endswith(_FILE_SUFFIX)
    ):
        raise ValueError("the transfer names no file of an encode worker on this machine")
