"""The worker's engine and generate handler in this process, on the engine's own loop.

Everything is real but Dynamo's context, of which the handler uses three methods.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sglang_worker.config.environment import prepare
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.server_args import build_server_args
from sglang_worker.engine import compat
from sglang_worker.engine.control import EngineControl
from sglang_worker.engine.death import Death
from sglang_worker.engine.launch import WorkerEngine, start_engine
from sglang_worker.engine.signals import SignalOwner
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.workers.generate_handler import GenerateHandler
from sglang_worker.workers.probes import probe_test

T = TypeVar("T")
PROBE_KEY = "_PROBE"
SETTLE_S = 20.0


class FakeContext:
    """A client that can hang up."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._name = f"context-{next(self._numbers)}"
        self._gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def id(self) -> str:
        return self._name

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        return self._gone

    def hang_up(self) -> None:
        if not self._gone.done():
            self._gone.set_result(True)


class Answer:
    """The chunks of one request, put together."""

    def __init__(self, chunks: list[dict[str, Any]]) -> None:
        self.chunks = chunks

    def tokens(self, index: int = 0) -> list[int]:
        return [
            token
            for chunk in self.chunks
            if (chunk.get("index") or 0) == index
            for token in chunk["token_ids"]
        ]

    def joined(self, field: str) -> list[Any]:
        return [entry for chunk in self.chunks for entry in chunk.get(field) or ()]

    @property
    def last(self) -> dict[str, Any]:
        return self.chunks[-1]

    @property
    def finish_reason(self) -> str | None:
        return self.last.get("finish_reason")

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.last["completion_usage"]
        return usage


class RequestHost:
    """One started engine with its handler; ``run`` drives its loop from synchronous tests."""

    def __init__(self, model: Path, *flags: str) -> None:
        prepare()
        self._quit_handler = signal.getsignal(signal.SIGQUIT)
        config = parse_worker_config(
            ["--model-path", str(model), "--log-level", "warning", *flags],
            {"DYN_DISCOVERY_BACKEND": "file", **os.environ},
        )
        self.engine: WorkerEngine = start_engine(config, build_server_args(config))
        self.loop: asyncio.AbstractEventLoop = self.engine.engine.loop
        # SGLang's own handlers would kill the test process when a scheduler fails.
        self.signals = SignalOwner(self.loop, lambda _: None, lambda: None)
        self.signals.capture()
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        self.engine.watch_deaths(self.loop, self._on_death)
        self.manager = self.engine.tokenizer_manager
        self.tokenizer = self.manager.tokenizer
        self.control = EngineControl(self.manager)
        self.gate = AdmissionGate()
        self.handler = GenerateHandler(
            self.manager,
            self.engine.limits,
            self.gate,
            probe_test(PROBE_KEY),
            loras=lambda: tuple(compat.loaded_loras(self.manager)),
            answer_probe=lambda: not self.control.is_paused,
        )

    def _on_death(self, death: Death) -> None:
        self.handler.fail_all_without_engine()

    def close(self) -> None:
        self.engine.shutdown()
        signal.signal(signal.SIGQUIT, self._quit_handler)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def prompt(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text)
        return ids

    def request(
        self, prompt: str | list[int] = "The worker", **sections: Mapping[str, Any]
    ) -> dict[str, Any]:
        """``request("text", stop_conditions={...})``, greedy unless told otherwise."""
        ids = self.prompt(prompt) if isinstance(prompt, str) else prompt
        return {
            "model": "m",
            "token_ids": ids,
            "sampling_options": {"temperature": 0.0},
            **sections,
        }

    async def stream(self, request: Mapping[str, Any]) -> Answer:
        context = FakeContext()
        return Answer([chunk async for chunk in self.handler.generate(request, context)])

    def ask(self, prompt: str | list[int] = "The worker", **sections: Mapping[str, Any]) -> Answer:
        return self.run(self.stream(self.request(prompt, **sections)))

    @property
    def held(self) -> int:
        """Request ids that SGLang still tracks."""
        return len(compat.request_states(self.manager))

    async def settled(self) -> None:
        """Wait until SGLang holds nothing and no request is in flight."""

        async def quiet() -> None:
            while self.held or self.gate.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

        await asyncio.wait_for(quiet(), SETTLE_S)
