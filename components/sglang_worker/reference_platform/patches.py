"""Changes to torch that no hook of SGLang can stand in for.

SGLang calls these directly and unconditionally; on a torch build with CUDA support but without a
device they raise. Each entry says who calls it. Applied once per process, by the platform's
constructor, so only where the platform is active.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

_PIN_MEMORY_FACTORIES = ("empty", "zeros", "full", "tensor")


class IdleStream:
    """Stands for torch.cuda.Event and for the current stream: every call succeeds at once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., bool]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: True


class TimedEvent(torch.cpu.Event):
    """torch.cpu.Event with the clock of a device's: on the CPU work is done when it was called."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._at_s = 0.0

    def record(self, stream: Any = None) -> None:
        self._at_s = time.perf_counter()

    def elapsed_time(self, end_event: TimedEvent) -> float:
        """Milliseconds, as torch's."""
        return (end_event._at_s - self._at_s) * 1000


def _device_module(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.get_device_module()`` without a device would pick torch.cuda: cache controllers,
    EPLB, weight updates and Qwen3-Next's norms ask that way."""

    @functools.wraps(original)
    def get_device_module(device: Any = None) -> Any:
        return torch.cpu if device is None else original(device)

    return get_device_module


def _without_pinning(factory: Callable[..., Any]) -> Callable[..., Any]:
    """LoRA buffers pass ``pin_memory=True`` whatever the platform answers."""

    @functools.wraps(factory)
    def create(*args: Any, pin_memory: bool = False, **options: Any) -> Any:
        return factory(*args, **options)

    return create


def _nothing(*args: Any, **options: Any) -> None:
    """torch.cuda.empty_cache and synchronize: a draft model calls both when it takes over the
    target's embedding and head."""


@functools.cache
def apply() -> None:
    """Applies every patch; further calls do nothing."""
    torch.get_device_module = _device_module(torch.get_device_module)
    # The scheduler's overlap loop enters `device_module.device(rank)`.
    torch.cpu.device = lambda index=None: contextlib.nullcontext()
    # Forward-pass metrics time each pass with events of the device module.
    torch.cpu.Event = TimedEvent
    torch.cuda.empty_cache = _nothing
    torch.cuda.synchronize = _nothing
    # The prefill side of disaggregation records an event on the current stream.
    torch.cuda.Event = IdleStream
    torch.cuda.current_stream = IdleStream
    for name in _PIN_MEMORY_FACTORIES:
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    # Batch preparation pins host tensors before "copying them to the device".
    torch.Tensor.pin_memory = lambda self, *args, **options: self
