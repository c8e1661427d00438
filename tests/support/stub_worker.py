"""A worker on the real Dynamo runtime without an engine, for tests of routing, drain and clients.

``python -m tests.support.stub_worker --model-path DIR`` registers a model and answers with the
letters a, b, c …, one token at a time; the flags choose how many, how fast, and how it fails.
Tests with a handler of their own call :func:`serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.llm import exceptions as dynamo_exceptions
from dynamo.runtime import DistributedRuntime

from tests.support.tiny_model import token_ids

Handler = Callable[[dict[str, Any], Any], AsyncIterator[dict[str, Any]]]
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="stub_worker")
    flags.add_argument("--model-path", required=True)
    flags.add_argument("--model-name", default="stub")
    flags.add_argument("--endpoint", default="dynamo.backend.generate")
    flags.add_argument("--delay-ms", type=float, default=0.0, help="pause before every token")
    flags.add_argument("--fail", default=None, help="name in dynamo.llm.exceptions to raise")
    flags.add_argument("--fail-after", type=int, default=0, help="tokens before --fail")
    return flags


def letters(options: argparse.Namespace) -> Handler:
    """The default handler: ``max_tokens`` letters (default 5), continuing a migrated prompt."""

    async def generate(request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        wanted = (request.get("stop_conditions") or {}).get("max_tokens")
        count = 5 if wanted is None else int(wanted)
        for index in range(count):
            if options.fail is not None and index == options.fail_after:
                raise getattr(dynamo_exceptions, options.fail)(f"stub failed at token {index}")
            await asyncio.sleep(options.delay_ms / 1000)
            if context.is_stopped():
                print(f"stub cancelled after {index}", flush=True)
                return
            chunk: dict[str, Any] = {"token_ids": token_ids(ALPHABET[index % len(ALPHABET)])}
            if index == count - 1:
                chunk["finish_reason"] = "length"
            yield chunk
        if count == 0:
            yield {"token_ids": [], "finish_reason": "length"}

    return generate


async def serve(
    options: argparse.Namespace,
    handler: Handler,
    *,
    on_endpoint: Callable[[Any, Any], Awaitable[None]] | None = None,
) -> None:
    """Registers the model and serves ``handler`` until SIGTERM or SIGINT.

    ``on_endpoint(runtime, endpoint)`` runs as a task beside it, for tests that steer registration.
    """
    loop = asyncio.get_running_loop()
    runtime = DistributedRuntime(loop, "file", "tcp", event_plane="zmq", response_plane="tcp")
    endpoint = runtime.endpoint(options.endpoint)
    runtime.set_health_status(True)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.shutdown)
    serving = asyncio.ensure_future(endpoint.serve_endpoint(handler, graceful_shutdown=True))
    settings = ModelRuntimeConfig()
    await register_model(
        ModelInput.Tokens,
        ModelType.Chat | ModelType.Completions,
        endpoint,
        options.model_path,
        options.model_name,
        worker_type=WorkerType.Aggregated,
        runtime_config=settings,
        ignore_weights=True,
    )
    print(f"stub ready {endpoint.connection_id()} pid {os.getpid()}", flush=True)
    steering = asyncio.ensure_future(on_endpoint(runtime, endpoint)) if on_endpoint else None
    try:
        await serving
    finally:
        if steering is not None:
            steering.cancel()


def main(argv: Sequence[str] | None = None) -> None:
    options = parser().parse_args(argv)
    asyncio.run(serve(options, letters(options)))


if __name__ == "__main__":
    main()
