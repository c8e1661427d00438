"""A worker around the real SGLang engine and the real lifecycle, without the Dynamo runtime.

Run as a process: ``python -m tests.engine.route_worker <model path> [worker flags …]``. It prints
one JSON line with the port when it serves. Discovery is a counter in memory; POST
``/engine/test/…`` routes exist for the tests: ``streams`` runs generations, ``discovery`` counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from sglang_worker.config import environment
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.platform import is_active
from sglang_worker.config.server_args import build_server_args
from sglang_worker.engine.control import EngineControl
from sglang_worker.engine.launch import WorkerEngine, start_engine
from sglang_worker.lifecycle.completion import CompletionCheck, CompletionProbes
from sglang_worker.lifecycle.controller import LifecycleController
from sglang_worker.lifecycle.core import CoreSettings, LifecycleCore
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.registration import RegistrationOwner
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.publisher import ListenerPublisher
from sglang_worker.system.routes import Call, Reply, Route, RouteTable
from sglang_worker.system.state import Phase, RouteSpec
from sglang_worker.system.wiring import EngineParts, build_route_table, engine_facts


class CountingDiscovery:
    def __init__(self) -> None:
        self.registered = 0
        self.withdrawn = 0

    async def register(self) -> None:
        self.registered += 1

    async def withdraw(self) -> None:
        self.withdrawn += 1


class Streams:
    """Generations that run beside the calls of a test."""

    def __init__(self, engine: WorkerEngine, gate: AdmissionGate) -> None:
        self._engine = engine
        self._gate = gate
        self._tasks: list[asyncio.Task[dict[str, Any]]] = []

    async def handle(self, call: Call) -> Reply:
        if "start" in call.body:
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._one(index, call.body["tokens"]))
                for index in range(call.body["start"])
            ]
            return Reply(200, {"started": len(self._tasks)})
        if call.body.get("wait"):
            results = await asyncio.gather(*self._tasks)
            return Reply(200, {"results": results})
        return Reply(200, {"running": sum(not task.done() for task in self._tasks)})

    async def _one(self, index: int, tokens: int) -> dict[str, Any]:
        ticket = self._gate.admit()
        chunks = 0
        last: dict[str, Any] = {}
        try:
            async for chunk in await self._engine.engine.async_generate(
                input_ids=[10 + index, 11, 12, 13],
                sampling_params={"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
                stream=True,
            ):
                chunks += 1
                last = chunk
        finally:
            ticket.release()
        return {"chunks": chunks, "finish": last["meta_info"]["finish_reason"]["type"]}


async def serve(config: Any, listener: SystemListener, engine: WorkerEngine) -> None:
    discovery = CountingDiscovery()
    gate = AdmissionGate()
    core = LifecycleCore(
        CoreSettings(worker_id="42", grace_s=0.2),
        gate,
        RegistrationOwner(discovery),
        CompletionCheck(gate, CompletionProbes(lambda: 0, lambda: len(engine.held_request_ids()))),
        ListenerPublisher(listener, lambda: {"in_flight": gate.in_flight}),
    )
    lifecycle = LifecycleController(core, EngineControl(engine.tokenizer_manager))
    table = await build_route_table(
        config.system,
        lifecycle,
        EngineParts(
            engine=engine.engine,
            tokenizer_manager=engine.tokenizer_manager,
            calls=EngineControl(engine.tokenizer_manager),
            facts=engine_facts(engine.server_args, engine.tokenizer_manager),
            runners=lambda: [{"runner": "target"}],
        ),
        drainable=True,
        guard=lifecycle.guard,
        model="test",
    )
    streams = Streams(engine, gate)

    async def count(_call: Call) -> Reply:
        return Reply(200, {"registered": discovery.registered, "withdrawn": discovery.withdrawn})

    with_tests = RouteTable(
        [
            *table.routes,
            Route(
                spec=RouteSpec(path="/engine/test/streams", methods=("POST",)),
                handler=streams.handle,
            ),
            Route(spec=RouteSpec(path="/engine/test/discovery", methods=("POST",)), handler=count),
        ],
        table.description,
    )
    await listener.attach(with_tests)
    await lifecycle.start()
    await listener.publish_acknowledged(phase=Phase.REGISTERED, started=True, healthy=True)
    print(json.dumps({"port": listener.address[1]}), flush=True)
    await asyncio.Event().wait()


def main(argv: list[str]) -> None:
    config = parse_worker_config(["--model-path", *argv], os.environ)
    environment.apply(config)
    listener = SystemListener(config.system)
    listener.start()
    engine = start_engine(
        config,
        build_server_args(config),
        prefer_fork=is_active(os.environ),
    )
    try:
        engine.engine.loop.run_until_complete(serve(config, listener, engine))
    finally:
        engine.shutdown()
        listener.close()


if __name__ == "__main__":
    main(sys.argv[1:])
