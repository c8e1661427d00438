"""One worker process: the real runtime, a stub engine, and the handler under test.

``python benchmarks/relay_proof/worker.py ours|upstream|bare ENDPOINT``
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import uvloop
from dynamo.runtime import DistributedRuntime

from benchmarks.relay_proof.stub import StubEngine, StubManager


def ours() -> Callable[..., AsyncIterator[Any]]:
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
    handler = GenerateHandler(StubManager(), limits, AdmissionGate(), probe_test("_PROBE"))
    return pushing(handler.generate, Egress())


def upstream() -> Callable[..., AsyncIterator[Any]]:
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
    handler = DecodeWorkerHandler(StubEngine(StubManager()), config)
    return handler.generate


def bare() -> Callable[..., AsyncIterator[Any]]:
    """The stub's tokens with nothing between them and the runtime: the floor of both."""
    manager = StubManager()

    async def generate(request: Any, context: Any) -> AsyncIterator[Any]:
        count = request["stop_conditions"]["max_tokens"]
        async for output in manager.stream(context.id(), count):
            yield {"token_ids": output["output_ids"]}

    return generate


async def serve(kind: str, path: str) -> None:
    runtime = DistributedRuntime(
        asyncio.get_running_loop(), "file", "tcp", event_plane="zmq", response_plane="tcp"
    )
    handler = {"ours": ours, "upstream": upstream, "bare": bare}[kind]()
    gc.collect()
    gc.freeze()
    await runtime.endpoint(path).serve_endpoint(handler)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    uvloop.run(serve(sys.argv[1], sys.argv[2]))
