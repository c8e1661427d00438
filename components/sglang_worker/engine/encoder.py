"""Owns SGLang's vision encoder in an encode worker: no `sgl.Engine`, no child process.

The encoder computes on the loop it is called on. It gets a thread with a loop of its own, so that
the worker's loop, which answers probes and relays streams, stays free while an image is encoded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from sglang_worker.config.dump import dump_config
from sglang_worker.config.server_args import build_server_args
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import compat, compat_encoder
from sglang_worker.engine.compat_encoder import EncodedMedium
from sglang_worker.engine.death import Death
from sglang_worker.errors import ConfigError, EngineStartError, WorkerError
from sglang_worker.requests.ids import new_probe_id, new_request_id

Value = TypeVar("Value")
JOIN_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class EncoderThread:
    """A thread that runs an event loop until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, make: Callable[[], Value]) -> Value:
        """Run a function there and wait for it."""

        async def run() -> Value:
            return make()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Await a coroutine there from another loop; cancelling cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_TIMEOUT_S)


class EncoderEngine:
    """`engine.owned.OwnedEngine` of an encode worker."""

    # Nothing of it runs in another process.
    death: Death | None = None
    control: Any = None

    def __init__(self, thread: EncoderThread, encoder: Any, server_args: Any, took_s: float):
        self.started_in_s = took_s
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.server_args = compat.resolved(server_args)
        self.placeholders: Mapping[str, int] = compat_encoder.placeholders(encoder)
        self.refusals = compat_encoder.media_refusals(encoder, self.placeholders)
        self.context_length = int(encoder.model_config.context_len)
        self.model_source = str(encoder.model_config.model_path)
        self._thread = thread
        self._encoder = encoder
        self._keeps_results = bool(getattr(self.server_args, "enable_prefix_mm_cache", False))
        self._encoding: set[str] = set()
        self._stopped = False

    async def encode(
        self, kind: str, contents: Sequence[Any], *, probe: bool = False
    ) -> list[EncodedMedium]:
        """Raises InvalidRequest without a position, or `compat_encoder.EncodeFailed`."""
        request_id = new_request_id()
        rid = compat_encoder.probe_request_id(new_probe_id()) if probe else request_id
        if not probe:
            self._encoding.add(request_id)
        try:
            return await self._thread.run(
                compat_encoder.encode(
                    self._encoder, kind, contents, rid, keeps_results=self._keeps_results
                )
            )
        finally:
            self._encoding.discard(request_id)

    def begin(self) -> None:
        """The encoder waits for nobody."""

    def held_request_ids(self) -> list[str]:
        return list(self._encoding)

    def watch_deaths(
        self, loop: asyncio.AbstractEventLoop, on_death: Callable[[Death], None]
    ) -> None:
        """No process of it can die alone; a broken device shows in the health probe."""

    def report_failure(self) -> None:
        """No child reports to it."""

    def shutdown(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._thread.stop()


def start(config: WorkerConfig) -> EncoderEngine:
    """Load the encoder. Raises ConfigError for flags it cannot have, EngineStartError after."""
    compat.check_version()
    server_args = build_server_args(config)
    refuse_parallelism(compat.resolved(server_args))
    dump_config(config, server_args)
    began_s = time.monotonic()
    thread = EncoderThread()
    try:
        encoder = thread.call(lambda: compat_encoder.new_encoder(server_args))
    except WorkerError:
        thread.stop()
        raise
    except Exception as error:
        thread.stop()
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineStartError(f"the encoder failed to start: {reason}") from error
    engine = EncoderEngine(thread, encoder, server_args, time.monotonic() - began_s)
    if not engine.placeholders:
        engine.shutdown()
        raise EngineStartError(
            f"the model {engine.model_source} names no placeholder token for images in its "
            "configuration, so an encode worker cannot serve it"
        )
    return engine


def refuse_parallelism(args: Any) -> None:
    """The encoder runs in this process alone."""
    for name in ("tp_size", "dp_size", "pp_size", "nnodes"):
        size = int(getattr(args, name, 1) or 1)
        if size > 1:
            raise ConfigError(
                f"--{name.replace('_', '-')} {size}: an encode worker uses one device; start one "
                "worker per device instead"
            )
