"""A worker without an engine on the real runtime, with the real lifecycle and system listener.

``python -m tests.unit.lifecycle.stub_worker --model-path DIR``. The prompt's answer is the letters
a, b, c …; ``max_tokens`` says how many, ``--delay-ms`` how fast, ``--wide`` how many tokens a
chunk carries. ``DYN_SYSTEM_PORT`` is the listener's port, as for the real worker.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
import uvloop
from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from sglang_worker.config.worker_config import (
    EndpointAddress,
    LifecycleSettings,
    RuntimeSettings,
    SystemSettings,
)
from sglang_worker.engine import dynamo_compat
from sglang_worker.errors import WorkerError
from sglang_worker.lifecycle.gate import AdmissionGate, LateRequest
from sglang_worker.lifecycle.states import Answer
from sglang_worker.lifecycle.wiring import Parts, StopSteps, build
from sglang_worker.system.app import EngineRequest, EngineResponse
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.publisher import ListenerPublisher
from sglang_worker.system.state import Access, Catalog, Phase, RouteSpec

from tests.support.ports import free_port
from tests.support.tiny_model import token_ids

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class Requests:
    """What runs, and how it is failed."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()
        self.held = 0

    def fail_all(self) -> None:
        self.failed.set()

    def fail_all_without_engine(self) -> None:
        self.failed.set()


class StubEngine:
    """Pauses for real: a paused stub holds its generators."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.running.set()

    async def pause(self, mode: str) -> Any:
        self.running.clear()

    async def continue_(self, body: Mapping[str, Any]) -> Any:
        self.running.set()

    async def release_memory(self, tags: list[str]) -> Any:
        return None

    async def resume_memory(self, tags: list[str]) -> Any:
        return None


class Stub:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.gate = AdmissionGate()
        self.requests = Requests()
        self.engine = StubEngine()

    async def generate(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        try:
            ticket = self.gate.admit()
        except LateRequest as late:
            raise dynamo_compat.worker_unavailable(str(late)) from None
        self.requests.held += 1
        try:
            async for chunk in self.tokens(request, context):
                yield chunk
        finally:
            self.requests.held -= 1
            ticket.release()

    async def tokens(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        count = (request.get("stop_conditions") or {}).get("max_tokens") or 0
        done = len(request["token_ids"])
        for index in range(count):
            await self.engine.running.wait()
            await asyncio.sleep(self.options.delay_ms / 1000)
            if self.requests.failed.is_set():
                raise dynamo_compat.engine_shutdown("the stub fails what runs")
            if context.is_stopped():
                return
            letter = ALPHABET[(done + index) % 26]
            chunk: dict[str, Any] = {"token_ids": token_ids(letter) * self.options.wide}
            if index == count - 1:
                chunk["finish_reason"] = "length"
                print("generated everything", flush=True)
            yield chunk
        if not count:
            yield {"token_ids": [], "finish_reason": "length"}


class App:
    """Drain, resume, pause and continue over the real listener; a route that kills the engine."""

    def __init__(self, lifecycle: Any, publish_alias: Callable[[str], Awaitable[None]]) -> None:
        self.lifecycle = lifecycle
        self.publish_alias = publish_alias
        controller = lifecycle.controller
        self.calls = {
            "/engine/drain": lambda: controller.drain(),
            "/engine/resume": lambda: controller.resume(),
            "/engine/pause": lambda: controller.pause({"mode": "in_place"}),
            "/engine/continue": lambda: controller.continue_({}),
            "/engine/die": self.die,
            "/engine/close": self.close,
            "/engine/alias": self.alias,
        }

    async def die(self) -> Answer:
        self.lifecycle.on_death("the stub's engine")
        return Answer(200, {})

    async def alias(self) -> Answer:
        """Advertise a LoRA adapter, as loading one does."""
        await self.publish_alias("late-alias")
        return Answer(200, {})

    async def close(self) -> Answer:
        """Close admission while still registered, as if the routing had not converged yet."""
        self.lifecycle.gate.close()
        return Answer(200, {})

    def catalog(self) -> Catalog:
        routes = [RouteSpec(path=path, methods=("POST",)) for path in self.calls]
        routes.append(RouteSpec(path="/engine/status", methods=("GET",), access=Access.OPEN))
        return Catalog(routes=tuple(routes))

    def refused(self, method: str, path: str, remote: str, status: int) -> None:
        return None

    async def handle(self, request: EngineRequest) -> EngineResponse:
        answer = await self.calls[request.path]()
        headers = {"Content-Type": "application/json"}
        return EngineResponse(
            status=answer.status, body=msgspec.json.encode(answer.body), headers=headers
        )


def start_listener() -> tuple[SystemListener | None, int]:
    """The listener on the public port, the runtime's own server on another one."""
    public = int(os.environ.get("DYN_SYSTEM_PORT") or -1)
    if public < 0:
        return None, -1
    listener = SystemListener(SystemSettings(host="127.0.0.1", port=public))
    listener.start()
    metadata_port = free_port()
    os.environ["DYN_SYSTEM_PORT"] = str(metadata_port)
    return listener, metadata_port


async def run(options: argparse.Namespace, listener: SystemListener | None, port: int) -> int:
    loop = asyncio.get_running_loop()
    runtime = dynamo_compat.create_runtime(
        RuntimeSettings(discovery_backend="file", event_plane="zmq"), loop
    )
    served = dynamo_compat.ServedEndpoint(runtime, EndpointAddress("dynamo", "backend", "generate"))
    runtime.set_health_status(True)
    stub = Stub(options)

    async def deferred(signum: int) -> None:
        print("deferred handlers", signum, flush=True)

    async def ended() -> None:
        assert served.task is not None
        await served.task

    grace_s = float(os.environ.get("DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS", "5"))
    publisher = {"publisher": ListenerPublisher(listener)} if listener else {}
    lifecycle = build(
        Parts(
            settings=LifecycleSettings(
                routing_grace_s=grace_s, shutdown_timeout_s=options.shutdown_timeout
            ),
            worker_id=served.worker_id,
            response_plane="tcp",
            discovery=served,
            listed=lambda: served.listed,
            engine=stub.engine,
            held_requests=lambda: stub.requests.held,
            metrics_address=(lambda: ("127.0.0.1", port)) if port > 0 else None,
            requests=stub.requests,
            nudge=lambda: served.worker_id,
            stop_steps=StopSteps(
                deferred_handlers=deferred,
                runtime_shutdown=threading.Event().wait if options.hang else runtime.shutdown,
                serving_ended=ended,
                engine_shutdown=lambda: None,
            ),
            **publisher,
        ),
        stub.gate,
    )
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, lifecycle.on_signal, signum)

    async def publish(**alias: Any) -> None:
        await register_model(
            ModelInput.Tokens,
            ModelType.Chat | ModelType.Completions,
            served.endpoint,
            options.model_path,
            options.model_name,
            worker_type=WorkerType.Aggregated,
            runtime_config=ModelRuntimeConfig(),
            ignore_weights=True,
            **alias,
        )

    async def publish_alias(name: str) -> None:
        await publish(lora_name=name, base_model_path=options.model_path)

    if listener is not None:
        listener.show_details(lifecycle.controller.details)
        await listener.attach(App(lifecycle, publish_alias))
        listener.set_runtime_address("127.0.0.1", port)
    served.serve(stub.generate, labels=[("model", options.model_name)])
    await served.implicit_registration()
    await publish()
    await publish_alias("alias")
    await lifecycle.start()
    if listener is not None:
        listener.publish(phase=Phase.REGISTERED, started=True, healthy=True)
    print(f"stub ready {served.worker_id} pid {os.getpid()}", flush=True)
    try:
        return int(await lifecycle.until_stopped())
    finally:
        runtime.shutdown()
        if listener is not None:
            listener.close()


def main() -> int:
    flags = argparse.ArgumentParser(prog="stub_worker")
    flags.add_argument("--model-path", required=True)
    flags.add_argument("--model-name", default="stub")
    flags.add_argument("--delay-ms", type=float, default=0.0)
    flags.add_argument("--wide", type=int, default=1)
    flags.add_argument("--shutdown-timeout", type=float, default=20.0)
    flags.add_argument("--hang", action="store_true", help="block the loop for ever when stopping")
    options = flags.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    listener, port = start_listener()
    try:
        return uvloop.run(run(options, listener, port))
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)


if __name__ == "__main__":
    raise SystemExit(main())
