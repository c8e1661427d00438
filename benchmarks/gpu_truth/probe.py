"""Runs inside the scheduler process: records the device kernels of single forward passes.

Our own scheduler entry does the reporting; this module only adds an observer around it. A few
forward passes per runner and forward mode run under torch's profiler, after the first ones, which
pay for compilation. Kernel classes that were called are noted beside, as a second witness.
"""

from __future__ import annotations

import collections
import functools
import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from sglang_worker.runners import process

OUTPUT_VARIABLE = "GPU_TRUTH_PROFILE"
_SKIP, _TAKE = 1, 2
_KERNELS = "sglang.srt.layers.attention.linear.kernels."
_KERNEL_CLASSES = (
    ("gdn_triton", "TritonGDNKernel"),
    ("gdn_flashinfer", "FlashInferGDNKernel"),
    ("gdn_cutedsl", "CuteDSLGDNKernel"),
)
_METHODS = ("decode", "packed_decode", "extend", "target_verify")


class ForwardProfiler:
    def __init__(self, output: Path) -> None:
        self._output = output
        self._passes: collections.Counter[str] = collections.Counter()
        self._called: collections.Counter[str] = collections.Counter()
        self._kernels: dict[str, dict[str, int]] = {}
        self._notes: list[str] = []

    def install(self) -> None:
        from sglang.srt.model_executor.model_runner import ModelRunner

        original = ModelRunner.forward

        @functools.wraps(original)
        def forward(runner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            return self._forward(original, runner, forward_batch, args, kwargs)

        ModelRunner.forward = forward
        for module, name in _KERNEL_CLASSES:
            self._watch(module, name)

    def _forward(self, original: Any, runner: Any, batch: Any, args: Any, kwargs: Any) -> Any:
        role = "draft" if runner.is_draft_worker else "target"
        key = f"{role}.{batch.forward_mode.name}"
        count = self._passes[key]
        self._passes[key] += 1
        if not _SKIP <= count < _SKIP + _TAKE or _capturing():
            return original(runner, batch, *args, **kwargs)
        result, names = _profiled(lambda: original(runner, batch, *args, **kwargs), self._notes)
        known = self._kernels.setdefault(key, {})
        for name in names:
            known[name] = known.get(name, 0) + 1
        self.write()
        return result

    def _watch(self, module: str, name: str) -> None:
        try:
            cls = getattr(importlib.import_module(_KERNELS + module), name)
        except Exception as error:
            self._notes.append(f"{name} cannot be watched: {error!r}")
            return
        for method in _METHODS:
            function = cls.__dict__.get(method)
            if callable(function):
                setattr(cls, method, self._counting(function, f"{cls.__name__}.{method}"))

    def _counting(self, function: Any, label: str) -> Any:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._called[label] += 1
            return function(*args, **kwargs)

        return counted

    def write(self) -> None:
        content = {
            "passes": dict(self._passes),
            "kernels": self._kernels,
            "called": dict(self._called),
            "notes": self._notes,
        }
        temporary = self._output.with_suffix(".part")
        temporary.write_text(json.dumps(content))
        temporary.replace(self._output)


def _capturing() -> bool:
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _profiled(call: Any, notes: list[str]) -> tuple[Any, list[str]]:
    """The call's result and the names of the device kernels it launched (CPU ops without CUDA)."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    if cuda:
        torch.cuda.synchronize()
    with profile(activities=activities) as profiler:
        result = call()
        if cuda:
            torch.cuda.synchronize()
    try:
        return result, _kernel_names(profiler, "kernel" if cuda else "cpu_op")
    except Exception as error:
        notes.append(f"a profile could not be read: {error!r}")
        return result, []


def _kernel_names(profiler: Any, category: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == category]


def run_scheduler_process(*args: Any) -> None:
    ForwardProfiler(Path(os.environ[OUTPUT_VARIABLE])).install()
    process.run_scheduler_process(*args)
