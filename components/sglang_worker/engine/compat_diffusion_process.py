"""The first code of ours in a process of SGLang's generator: a watched bar and missing kernels.

Read in SGLang 0.5.23 ``sglang/multimodal_gen``: ``worker_bootstrap.bootstrap_scheduler_process``
initialises the platform, applies the hooks of the diffusion ``HookRegistry`` and runs a rank. The
hooks are registered here, in our processes alone. The registry only logs a hook that it cannot
apply: a watched bar announces its rank on the board, so the worker can tell.
"""

from __future__ import annotations

import json
import logging
import logging.config
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_worker.engine import compat_rope
from sglang_worker.engine.compat_diffusion import CHATTY
from sglang_worker.engine.diffusion_steps import (
    StepWatch,
    request_number,
    watch_updates,
    watched_steps,
)
from sglang_worker.engine.step_board import StepBoard

BAR = "sglang.multimodal_gen.runtime.pipelines_core.stages.base.PipelineStage.progress_bar"
RUN = "sglang.multimodal_gen.runtime.managers.gpu_worker.run_scheduler_process"
SERVE = "sglang.multimodal_gen.runtime.managers.scheduler.Scheduler.event_loop"
LOGS = "sglang.multimodal_gen.runtime.utils.logging_utils.configure_logger"
# Fused in sgl-kernel's CPU build, which the CPU platform does without: SGLang's own PyTorch
# versions stand in.
SCALE_SHIFT = "sglang.kernels.ops.diffusion.modulate.scale_shift_triton.fuse_scale_shift_kernel"
FUSED_NORMS = (
    "sglang.multimodal_gen.runtime.layers.layernorm._NormScaleShift.forward_cpu",
    "sglang.multimodal_gen.runtime.layers.layernorm._ScaleResidualNormScaleShift.forward_cpu",
)

logger = logging.getLogger(__name__)


def run(board_path: str, ranks: int, plain_kernels: bool, quiet: bool, spec: Any) -> None:
    """Run one rank until the generator stops; ``spec`` is SGLang's ``SchedulerProcessSpec``.

    ``quiet``: once the model is loaded only SGLang's warnings are logged, which otherwise writes
    some thirty lines for every request.
    """
    from sglang.multimodal_gen.runtime.managers.worker_bootstrap import (
        bootstrap_scheduler_process,
    )

    hooks = _hooks(StepBoard(Path(board_path), ranks), int(spec.rank), plain_kernels, quiet)
    _register(hooks)
    bootstrap_scheduler_process(spec)


def run_unwatched(spec: Any) -> None:
    """Run one rank with nothing of the worker but kernels that can be built: for comparisons."""
    from sglang.multimodal_gen.runtime.managers.worker_bootstrap import (
        bootstrap_scheduler_process,
    )

    def guard(*_: Any, **__: Any) -> None:
        compat_rope.guard_first_call()

    _register([(RUN, "BEFORE", guard)])
    bootstrap_scheduler_process(spec)


def _hooks(
    board: StepBoard, rank: int, plain_kernels: bool, quiet: bool
) -> list[tuple[str, str, Callable[..., Any]]]:
    """Target, kind in SGLang's ``HookType``, and function."""
    hooks = [
        (BAR, "AROUND", _bar_hook(board, rank)),
        (RUN, "AROUND", _announcing(board, rank)),
        (LOGS, "AFTER", _json_logs),
    ]
    if quiet:
        hooks.append((SERVE, "BEFORE", _hush))
    if plain_kernels:
        hooks += [(target, "REPLACE", _plain_norm) for target in FUSED_NORMS]
        hooks.append((SCALE_SHIFT, "REPLACE", _plain_scale_shift))
    return hooks


def _register(hooks: list[tuple[str, str, Callable[..., Any]]]) -> None:
    try:
        from sglang.multimodal_gen.runtime.platforms.plugins import HookRegistry
        from sglang.srt.plugins.hook_registry import HookType
    except ImportError as missing:
        logger.warning("no steps are watched in this SGLang: %s", missing)
        return
    for target, kind, function in hooks:
        HookRegistry.register(target, function, HookType[kind])


def _json_logs(*_: Any, **__: Any) -> None:
    """SGLang's generator does not read the setting that its text engine has for this."""
    path = os.environ.get("SGLANG_LOGGING_CONFIG_PATH")
    if path:
        logging.config.dictConfig(json.loads(Path(path).read_text()))


def _hush(*_: Any, **__: Any) -> None:
    logging.getLogger(CHATTY).setLevel(logging.WARNING)


def _announcing(board: StepBoard, rank: int) -> Callable[..., Any]:
    def run_rank(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage

        if hasattr(PipelineStage.progress_bar, "__wrapped__"):
            board.announce(rank)
        compat_rope.guard_first_call()
        return original(*arguments, **keywords)

    return run_rank


def _bar_hook(board: StepBoard, rank: int) -> Callable[..., Any]:
    def progress_bar(
        original: Callable[..., Any],
        stage: Any,
        iterable: Any = None,
        total: int | None = None,
        **keywords: Any,
    ) -> Any:
        batch = keywords.get("batch")
        number = None if batch is None else request_number(batch.client_request_ids())
        if number is None:
            return original(stage, iterable, total, **keywords)
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        watch = StepWatch(board, rank, number, int(total or 0))
        # The worker logs progress itself; a bar is redrawn ten times a second.
        keywords["disable"] = True
        if iterable is not None:
            return original(stage, watched_steps(iterable, watch), total, **keywords)
        return watch_updates(original(stage, iterable, total, **keywords), watch)

    return progress_bar


def _plain_norm(norm: Any, *arguments: Any, **keywords: Any) -> Any:
    return norm.forward_native(*arguments, **keywords)


def _plain_scale_shift(*arguments: Any, **keywords: Any) -> Any:
    from sglang.kernels.ops.diffusion.common.fallback_torch import fuse_scale_shift_kernel_native

    return fuse_scale_shift_kernel_native(*arguments, **keywords)
