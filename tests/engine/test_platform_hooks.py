"""Every hook of the platform is in place in the processes that compute, and a lost one is named."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sglang_worker.reference_platform.defaults import process_environment

from tests.support.environment import REPOSITORY

pytestmark = pytest.mark.engine


def _python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        env={**os.environ, **process_environment()},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.mark.compat
def test_importing_the_model_runner_installs_the_kernels_under_their_own_names() -> None:
    out = _python(
        "import sglang.srt.model_executor.model_runner\n"
        "from sglang.srt.layers.attention.linear.gdn_backend import GDNKernelDispatcher\n"
        "from sglang.srt.layers.attention.linear.kda_backend import KDAKernelDispatcher\n"
        "from sglang.srt.layers.attention.linear.utils import LinearAttnKernelBackend as B\n"
        "for dispatcher in (GDNKernelDispatcher(B.TRITON, B.TRITON, B.TRITON),\n"
        "                   KDAKernelDispatcher(B.TRITON, B.TRITON, B.TRITON)):\n"
        "    kernels = (dispatcher.decode_kernel, dispatcher.extend_kernel,\n"
        "               dispatcher.verify_kernel)\n"
        "    print(*{type(kernel).__name__ for kernel in kernels})\n"
        "    print(type(kernels[0]).__module__)\n"
    )
    module = "sglang_worker.reference_platform.kernels"
    assert out.split() == ["ReferenceGDNKernel", module, "ReferenceKDAKernel", module]


@pytest.mark.compat
def test_a_hook_target_that_is_gone_stops_the_start_and_is_named() -> None:
    out = _python(
        "import sglang_worker.reference_platform.hooks as hooks\n"
        "hooks.REPLACEMENTS['sglang.kernels.ops.no_such_module.function'] = print\n"
        "hooks.REPLACEMENTS['sglang.srt.mem_cache.allocation.no_such_function'] = print\n"
        "try:\n"
        "    hooks.install()\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    assert out.startswith("EngineStartError")
    for name in ("no_such_module", "no_such_function"):
        assert name in out


def test_speculation_is_not_offered_when_one_of_its_targets_is_gone() -> None:
    out = _python(
        "import sglang_worker.reference_platform.hooks as hooks\n"
        "from sglang.srt.platforms import current_platform as platform\n"
        "print(platform.supports_speculative_algorithm('NEXTN'))\n"
        "hooks.ABSENT['sglang.srt.environ', 'no_such_name'] = print\n"
        "print(platform.supports_speculative_algorithm('NEXTN'))\n"
        "hooks.install()\n"
    )
    assert out.split() == ["True", "False"]


def test_names_that_sglang_leaves_empty_are_provided_everywhere() -> None:
    out = _python(
        "import sglang.srt.speculative.eagle_utils as early\n"
        "import sglang.srt.model_executor.model_runner\n"
        "import sglang.srt.speculative.dflash_utils as late\n"
        "print(early.top_k_renorm_prob.__module__, late.top_p_renorm_prob.__module__,\n"
        "      early.tree_speculative_sampling_target_only.__module__)\n"
    )
    base = "sglang_worker.reference_platform."
    assert out.split() == [base + "renorm", base + "renorm", base + "spec_tree"]
