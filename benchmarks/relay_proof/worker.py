"""One worker process: the real runtime, a stub engine, and the handler under test.

``python -m benchmarks.relay_proof.worker ours|upstream|bare|bare-push ENDPOINT PERIOD_MS``
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import uvloop
from dynamo.runtime import DistributedRuntime

from benchmarks.relay_proof.stub import StubEngine, StubManager

Handler = Callable[..., AsyncIterator[Any]]


def ours(manager: StubManager) -> Handler:
    from sglang_worker.engine import compat
    from sglang_worker.engine.dynamo_compat import pushing
    from sglang_worker.engine.egress import Egress
    from sglang_worker.lifecycle.gate import AdmissionGate
    from sglang_worker.requests.limits import EngineLimits
    from sglang_worker.workers.generate_handler import GenerateHandler
    from sglang_worker.workers.probes import probe_test

    limits = EngineLimits(
        vocab_size=32000, context_length=1 << 20, request_fields=compat.request_fields()
    )
    handler = GenerateHandler(manager, limits, AdmissionGate(), probe_test("_PROBE"))
    return pushing(handler.generate, Egress())


def upstream(manager: StubManager) -> Handler:
    from dynamo.common.constants import DisaggregationMode
    from dynamo.sglang.request_handlers.llm.decode_handler import DecodeWorkerHandler

    config = SimpleNamespace(
        server_args=SimpleNamespace(
            skip_tokenizer_init=False,
            enable_trace=False,
            enable_return_routed_experts=False,
            reasoning_parser=None,
            pp_size=1,
            dp_size=1,
        ),
        dynamo_args=SimpleNamespace(use_sglang_tokenizer=False, enable_rl=False),
        serving_mode=DisaggregationMode.AGGREGATED,
    )
    handler = DecodeWorkerHandler(StubEngine(manager), config)
    return handler.generate


def bare(manager: StubManager) -> Handler:
    """The stub's tokens with nothing between them and the runtime, which pulls them."""

    async def generate(request: Any, context: Any) -> AsyncIterator[Any]:
        count = request["stop_conditions"]["max_tokens"]
        async for output in manager.stream(context.id(), count):
            yield {"token_ids": output["output_ids"]}

    return generate


def bare_push(manager: StubManager) -> Handler:
    """The same pushed from the event loop itself: the floor of any relay. A reader that stalls
    would stop the whole process."""

    async def generate(
        request: Any, context: Any, response_sender: Any = None
    ) -> AsyncIterator[Any]:
        count = request["stop_conditions"]["max_tokens"]
        async for output in manager.stream(context.id(), count):
            response_sender.send({"token_ids": output["output_ids"]})
        response_sender.close()
        return
        yield

    return generate


HANDLERS = {"ours": ours, "upstream": upstream, "bare": bare, "bare-push": bare_push}


async def serve(kind: str, path: str, period_ms: float) -> None:
    runtime = DistributedRuntime(
        asyncio.get_running_loop(), "file", "tcp", event_plane="zmq", response_plane="tcp"
    )
    handler = HANDLERS[kind](StubManager(period_ms / 1000))
    gc.collect()
    gc.freeze()
    await runtime.endpoint(path).serve_endpoint(handler)


def end_with_parent() -> None:
    """The parent holds the other end of stdin."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    uvloop.run(serve(sys.argv[1], sys.argv[2], float(sys.argv[3])))
