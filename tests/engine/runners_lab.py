"""An engine whose schedulers run the worker's own entry, plus what a test wants inside them.

`RunnerLab` starts the engine as the worker does and answers questions about its report. A test
may name a *twist*: a function of tests.engine.runners_twists that changes something real inside
the scheduler processes, to see whether the checks notice.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from sglang_worker.engine.children import kill_trees
from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import process, records, startup
from sglang_worker.runners.later import RunnerWatch
from sglang_worker.runners.report import to_builtins

from tests.engine.engine_host import PRELOADED
from tests.engine.host import Host, answer_all

TWIST_VARIABLE = "RUNNERS_LAB_TWIST"
OUTPUT_VARIABLE = "RUNNERS_LAB_OUTPUT"
_TWISTS = "tests.engine.runners_twists"


def run_scheduler_process(*args: Any) -> None:
    """The schedulers' entry: the twist first, then the worker's own."""
    twist = os.environ.get(TWIST_VARIABLE)
    if twist:
        getattr(importlib.import_module(_TWISTS), twist)(*args[3:6])
    process.run_scheduler_process(*args)


def run_plain_scheduler_process(*args: Any) -> None:
    """SGLang's entry alone: nobody reports."""
    from sglang.srt.managers.scheduler import run_scheduler_process as run_scheduler

    run_scheduler(*args)


class Started(msgspec.Struct):
    """What the engine's process keeps between questions."""

    engine: Any
    folder: Any
    collected: Any
    watch: Any = None


class RunnerLab(Host):
    """A started engine; `reports`, `refusal`, `ask_state` and `run` look at it from outside."""

    def __init__(
        self,
        server_args: dict[str, Any],
        log: Path,
        *,
        twist: str = "",
        plain_entry: bool = False,
        start_method: str = "",
        environ: dict[str, str] | None = None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, "tests.engine.runners_lab"])
        variables = {TWIST_VARIABLE: twist, OUTPUT_VARIABLE: str(log.with_suffix(".json"))}
        variables |= environ or {}
        options = (server_args, variables, plain_entry, start_method)
        self.output = log.with_suffix(".json")
        self.log = log
        super().__init__(context, _serve, options, log, start_timeout_s=240)

    def reports(self, *, strict: bool = True) -> list[dict[str, Any]]:
        """The verified reports; an AssertionError carries StartupCheckError's sentence."""
        built: list[dict[str, Any]] = self.ask(("verify", strict))
        return built

    def refusal(self) -> str | None:
        """Why strict verification refuses to start, or None."""
        sentence: str | None = self.ask(("refusal", None))
        return sentence

    def failed_start(self) -> str | None:
        """Why the engine itself did not come up, in the words of the hooks; None when it did."""
        sentence: str | None = self.ask(("failed_start", None))
        return sentence

    def server_info(self) -> dict[str, Any]:
        info: dict[str, Any] = self.ask(("server_info", None))
        return info

    def generate(self, tokens: int, new_tokens: int = 4) -> list[int]:
        found: list[int] = self.ask(("generate", (tokens, new_tokens)))
        return found

    def later_changes(self) -> tuple[list[str], bool]:
        """Sentences of what changed since startup, and whether the worker is still healthy."""
        changes, healthy = self.ask(("later", None))
        return changes, healthy

    def ranks_in_folder(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = self.ask(("records", None))
        return found


def _serve(
    pipe: Any,
    server_args: dict[str, Any],
    variables: dict[str, str],
    plain_entry: bool,
    start_method: str,
) -> None:
    os.environ.update(variables)
    started, why = _start(server_args, plain_entry, start_method)
    pipe.send(("ok", None))
    try:
        answer_all(pipe, lambda message: _answer(started, why, *message))
    finally:
        if started.engine is not None:
            started.engine.shutdown()
        started.folder.remove()


def _start(
    server_args: dict[str, Any], plain_entry: bool, start_method: str
) -> tuple[Started, str | None]:
    from sglang.srt.entrypoints.engine import Engine
    from sglang_worker.reference_platform import defaults, start

    entry = run_plain_scheduler_process if plain_entry else run_scheduler_process

    class Lab(Engine):  # type: ignore[misc]
        run_scheduler_process_func = staticmethod(entry)

    folder = startup.prepare(os.environ, strict=server_args.pop("strict", True))
    arguments = defaults.engine_defaults(server_args) | server_args
    if start_method:
        start.choose_start_method = lambda *_: start_method  # type: ignore[assignment]
    try:
        with start.engine_processes(arguments.get("dp_size", 1)):
            engine = Lab(custom_sigquit_handler=_give_up, **arguments)
    except Exception as error:
        # SGLang leaves the other children of a failed start running.
        kill_trees([child.pid for child in multiprocessing.active_children() if child.pid])
        return Started(None, folder, None), startup.reason_of_death(folder) or repr(error)
    return Started(engine, folder, startup.collect(engine.server_args, folder)), None


def _give_up(*_: Any) -> None:
    raise ChildProcessError("a scheduler reported a fatal error")


def _answer(started: Started, why: str | None, question: str, detail: Any) -> Any:
    if question == "failed_start":
        return why
    assert started.engine is not None, why
    return _QUESTIONS[question](started, detail)


def _verify(started: Started, strict: bool) -> list[dict[str, Any]]:
    reports = startup.verify(started.collected, strict=strict)
    startup.publish(started.engine, reports)
    started.watch = RunnerWatch(started.collected.records, reports, strict=strict)
    return to_builtins(reports)


def _refusal(started: Started, _: Any) -> str | None:
    try:
        startup.verify(started.collected, strict=True)
    except StartupCheckError as error:
        return str(error)
    return None


def _server_info(started: Started, _: Any) -> Any:
    info = started.engine.get_server_info()
    return {name: info[name] for name in info if "linear_attn" in name} | {
        "internal_states": [
            {name: state[name] for name in state if "linear_attn" in name}
            for state in info["internal_states"]
        ]
    }


def _generate(started: Started, sizes: tuple[int, int]) -> Any:
    tokens, new_tokens = sizes
    answer = started.engine.generate(
        input_ids=[3 + i % 200 for i in range(tokens)],
        sampling_params={"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True},
    )
    return answer["output_ids"]


def _later(started: Started, _: Any) -> tuple[list[str], bool]:
    watch = started.watch or RunnerWatch(started.collected.records, (), strict=True)
    changes = watch.note(started.engine.get_server_info()["internal_states"])
    return [change.sentence for change in changes], watch.healthy


def _records(started: Started, _: Any) -> dict[int, Any]:
    return {
        rank: msgspec.json.decode(records.encode(record))
        for rank, record in started.folder.read().items()
    }


_QUESTIONS: dict[str, Callable[[Started, Any], Any]] = {
    "verify": _verify,
    "refusal": _refusal,
    "server_info": _server_info,
    "generate": _generate,
    "later": _later,
    "records": _records,
}
