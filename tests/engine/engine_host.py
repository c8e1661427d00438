"""A real SGLang engine in a process of its own.

All engines of a test run are forked from one server process that has imported SGLang once, so
each starts in seconds and leaves nothing behind in the test process.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.host import Host, answer_all

PRELOADED = ["sglang.srt.entrypoints.engine", "tests.engine.engine_host"]


class EngineHost(Host):
    """`call` reaches any method of `sgl.Engine`; `run` a module-level function given it."""

    def __init__(self, server_args: dict[str, Any], log: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        super().__init__(context, _serve, (server_args,), log, start_timeout_s=240)

    def call(self, method: str, **arguments: Any) -> Any:
        return self.ask(("call", method, arguments))

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.ask(("run", function, arguments))

    def generate(
        self, input_ids: list[int] | list[list[int]], max_new_tokens: int, **more: Any
    ) -> Any:
        """Greedy and never stopped early unless ``sampling_params`` in ``more`` says otherwise."""
        sampling = {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}
        sampling |= more.pop("sampling_params", {})
        return self.call("generate", input_ids=input_ids, sampling_params=sampling, **more)


def _serve(pipe: Any, server_args: dict[str, Any]) -> None:
    from sglang.srt.entrypoints.engine import Engine
    from sglang_worker.reference_platform import defaults
    from sglang_worker.reference_platform.start import engine_processes

    arguments = defaults.engine_defaults(server_args) | server_args
    with engine_processes(arguments.get("dp_size", 1)):
        engine = Engine(**arguments)
    try:
        pipe.send(("ok", None))
        answer_all(pipe, lambda message: _handle(engine, message))
    finally:
        engine.shutdown()
        # SGLang's threads and its event loop would hold an ordinary exit up for seconds.
        os._exit(0)


def _handle(engine: Any, message: Any) -> Any:
    kind, what, arguments = message
    if kind == "call":
        return getattr(engine, what)(**arguments)
    return what(engine, *arguments)
