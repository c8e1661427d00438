"""Questions put to SGLang's real classes inside a real scheduler process (see runners_lab).

Each function gets the scheduler and answers with plain data. What they change, they change on
copies of the runners or for the length of a ``with`` block.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from tests.engine.stubbed_packages import stubbed

KDA_VARIABLE = "RUNNERS_LAB_KDA"
_LEAVES = (
    "linear_attn_backend",
    "linear_attn_decode_backend",
    "linear_attn_prefill_backend",
    "linear_attn_verify_backend",
)


def answer_all(scheduler: Any, output: Path) -> None:
    answers = {name: _answer(function, scheduler) for name, function in EXPERIMENTS.items()}
    output.write_text(json.dumps(answers, default=str))


def _answer(function: Callable[[Any], Any], scheduler: Any) -> Any:
    try:
        return function(scheduler)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


# Tools.


def _target(scheduler: Any) -> Any:
    return scheduler.tp_worker.model_runner


def _unstamped(scheduler: Any) -> Any:
    runner = copy.copy(_target(scheduler))
    vars(runner).pop("linear_attn_backends", None)
    return runner


def _kda_runner(scheduler: Any) -> Any:
    """A runner of a KDA model beside the GDN one: same pools, its own model configuration."""
    from sglang.srt.configs.model_config import ModelConfig

    runner = _unstamped(scheduler)
    runner.model_config = ModelConfig.from_server_args(
        scheduler.server_args, model_path=os.environ[KDA_VARIABLE]
    )
    return runner


def _leaves() -> dict[str, Any]:
    from sglang.srt.runtime_context import get_exec

    return {name: getattr(get_exec().mamba, name) for name in _LEAVES}


def _error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@contextlib.contextmanager
def _automatic_default() -> Iterator[None]:
    """SGLang decides as on an SM90 GPU; the GPU kernel's constructor alone is stood in for."""
    from sglang.srt.layers.attention.linear import gdn_backend

    kernel = type("FlashInferGDNKernel", (), {"supports_target_verify": True})
    module = types.ModuleType("gdn_flashinfer_stand_in")
    module.FlashInferGDNKernel = kernel  # type: ignore[attr-defined]
    name = "sglang.srt.layers.attention.linear.kernels.gdn_flashinfer"
    with (
        mock.patch.object(gdn_backend, "flashinfer_gdn_prefill_default", lambda _: "flashinfer"),
        mock.patch.object(gdn_backend, "is_cuda", lambda: True),
        mock.patch.dict(sys.modules, {name: module}),
    ):
        yield


def _wrapped(runner: Any) -> Any:
    """The runner after SGLang's own `attn_backend_wrapper` built its backend."""
    from sglang.srt.layers.attention import attention_registry

    full = _full_backend(runner)
    runner.attn_backend = attention_registry.attn_backend_wrapper(runner, full)
    return runner


def _full_backend(runner: Any) -> Any:
    backend = runner.attn_backend
    return getattr(backend, "full_attn_backend", backend)


def _report(scheduler: Any, runner: Any) -> dict[str, Any]:
    from sglang_worker.runners import observe

    record = observe.observe_runner("target", runner, scheduler.server_args, 0, _notes())
    built: dict[str, Any] = msgspec.to_builtins(record.report)
    return built


def _notes() -> Any:
    """The notes of the hooks that this process runs."""
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang_worker.runners import hooks

    (_, function, _) = HookRegistry._hooks[hooks.WRAPPER][-1]
    return function.__self__.notes


# Experiments.


def precedence(scheduler: Any) -> dict[str, Any]:
    """Stamps that SGLang's resolver gives for flags, automatic default and base."""
    from sglang.srt.layers.attention.linear.utils import resolve_linear_attn_backends
    from sglang.srt.runtime_context import get_exec

    def stamp(default: str | None, **leaves: str) -> list[str]:
        with get_exec().mamba.override(**leaves):
            found = resolve_linear_attn_backends(prefill_default=default)
        return [found.decode.value, found.prefill.value, found.verify.value]

    return {
        "base": stamp(None),
        "default": stamp("flashinfer"),
        "flag over default": stamp("flashinfer", linear_attn_prefill_backend="cutedsl"),
        "default over base": stamp("flashinfer", linear_attn_backend="cutedsl"),
        "decode flag": stamp(None, linear_attn_decode_backend="cutedsl"),
        "verify follows flashinfer": stamp(None, linear_attn_decode_backend="flashinfer"),
        "verify else triton": stamp(None, linear_attn_backend="cutedsl"),
        "verify flag": stamp(
            None, linear_attn_decode_backend="flashinfer", linear_attn_verify_backend="triton"
        ),
    }


def side_by_side(scheduler: Any) -> dict[str, Any]:
    """A GDN and a KDA runner in one process, each order of building."""
    from sglang.srt.runtime_context import get_context

    found: dict[str, Any] = {}
    for order in ("gdn first", "kda first"):
        gdn, kda = _unstamped(scheduler), _kda_runner(scheduler)
        runners = [gdn, kda] if order == "gdn first" else [kda, gdn]
        before = _leaves()
        with _automatic_default():
            for runner in runners:
                _wrapped(runner)
        found[order] = {
            "gdn": _report(scheduler, gdn),
            "kda": _report(scheduler, kda),
            "leaves changed": _leaves() != before,
            "process prefill": _leaves()["linear_attn_prefill_backend"],
            "server_args prefill": scheduler.server_args.linear_attn_prefill_backend,
            "resolved prefill": get_context().resolved_server_args_dict()[
                "linear_attn_prefill_backend"
            ],
        }
    return found


def prefill_flag_beats_the_default(scheduler: Any) -> dict[str, Any]:
    from sglang.srt.runtime_context import get_exec

    runner = _unstamped(scheduler)
    server_args = copy.copy(scheduler.server_args)
    msgspec.Struct.__setattr__(server_args, "linear_attn_prefill_backend", "triton")
    typed = types.SimpleNamespace(server_args=server_args)
    with _automatic_default(), get_exec().mamba.override(linear_attn_prefill_backend="triton"):
        return _report(typed, _wrapped(runner))


def resolver_declared(scheduler: Any) -> dict[str, Any]:
    """A value that SGLang published although nobody typed it."""
    from sglang.srt.runtime_context import get_exec

    runner = _unstamped(scheduler)
    with get_exec().mamba.override(linear_attn_decode_backend="triton"):
        return _report(scheduler, _wrapped(runner))


def unstamped_constructors(scheduler: Any) -> dict[str, str]:
    """What SGLang's own constructors say, our guard taken off."""
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import MambaAttnBackendBase
    from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend
    from sglang.srt.layers.attention.linear.kda_backend import KDAAttnBackend

    guarded = MambaAttnBackendBase.__init__
    with mock.patch.object(MambaAttnBackendBase, "__init__", guarded.__wrapped__):
        return {
            "gdn": _error_of(lambda: GDNAttnBackend(_unstamped(scheduler))),
            "kda": _error_of(lambda: KDAAttnBackend(_unstamped(scheduler))),
            "ascend": _error_of(lambda: _ascend_class()(_unstamped(scheduler))),
        }


def _ascend_class() -> Any:
    """SGLang's Ascend GDN class; only the packages that exist on NPU machines are stubbed."""
    with stubbed("sgl_kernel_npu"):
        from sglang.srt.hardware_backend.npu.attention.ascend_gdn_backend import (
            AscendGDNAttnBackend,
        )

    return AscendGDNAttnBackend


def guarded_constructors(scheduler: Any) -> dict[str, str]:
    """What our guard says in front of backends that read no stamp, and of KDA."""
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import Mamba2AttnBackend
    from sglang.srt.layers.attention.linear.kda_backend import KDAAttnBackend
    from sglang.srt.layers.attention.linear.lightning_backend import LightningAttentionBackend

    return {
        "lightning": _error_of(lambda: LightningAttentionBackend(_unstamped(scheduler))),
        "mamba2": _error_of(lambda: Mamba2AttnBackend(_unstamped(scheduler))),
        "kda": _error_of(lambda: KDAAttnBackend(_unstamped(scheduler))),
    }


def backends_that_read_no_stamp(scheduler: Any) -> dict[str, Any]:
    """Reports of stamped runners whose backend is Mamba2's or lightning's."""
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import Mamba2AttnBackend
    from sglang.srt.layers.attention.linear.lightning_backend import LightningAttentionBackend

    found = {}
    for name, cls in (("mamba2", Mamba2AttnBackend), ("lightning", LightningAttentionBackend)):
        runner = copy.copy(_target(scheduler))
        runner.attn_backend = cls(runner)
        found[name] = _report(scheduler, runner)
    return found


def frozen_stamp(scheduler: Any) -> str:
    stamp = _target(scheduler).linear_attn_backends
    return _error_of(lambda: setattr(stamp, "decode", stamp.prefill))


def report_and_backend(scheduler: Any) -> dict[str, Any]:
    """The report of the target beside what its constructed backend object holds."""
    backend = _target(scheduler).attn_backend.linear_attn_backend
    held, dispatcher = backend.linear_attn_backends, backend.kernel_dispatcher
    return {
        "report": _report(scheduler, _target(scheduler)),
        "held stamp": {p: getattr(held, p).value for p in ("decode", "prefill", "verify")},
        "held kernels": {
            "decode": type(dispatcher.decode_kernel).__name__,
            "prefill": type(dispatcher.extend_kernel).__name__,
            "verify": type(dispatcher.verify_kernel).__name__,
            "tree_verify": type(dispatcher.tree_verify_kernel).__name__,
        },
    }


def draft_runners_of_every_algorithm(_: Any) -> dict[str, Any]:
    """The runners that compat finds behind SGLang's real worker classes (not initialised)."""
    from sglang_worker.runners import compat

    return {
        name: [str(runner) for runner in compat.draft_runners(_scheduler_with(worker))]
        for name, worker in _workers().items()
    }


def _scheduler_with(worker: Any) -> Any:
    return types.SimpleNamespace(draft_worker=worker)


def _workers() -> dict[str, Any]:
    with stubbed("flashinfer", "sgl_kernel"):
        return _worker_doubles()


def _worker_doubles() -> dict[str, Any]:
    from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
    from sglang.srt.speculative.dspark_components.dspark_worker_v2 import DSparkWorkerV2
    from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2
    from sglang.srt.speculative.multi_layer_eagle_worker_v2 import (
        MultiLayerEagleDraftWorker,
        MultiLayerEagleWorkerV2,
    )
    from sglang.srt.speculative.ngram_worker import NGRAMWorker
    from sglang.srt.speculative.standalone_worker_v2 import (
        StandaloneDraftWorker,
        StandaloneWorkerV2,
    )
    from sglang.srt.speculative.uno_worker_v2 import UnoWorkerV2

    model_worker = types.SimpleNamespace(model_runner="draft")
    return {
        "none": None,
        "eagle": _worker(EAGLEWorkerV2, _worker(EagleDraftWorker, draft_runner="draft")),
        "standalone": _worker(
            StandaloneWorkerV2, _worker(StandaloneDraftWorker, draft_runner="draft")
        ),
        "multi_layer_eagle": _worker(
            MultiLayerEagleWorkerV2,
            _worker(MultiLayerEagleDraftWorker, draft_runner_list=["step 0", "step 1"]),
        ),
        "dflash": _worker(DFlashWorkerV2, model_worker),
        "dspark": _worker(DSparkWorkerV2, model_worker),
        "uno": _worker(UnoWorkerV2, None),
        "ngram": _worker(NGRAMWorker, None),
    }


def _worker(cls: Any, draft: Any = None, **attributes: Any) -> Any:
    worker = object.__new__(cls)
    vars(worker).update(attributes)
    if not attributes:
        vars(worker).update({"_draft_worker": draft, "_hosts_draft": True})
    return worker


def registry_parity(_: Any) -> dict[str, Any]:
    """Loader-hook parity over every architecture that SGLang registers."""
    from sglang_worker.runners import parity

    models = parity.registry()
    return {
        "pairs": len(parity.pairs(models)),
        "broken": [f.sentence for f in parity.audit(models) if f.exempted is None],
        "exempted": sorted({f.draft for f in parity.audit(models) if f.exempted is not None}),
        "stale": [f"{e.draft}.{e.hook}" for e in parity.stale_exemptions(models)],
    }


EXPERIMENTS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function
    for function in (
        precedence,
        side_by_side,
        prefill_flag_beats_the_default,
        resolver_declared,
        unstamped_constructors,
        guarded_constructors,
        backends_that_read_no_stamp,
        frozen_stamp,
        report_and_backend,
        draft_runners_of_every_algorithm,
        registry_parity,
    )
}
