"""The platform object that SGLang asks: what runs here, and with which defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.platforms import interface
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform

from sglang_worker.reference_platform import defaults, older, patches


class ReferenceCpuPlatform(CpuDeviceMixin, SRTPlatform):
    """Pure-PyTorch execution on the CPU; out-of-tree, so SGLang never assumes CUDA classes."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    # None of them. SGLang 0.5.21 has no such class and asks methods whose defaults say the same.
    capabilities: Any = getattr(interface, "PlatformCapabilities", tuple)()

    def __init__(self) -> None:
        patches.apply()

    def get_device(self, device_id: int = 0) -> str:
        """A name, as `--device` takes it; the mixin's torch.device is not accepted there."""
        return "cpu"

    def apply_server_args_defaults(self, server_args: Any) -> None:
        older.refuse_speculation(server_args)
        defaults.fill_unset(server_args)

    def init_backend(self) -> None:
        """Called by SGLang in every process that will build a model runner."""
        from sglang_worker.reference_platform import hooks

        hooks.install()

    def empty_cache(self) -> None:
        """Nothing to return to a device. The mixin's garbage collection walks all of SGLang's
        objects, a second per flush, and frees nothing that reference counts did not."""

    def is_pin_memory_available(self, device: Any = None) -> bool:
        return False

    def get_default_attention_backend(self) -> str:
        return defaults.ATTENTION_BACKEND

    def get_dispatch_key_name(self) -> str:
        return "native"

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        from sglang_worker.reference_platform import hooks

        return algorithm in defaults.SPECULATIVE_ALGORITHMS and hooks.speculation_fits()

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        return backend == defaults.ATTENTION_BACKEND

    def get_default_speculative_draft_attention_backend(self, algorithm: str) -> str:
        return defaults.ATTENTION_BACKEND

    def support_mamba_cache_extra_buffer(self) -> bool:
        return True

    def get_speculative_cache_locs_fn(self) -> Callable[..., Any]:
        from sglang_worker.reference_platform.cache_locs import extend_cache_locs

        return extend_cache_locs

    def get_quantization_config(self, quantization: str) -> None:
        raise ValueError(
            f"{quantization} weights do not run on the CPU reference platform: "
            "use a float32, bfloat16 or float16 checkpoint"
        )

    def get_compile_backend(self, mode: str | None = None) -> str:
        return "eager"

    def get_torch_profiler_activity_str(self) -> str:
        # SGLang's profiler asks every out-of-tree platform; without an answer the scheduler dies.
        return "CPU"

    def get_torch_profiler_activity(self) -> Any:
        from torch.profiler import ProfilerActivity

        return ProfilerActivity.CPU


older.complete(ReferenceCpuPlatform)
