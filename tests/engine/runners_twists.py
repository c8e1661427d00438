"""Real faults put into scheduler processes (see runners_lab). Each gets (tp, pp, dp) ranks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

GATE = "shared_experts_fusion_disable_reason"


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    """Runs ``then(result, *args)`` after ``owner.name`` each time."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        then(result, *args)
        return result

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, first: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        first(*args)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def _scheduler_class() -> Any:
    from sglang.srt.managers.scheduler import Scheduler

    return Scheduler


def _target_runner(scheduler: Any) -> Any:
    return scheduler.tp_worker.model_runner


def _swap_decode_kernel(scheduler: Any) -> None:
    from sglang.srt.layers.attention.linear.kernels.kda_triton import TritonKDAKernel

    backend = _target_runner(scheduler).attn_backend.linear_attn_backend
    backend.kernel_dispatcher.decode_kernel = TritonKDAKernel()


def swap_a_kernel_after_startup(*_: Any) -> None:
    """The report was handed over; then the dispatcher gets another decode kernel."""
    _before(_scheduler_class(), "run_event_loop", _swap_decode_kernel)


def swap_a_kernel_on_rank_one(tp: int, *_: Any) -> None:
    """One tensor-parallel rank builds something else than the others."""
    if tp == 1:
        _before(_scheduler_class(), "get_init_info", _swap_decode_kernel)


def remove_the_stamp(*_: Any) -> None:
    """A runner that runs a GDN backend and shows no stamp."""

    def remove(scheduler: Any) -> None:
        del _target_runner(scheduler).linear_attn_backends

    _before(_scheduler_class(), "get_init_info", remove)


def never_stamp(*_: Any) -> None:
    """A hardware path that builds SGLang's GDN backend without passing the wrapper's stamp."""
    from sglang.srt.layers.attention import attention_registry

    original = attention_registry.attn_backend_wrapper

    def unstamped(runner: Any, full: Any) -> Any:
        from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend

        original(runner, full)
        del runner.linear_attn_backends
        return GDNAttnBackend(runner)

    from sglang.srt.model_executor.model_runner_components import attention_backend_setup

    attention_backend_setup.attn_backend_wrapper = unstamped


def break_collecting(*_: Any) -> None:
    """A runner that cannot be read."""

    def break_it(scheduler: Any) -> None:
        _target_runner(scheduler).attn_backend.linear_attn_backend.kernel_dispatcher = object()
        del _target_runner(scheduler).model_config.hf_config

    _before(_scheduler_class(), "get_init_info", break_it)


def keep_hooks_from_applying(*_: Any) -> None:
    """Another plugin left the registry in a state in which ours are only logged."""
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang_worker.runners import hooks

    HookRegistry._patched.update({hooks.WRAPPER, hooks.INIT_INFO})


def give_the_draft_a_loader_hook(*_: Any) -> None:
    """An MTP class that answers the loader although its target does not."""
    from sglang.srt.models.qwen3_next_mtp import Qwen3NextForCausalLMMTP

    setattr(Qwen3NextForCausalLMMTP, GATE, classmethod(lambda cls, config, quant: None))


def decide_fusion_differently(*_: Any) -> None:
    """Draft and target answer the same questions, yet one of them refuses to fuse."""
    from sglang.srt.models.qwen3_next import Qwen3NextForCausalLM
    from sglang.srt.models.qwen3_next_mtp import Qwen3NextForCausalLMMTP

    def no_reason(cls: Any, config: Any, quant: Any) -> None:
        return None

    def a_reason(cls: Any, config: Any, quant: Any) -> str:
        return "this draft does not fuse."

    for model, gate in ((Qwen3NextForCausalLM, no_reason), (Qwen3NextForCausalLMMTP, a_reason)):
        setattr(model, GATE, classmethod(gate))
        model.num_fusable_shared_experts = classmethod(lambda cls, config: 1)


def run_experiments(*_: Any) -> None:
    """Puts the questions of runners_experiments to the scheduler once it is up."""
    from tests.engine import runners_experiments
    from tests.engine.runners_lab import OUTPUT_VARIABLE

    output = Path(os.environ[OUTPUT_VARIABLE])
    _before(
        _scheduler_class(),
        "run_event_loop",
        lambda scheduler: runners_experiments.answer_all(scheduler, output),
    )
