"""SGLang's image and video generator in this process, found by probing.

Read in SGLang 0.5.23 ``sglang/multimodal_gen/runtime``: ``DiffGenerator`` starts one spawned
process per GPU through ``launch_server`` and talks to them over ZeroMQ. Its ``generate`` blocks,
logs every failure and returns None; the reason is only in the answer of the scheduler, which a
subclass sees.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

# The logger above all of SGLang's generator.
CHATTY = "sglang.multimodal_gen"

logger = logging.getLogger(__name__)

# Import name -> what to install. SGLang imports them whatever the model; they are its extra
# "diffusion", of which the rest is needed by single model families.
LIBRARIES: Mapping[str, str] = {
    "diffusers": "diffusers",
    "imageio": "imageio",
    "imageio_ffmpeg": "imageio-ffmpeg",
    "cache_dit": "cache-dit",
    "addict": "addict",
}


class GeneratorFacts(msgspec.Struct, frozen=True):
    """What the loaded pipeline is and takes."""

    task: str
    makes_images: bool
    makes_videos: bool
    accepts_image: bool
    requires_image: bool
    default_fps: int
    replicas: int = 1
    # Fewer steps are an error for some distilled models.
    min_steps: int = 1


class Output(msgspec.Struct, frozen=True):
    """One finished image or video: a file that SGLang wrote. ``frames`` is 1 for an image."""

    path: str
    width: int
    height: int
    frames: int


class GeneratorFailed(Exception):
    """The generator answered with an error; the message is its own."""


def missing_libraries() -> list[str]:
    """Packages without which SGLang's generator cannot be imported."""
    from importlib.util import find_spec

    return [package for name, package in LIBRARIES.items() if find_spec(name) is None]


def server_arguments(arguments: Mapping[str, Any]) -> Any:
    """SGLang's diffusion ``ServerArgs``; reads the pipeline's index. Raises what SGLang raises."""
    from sglang.multimodal_gen.runtime.platforms.plugins import apply_plugin_hooks
    from sglang.multimodal_gen.runtime.server_args import ServerArgs

    # Before the arguments exist: a platform may change their defaults.
    apply_plugin_hooks()
    server_args = ServerArgs.from_kwargs(**arguments)
    if on_cpu() and not computes_bf16():
        widened = widen(server_args.pipeline_config)
        if widened:
            logger.warning("this CPU has no bf16 arithmetic: %s in fp32", ", ".join(widened))
    return server_args


def computes_bf16() -> bool:
    """Whether this CPU's instructions do; without them a bf16 convolution takes a hundred times as
    long as one in fp32, and a picture of 64x64 minutes."""
    import torch

    probe = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return probe is None or bool(probe())


def widen(pipeline_config: Any) -> list[str]:
    """Have every component of a pipeline compute in fp32; returns the changed fields' names."""
    changed = []
    for name, value in vars(pipeline_config).items():
        if not name.endswith(("precision", "precisions")):
            continue
        wide = tuple("fp32" for _ in value) if isinstance(value, tuple) else "fp32"
        if value is not None and value != wide:
            setattr(pipeline_config, name, wide)
            changed.append(name)
    return changed


def on_cpu() -> bool:
    from sglang.multimodal_gen.runtime.platforms import current_platform

    return bool(current_platform.is_cpu())


def lacks_fused_norms() -> bool:
    """Whether sgl-kernel's CPU build, whose fused norms SGLang calls on a CPU, is absent."""
    import torch

    return on_cpu() and not hasattr(torch.ops.sgl_kernel, "fused_norm_scale_shift_cpu")


def is_native(server_args: Any) -> bool:
    """Whether SGLang's own pipeline runs the model, not diffusers' inside SGLang."""
    from sglang.multimodal_gen.registry import get_model_info

    info = get_model_info(
        server_args.model_path, backend=server_args.backend, model_id=server_args.model_id
    )
    return info is not None and info.pipeline_cls.__name__ != "DiffusersPipeline"


def read_facts(server_args: Any) -> GeneratorFacts:
    from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams

    task = server_args.pipeline_config.task_type
    defaults = SamplingParams.from_pretrained(
        server_args.model_path, backend=server_args.backend, model_id=server_args.model_id
    )
    return GeneratorFacts(
        task=str(task.name),
        makes_images=bool(task.is_image_gen()),
        makes_videos=bool(task.is_video_gen()),
        accepts_image=bool(task.accepts_image_input()),
        requires_image=bool(task.requires_image_input()),
        default_fps=int(defaults.fps),
        replicas=int(server_args.dp_size or 1),
        min_steps=int(getattr(defaults, "min_num_inference_steps", 1)),
    )


class Generator:
    """A running DiffGenerator. `generate` may be called from one thread per replica."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._processes = list(generator.local_scheduler_process or ())

    @property
    def process_names(self) -> dict[int, str]:
        return {process.pid: process.name for process in self._processes if process.pid}

    def generate(self, fields: Mapping[str, Any]) -> list[Output]:
        """Blocks until every output is a file.

        ``external_trace_header`` among the fields continues the client's trace. Raises ValueError
        for what SGLang refuses before it starts, GeneratorFailed for the rest.
        """
        self._generator.failures.reason = None
        sampling = dict(fields)
        trace = sampling.pop("external_trace_header", None)
        results = self._generator.generate(sampling, trace)
        if results is None:
            reason = self._generator.failures.reason
            raise GeneratorFailed(reason or "SGLang gave no output and no reason")
        return [_output(one) for one in (results if isinstance(results, list) else [results])]

    def forget_processes(self) -> None:
        """They were killed: nothing is left for the generator's own shutdown to wait for."""
        self._generator.local_scheduler_process = None
        self._generator.owns_scheduler_client = False


def start_generator(server_args: Any, entry: Callable[[Any], None], *, quiet: bool) -> Generator:
    """Start the processes, each through ``entry(spec)``, and wait until the model is loaded.

    ``quiet``: from then on only SGLang's warnings are logged here.

    Raises what SGLang raises, after it ended its processes.
    """
    from sglang.multimodal_gen.runtime import launch_server

    original = launch_server.bootstrap_scheduler_process
    patched: Any = launch_server
    patched.bootstrap_scheduler_process = entry
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return Generator(_generator_class().from_server_args(server_args))
    finally:
        patched.bootstrap_scheduler_process = original
        # SGLang takes the whole process's logging over.
        root.handlers[:] = handlers
        root.setLevel(level)
        if quiet:
            logging.getLogger(CHATTY).setLevel(logging.WARNING)


@functools.lru_cache(maxsize=1)
def _generator_class() -> Any:
    from sglang.multimodal_gen.runtime.entrypoints.diffusion_generator import DiffGenerator

    class TellingGenerator(DiffGenerator):
        """Keeps the reason why a request failed, per thread."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            self.failures = threading.local()
            super().__init__(*arguments, **keywords)

        def _send_to_scheduler_and_wait_for_response(self, batch: Sequence[Any]) -> Any:
            try:
                answer = super()._send_to_scheduler_and_wait_for_response(batch)
            except Exception as error:
                self.failures.reason = f"{type(error).__name__}: {error}"
                raise
            if answer.error:
                self.failures.reason = str(answer.error)
            return answer

    return TellingGenerator


def _output(result: Any) -> Output:
    if not result.output_file_path:
        raise GeneratorFailed("SGLang returned an output without a file")
    height, width, frames = result.size
    return Output(str(result.output_file_path), int(width), int(height), int(frames or 1))
