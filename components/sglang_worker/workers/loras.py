"""LoRA adapters: loaded into SGLang and advertised as models of their own, or neither.

An adapter is requested by its name as the model. Loading puts it into the engine first and then
into discovery; unloading goes the other way round, so that no frontend ever routes to a name that
the engine does not know.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from sglang_worker.engine import dynamo_compat
from sglang_worker.engine.control import EngineControl
from sglang_worker.system.loras import LoraRefused

logger = logging.getLogger(__name__)

BAD_REQUEST = 400
NOT_FOUND = 404
FAILED = 500
UNAVAILABLE = 503

# Publishes or withdraws the model card of one adapter.
Advertise = Callable[[str], Awaitable[None]]


class LoraAdapters:
    """`system.loras.LoraCalls` for one engine. Calls for one name are serialised."""

    def __init__(
        self,
        control: EngineControl,
        publish: Advertise,
        withdraw: Advertise,
        *,
        enabled: bool,
        at_start: Mapping[str, str] | None = None,
    ) -> None:
        self._control = control
        self._publish = publish
        self._withdraw = withdraw
        self._enabled = enabled
        # Adapter name -> local path; the names are what requests may ask for.
        self._paths: dict[str, str] = dict(at_start or {})
        self._locks: dict[str, asyncio.Lock] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._paths

    def names(self) -> frozenset[str]:
        return frozenset(self._paths)

    def loaded(self) -> dict[str, int]:
        return {name: dynamo_compat.lora_id(name) for name in self._paths}

    async def publish_loaded(self) -> None:
        """Advertise the adapters that the engine was started with."""
        for name in self._paths:
            await self._publish(name)

    async def load(self, name: str, uri: str) -> tuple[int, str]:
        if not self._enabled:
            raise LoraRefused(BAD_REQUEST, "this worker runs without --enable-lora")
        async with self._lock(name):
            if name in self._paths:
                return dynamo_compat.lora_id(name), f"LoRA adapter '{name}' is already loaded"
            path = await local_path(uri)
            result = await self._control.load_lora(name, path)
            if not result.success:
                raise LoraRefused(BAD_REQUEST, f"SGLang refused '{name}': {result.error_message}")
            try:
                await self._publish(name)
            except Exception as error:
                await self._control.unload_lora(name)
                raise LoraRefused(
                    UNAVAILABLE, f"'{name}' could not be registered: {error}"
                ) from error
            self._paths[name] = path
        return dynamo_compat.lora_id(name), f"LoRA adapter '{name}' loaded successfully"

    async def unload(self, name: str) -> int:
        async with self._lock(name):
            if name not in self._paths:
                known = ", ".join(sorted(self._paths)) or "none"
                raise LoraRefused(NOT_FOUND, f"LoRA adapter '{name}' not found; loaded: {known}")
            try:
                await self._withdraw(name)
            except Exception as error:
                raise LoraRefused(
                    UNAVAILABLE, f"'{name}' could not be withdrawn: {error}"
                ) from error
            path = self._paths.pop(name)
            result = await self._control.unload_lora(name)
            if not result.success:
                self._paths[name] = path
                await self._publish(name)
                raise LoraRefused(FAILED, f"SGLang kept '{name}': {result.error_message}")
        return dynamo_compat.lora_id(name)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    # --- the runtime's own endpoints -------------------------------------------------------------

    async def serve_load(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """The ``load_lora`` endpoint: ``{"lora_name": …, "source": {"uri": …}}``."""
        fields = request if isinstance(request, Mapping) else {}
        source = fields.get("source")
        name = fields.get("lora_name")
        uri = source.get("uri") if isinstance(source, Mapping) else None
        if not isinstance(name, str) or not name or not isinstance(uri, str) or not uri:
            yield _error("'lora_name' and 'source.uri' are required")
            return
        try:
            lora_id, message = await self.load(name, uri)
        except LoraRefused as refused:
            yield _error(str(refused), name)
            return
        yield {"status": "success", "message": message, "lora_name": name, "lora_id": lora_id}

    async def serve_unload(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """The ``unload_lora`` endpoint: ``{"lora_name": …}``."""
        name = request.get("lora_name") if isinstance(request, Mapping) else None
        if not isinstance(name, str) or not name:
            yield _error("'lora_name' is required")
            return
        try:
            lora_id = await self.unload(name)
        except LoraRefused as refused:
            yield _error(str(refused), name)
            return
        message = f"LoRA adapter '{name}' unloaded successfully"
        yield {"status": "success", "message": message, "lora_name": name, "lora_id": lora_id}

    async def serve_list(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        loaded = self.loaded()
        yield {"status": "success", "loras": loaded, "count": len(loaded)}


def _error(message: str, name: str | None = None) -> dict[str, Any]:
    answer = {"status": "error", "message": message}
    return answer if name is None else {**answer, "lora_name": name}


async def local_path(uri: str) -> str:
    """A folder on this machine: a plain path, ``file://``, or what Dynamo's manager downloads.

    Raises LoraRefused.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path) if parts.scheme else uri
        if not os.path.isdir(path):
            raise LoraRefused(BAD_REQUEST, f"source.uri: there is no folder {path}")
        return path
    fetched, error = await dynamo_compat.download_lora(uri)
    if fetched is None:
        raise LoraRefused(BAD_REQUEST, f"source.uri: {error}")
    return fetched
