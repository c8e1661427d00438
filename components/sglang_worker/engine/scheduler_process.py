"""The first code of ours in a scheduler process: guards and phases, then the runners' entry.

SGLang starts it by name, forked or spawned, directly or through the data-parallel controller, with
the arguments of its own entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_worker.engine import compat_outputs, compat_stream_hooks, grammar_guard, heartbeat
from sglang_worker.runners.folder import VARIABLE as REPORT_FOLDER
from sglang_worker.runners.process import identity_of
from sglang_worker.runners.process import run_scheduler_process as run_with_reports
from sglang_worker.system import phases
from sglang_worker.system.state import Phase

# Steps of SGLang's ModelRunner that take long, and what an operator sees meanwhile.
_STEPS = {
    "init_attention_backends": Phase.COMPILING,
    "init_cuda_graphs": Phase.CAPTURING,
}


def run_scheduler_process(*arguments: Any) -> None:
    """Run SGLang's scheduler until it ends."""
    grammar_guard.install()
    compat_outputs.install()
    report_steps(os.environ.get(phases.VARIABLE))
    compat_stream_hooks.install(os.environ.get(REPORT_FOLDER))
    turn_with_the_loop(os.environ.get(REPORT_FOLDER), *arguments)
    run_with_reports(*arguments)


def turn_with_the_loop(folder: str | None, server_args: Any, *arguments: Any) -> None:
    """Let the worker see that this scheduler turns; arguments are those of SGLang's entry."""
    if not folder or not Path(folder).is_dir():
        return
    from sglang.srt.managers.scheduler import Scheduler

    _, _, tp_rank, pp_rank, dp_rank, *_ = arguments
    identity = identity_of(server_args, dp_rank, pp_rank, tp_rank)
    heartbeat.install(Scheduler, Path(folder), identity.dp, identity.rank)


def report_steps(socket_name: str | None) -> None:
    """Tell the listener's child when a long step of loading begins; nothing without a listener."""
    if not socket_name:
        return
    from sglang.srt.model_executor.model_runner import ModelRunner

    for name, phase in _STEPS.items():
        step = getattr(ModelRunner, name, None)
        if callable(step):
            setattr(ModelRunner, name, _announced(step, socket_name, phase))


def _announced(step: Callable[..., Any], socket_name: str, phase: Phase) -> Callable[..., Any]:
    def announced(*arguments: Any, **keywords: Any) -> Any:
        phases.report_phase(socket_name, phase)
        return step(*arguments, **keywords)

    return announced
